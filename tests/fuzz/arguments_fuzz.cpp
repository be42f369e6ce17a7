// Command lines: arguments with NUL between them. They are read; nothing is run.
#include <CLI/CLI.hpp>

#include "tests/fuzz/fuzz.h"
#include "tools/cli/arguments.h"
#include "tools/cli/verb_table.h"

namespace {

struct Program {
  Program() { app.require_subcommand(1); }
  CLI::App app{"asof", "asof"};
  decltype(asof::add_verbs(app)) verbs = asof::add_verbs(app);
};

}  // namespace

FUZZ_TARGET(arguments) {
  std::vector<std::string> given(1);
  for (const uint8_t b : bytes) {
    if (b == 0)
      given.emplace_back();
    else
      given.back().push_back(static_cast<char>(b));
  }
  auto arguments = asof::normal_arguments(std::move(given));
  if (!arguments) {
    FUZZ_CHECK(!arguments.error().reason.empty());
    return;
  }
  static Program program;  // making one takes a hundred times as long as parsing
  CLI::App& app = program.app;
  std::reverse(arguments->begin(), arguments->end());
  try {
    app.parse(*arguments);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) FUZZ_CHECK(!asof::explain_parse_error(app, error).empty());
  }
}
