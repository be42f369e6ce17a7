// asof errors: what the stable codes mean.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tools/cli/verbs.h"
#include "tools/output/diagnostics.h"
#include "tools/output/error_table.h"
#include "tools/output/output.h"

namespace asof {
namespace {

struct ErrorsOptions {
  std::string code;
  bool markdown = false;
};

ExitCode run_errors(const ErrorsOptions& o) {
  auto out = Output::open("-");
  if (!out) return kExitInput;
  if (o.markdown) {
    out->write(error_table_markdown());
    return kExitOk;
  }
  if (o.code.empty()) {
    for (const CodeInfo& info : error_table()) out->write(fmt::format("{} {}\n", info.code, info.title));
    return kExitOk;
  }
  std::optional<Code> code = code_of(o.code);
  // e-flow-001; E-SIDE-515 of I-SIDE-515.
  std::string other = o.code;
  std::ranges::transform(other, other.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (const char letter : {'E', 'I'}) {
    if (code || other.empty()) break;
    other[0] = letter;
    code = code_of(other);
  }
  if (!code) {
    to_stderr(fmt::format("asof errors: no code '{}'; 'asof errors' lists them all\n", o.code));
    return kExitUsage;
  }
  out->write(explain(info_of(*code)));
  return kExitOk;
}

}  // namespace

RunVerb add_errors(CLI::App& app) {
  auto options = std::make_shared<ErrorsOptions>();
  CLI::App* verb = app.add_subcommand("errors", "what error codes mean");
  auto* explain_option =
      verb->add_option("CODE,--explain", options->code, "causes and remedy of one code")->type_name("CODE");
  verb->add_flag("--markdown", options->markdown, "all codes as a page (docs/errors.md)")
      ->excludes(explain_option);
  return [options] { return run_errors(*options); };
}

}  // namespace asof
