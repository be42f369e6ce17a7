// asof coverage: which code ran, for viewers of coverage: lcov, Cobertura, drcov. Counts what is certain or proved.
#include <fmt/format.h>

#include "tools/cli/flow_found.h"
#include "tools/cli/matches.h"
#include "tools/cli/progress.h"
#include "tools/cli/task_options.h"
#include "tools/cli/verbs.h"
#include "tools/coverage/coverage_writers.h"
#include "tools/output/format.h"
#include "tools/output/output.h"

namespace asof {
namespace {

struct CoverageText {
  InputOptions input;
  DecodeChoice choice;
  TaskText tasks;
  std::string output, format, time;
  bool uncertain = false, versions = false, touched = false;
};

std::string format_of(const std::string& file) {
  if (file.ends_with(".xml")) return "cobertura";
  return file.ends_with(".drcov") || file.ends_with(".log") ? "drcov" : "lcov";
}

void say_what_counts(const CoverageText& o, const ExecutedCode& code, Diagnostics& diagnostics) {
  std::string text = o.uncertain
                         ? fmt::format("all {} instructions count, also where it is not certain what ran",
                                       format_count(code.instructions()))
                         : fmt::format("{} instructions count, which are certain or proved",
                                       format_count(code.instructions()));
  if (code.left_out() != 0)
    text +=
        fmt::format("; {} are neither and do not (--uncertain counts them)", format_count(code.left_out()));
  diagnostics.note(text);
  if (code.gaps() != 0)
    diagnostics.note(fmt::format("the flow has {}: what is not covered may have run there",
                                 format_plural(code.gaps(), "gap", "gaps")));
}

void say_what_is_missing(const LineCoverage& lines, Diagnostics& diagnostics) {
  if (lines.instructions_without_line == 0) return;
  constexpr size_t kShown = 5;
  std::string names;
  size_t n = 0;
  for (const std::string& name : lines.without_lines) {
    if (n++ == kShown) break;
    names += (names.empty() ? "" : ", ") + name;
  }
  if (lines.without_lines.size() > kShown)
    names += fmt::format(" and {} more", lines.without_lines.size() - kShown);
  diagnostics.note(fmt::format("{} instructions have no source line{}{}",
                               format_count(lines.instructions_without_line),
                               names.empty() ? "" : ": no debug information of ", names));
}

void write_coverage(const CoverageText& o, const Capture& capture, const ExecutedCode& code, Output& out,
                    Diagnostics& diagnostics) {
  const auto write = [&out](std::string_view text) { out.write(text); };
  SourceLines lines(capture);
  if (o.format == "drcov") {
    write_drcov(drcov_modules(capture, code.all(), o.versions, lines), write);
  } else {
    const std::string_view rule = o.uncertain ? "decoded, certain or not" : "certain or proved, nothing else";
    const LineCoverage coverage = line_coverage(capture, code.all(), o.touched, lines);
    o.format == "cobertura" ? write_cobertura(coverage, rule, write) : write_lcov(coverage, rule, write);
    say_what_is_missing(coverage, diagnostics);
  }
  for (const Notice& n : lines.take_notices()) diagnostics.notice(n);
}

ExitCode run_coverage(CoverageText& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  if (o.format.empty()) o.format = format_of(o.output);
  const auto tasks = read_tasks(o.tasks, o.choice.pipeline);
  if (!tasks) {
    diagnostics.error(tasks.error());
    return kExitUsage;
  }
  const auto capture = open_for_verb(o.input, diagnostics, ShownNotices::kAll, &o.choice);
  if (!capture) return kExitInput;
  TimeBounds time;
  if (!take_time(o.time, *capture, diagnostics, time)) return kExitUsage;
  o.choice.pipeline.time = time;
  auto out = Output::open(o.output);
  if (!out) {
    diagnostics.error(out.error());
    return kExitInput;
  }
  warn_of_tasks(*capture, *tasks, diagnostics);
  // A line counts as often as the instruction of it that ran most: counts of versions cannot be added for a format that
  // has no place for them.
  const bool versions = o.versions && o.format != "cobertura";
  ExecutedCode code(*capture,
                    {.uncertain = o.uncertain, .versions = versions, .time = time, .tasks = *tasks});
  FlowFound found(*capture, o.choice, time);
  {
    FlowWatch watch(code, found);
    ProgressBar bar(o.choice.progress, "coverage");
    const auto done = run_pipeline(*capture, o.choice.pipeline, ChunkOrder::kByStream, watch, bar.callback());
    if (!done) {
      diagnostics.error(done.error());
      return kExitInput;
    }
  }
  write_coverage(o, *capture, code, *out, diagnostics);
  if (!flush_output(*out, diagnostics)) return kExitInput;
  say_what_counts(o, code, diagnostics);
  if (tasks->any() && code.instructions() + code.left_out() == 0 && !interrupted())
    warn_of_idle_tasks(*tasks, diagnostics);
  return found.status(diagnostics);
}

}  // namespace

RunVerb add_coverage(CLI::App& app) {
  auto o = std::make_shared<CoverageText>();
  CLI::App* verb =
      app.add_subcommand("coverage", "which lines, functions and branches ran, for lcov and others");
  add_input_options(*verb, o->input);
  add_decode_options(*verb, o->choice, o->input.capture);
  add_debuginfod_option(*verb, o->input);
  const std::string output = "Output";
  add_output_option(*verb, o->output);
  verb->add_option("--format", o->format,
                   "lcov, cobertura or drcov (default: by the file's name, .info, .xml or .drcov; else lcov)")
      ->check(CLI::IsMember({"lcov", "cobertura", "drcov"}))
      ->group(output);
  verb->add_flag("--versions", o->versions, "versions of text apart: lcov's tests, drcov's modules")
      ->group(output);
  verb->add_flag("--touched", o->touched, "only source files of which something ran")->group(output);
  verb->add_flag("--uncertain", o->uncertain, "count also what is not certain or proved to have run")
      ->group(output);
  add_task_options(*verb, o->tasks);
  add_time_option(*verb, o->time);
  return [o] { return run_coverage(*o); };
}

}  // namespace asof
