// asof: the program. Finds the verb, lets CLI11 read its options, and ends with the verb's exit status.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <optional>

#include "tools/cli/verb_table.h"
#include "tools/output/diagnostics.h"
#include "tools/output/output.h"

namespace {

using namespace asof;

constexpr const char* kFooter = R"(Most used:
  asof perf.data                       instructions as text
  asof report                          what is in ./perf.data, how much was decoded, what was lost and why
  asof timeline --html out.html        calls in time, down to instructions, in any browser
  asof doctor                          is everything there that exact decoding needs
  asof text __schedule@12.345678       the bytes of a function at that time
'asof VERB --help' gives options and examples, 'man asof' more. Exit status: 0 ok, 1 usage, 2 input unusable,
3 decoded with errors under --strict or above --max-errors, 4 internal, 5 missing text blocked all decoding,
130 interrupted (partial output is valid).)";

// `asof perf.data` and `asof -F ip perf.data` mean decode; `asof help VERB` means `asof VERB --help`.
std::vector<std::string> normal_arguments(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  if (args.empty()) return args;
  const std::string first = args[0];
  if (first == "help") {
    if (args.size() > 1 && is_verb(args[1])) return {args[1], "--help"};
    return {"--help"};
  }
  if (first == "--version") return {"version"};
  if (!is_verb(first) && first != "--help" && first != "-h") args.insert(args.begin(), "decode");
  return args;
}

int run(int argc, char** argv) {
  CLI::App app("asof - decode Intel PT and Arm CoreSight traces against the text that was live at the time",
               "asof");
  app.footer(kFooter);
  app.require_subcommand(1);
  const std::vector<RunVerb> runners = add_verbs(app);

  std::vector<std::string> args = normal_arguments(argc, argv);
  if (args.empty()) {
    fmt::print(stderr, "{}", app.help());
    return kExitUsage;
  }
  std::reverse(args.begin(), args.end());  // the order CLI11 takes a vector in
  try {
    app.parse(args);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kExitOk : kExitUsage;
  }
  for (size_t i = 0; i < runners.size(); ++i) {
    if (app.got_subcommand(verbs()[i].name)) return runners[i]();
  }
  return kExitUsage;
}

// What a verb printed may have been lost: then no verb succeeded. Nor is it whole where it was interrupted,
// whatever the verb says.
int checked(int status) {
  if (interrupted()) {
    Diagnostics(Diagnostics::Color::kAuto, 0)
        .note("interrupted: what was written is valid, but of a part of the trace only");
    status = kExitInterrupted;
  }
  std::optional<Error> failure = Output::take_failure();
  if (!std::cout.flush())  // help
    failure =
        Error{Code::kCannotWrite, "standard output", Error::kNoOffset, "cannot write", "is the disk full?"};
  if (!failure) return status;
  Diagnostics(Diagnostics::Color::kAuto, 0).error(*failure);
  return status == kExitOk ? kExitInput : status;
}

}  // namespace

int main(int argc, char** argv) {
  install_signal_handlers();
  try {
    return checked(run(argc, argv));
  } catch (const std::exception& e) {
    fmt::print(stderr, "asof: internal error: {}\n", e.what());
    return asof::kExitInternal;
  }
}
