// asof doctor: before decoding, what a capture has and what it lacks for exact decoding. One line for each
// question: ok, warn (parts will be unknown or ambiguous) or bad (much will be).
#include <fmt/format.h>

#include <algorithm>

#include "textstore/plain_text.h"
#include "tools/cli/verbs.h"
#include "tools/doctor/health.h"
#include "tools/output/fold.h"
#include "tools/output/json.h"
#include "tools/output/output.h"

namespace asof {
namespace {

struct DoctorOptions {
  InputOptions input;
  bool strict = false;
  std::string format = "text";
};

std::string_view color_of(Verdict v) {
  return v == Verdict::kOk ? "\033[32m" : v == Verdict::kWarn ? "\033[33m" : "\033[1;31m";
}

void print_text(const std::vector<Finding>& findings, bool color, Output& out) {
  constexpr size_t kIndent = 19;
  const size_t columns = out.columns();
  for (const Finding& f : findings) {
    std::string first = fold_line(fmt::format("{:<5} {:<12} {}", verdict_name(f.verdict), f.topic, f.answer),
                                  kIndent, columns);
    if (color) {
      first.insert(verdict_name(f.verdict).size(), "\033[0m");
      first.insert(0, color_of(f.verdict));
    }
    out.write(first + "\n");
    if (!f.evidence.empty())
      out.write(fold_line(std::string(kIndent, ' ') + plain_text(f.evidence), kIndent, columns) + "\n");
    if (!f.remedy.empty())
      out.write(fold_line(fmt::format("{:{}}remedy: {}", "", kIndent, f.remedy), kIndent, columns) + "\n");
  }
}

void print_json(const std::vector<Finding>& findings, Output& out) {
  for (const Finding& f : findings) {
    out.write(JsonLine("finding")
                  .text("verdict", verdict_name(f.verdict))
                  .text("topic", f.topic)
                  .text("answer", f.answer)
                  .text("evidence", f.evidence)
                  .text("remedy", f.remedy)
                  .end());
  }
}

ExitCode run_doctor(const DoctorOptions& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  const auto capture = open_for_verb(o.input, diagnostics, shown_or_all(ShownNotices::kNone, o.input));
  if (!capture) return kExitInput;
  if (!is_recording(*capture, diagnostics)) return kExitUsage;
  const std::vector<Finding> findings = examine(*capture);
  const auto count = [&](Verdict v) {
    return static_cast<uint64_t>(
        std::ranges::count_if(findings, [&](const Finding& f) { return f.verdict == v; }));
  };
  auto out = Output::open("-");
  if (!out) return kExitInput;
  const uint64_t bad = count(Verdict::kBad);
  const uint64_t warn = count(Verdict::kWarn);
  if (o.format == "jsonl") {
    print_json(findings, *out);
    out->write(
        JsonLine("summary").number("ok", count(Verdict::kOk)).number("warn", warn).number("bad", bad).end());
  } else {
    print_text(findings, wants_color(o.input.color, out->is_terminal()), *out);
    out->write(fmt::format("{} ok, {} warn, {} bad\n", count(Verdict::kOk), warn, bad));
  }
  return bad != 0 || (o.strict && warn != 0) ? kExitErrors : kExitOk;
}

}  // namespace

RunVerb add_doctor(CLI::App& app) {
  auto o = std::make_shared<DoctorOptions>();
  CLI::App* verb = app.add_subcommand(
      "doctor", "before decoding: is text complete, were changes recorded, do clocks agree");
  add_input_options(*verb, o->input);
  verb->add_flag("--strict", o->strict, "exit status 3 for warnings, too");
  verb->add_option("--format", o->format, "text or jsonl: one JSON object a line")
      ->check(CLI::IsMember({"text", "jsonl"}));
  return [o] { return run_doctor(*o); };
}

}  // namespace asof
