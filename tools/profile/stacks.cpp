// asof stacks: folded stacks (folded_stacks.h), for flame graphs, or as a profile (firefox_profile.h).
#include "tools/cli/flow_found.h"
#include "tools/cli/progress.h"
#include "tools/cli/task_options.h"
#include "tools/cli/verbs.h"
#include "tools/output/output.h"
#include "tools/profile/firefox_profile.h"
#include "tools/profile/folded_stacks.h"

namespace asof {
namespace {

struct StacksText {
  InputOptions input;
  DecodeChoice choice;
  TaskText tasks;
  std::string output, weight = "ns", by = "all", format, time;
  bool versions = false;
  SourceChoice source;
};

StackWeight weight_named(const std::string& word) {
  if (word == "instructions") return StackWeight::kInstructions;
  return word == "calls" ? StackWeight::kCalls : StackWeight::kNanoseconds;
}

ExitCode run_stacks(StacksText& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  const auto tasks = read_tasks(o.tasks, o.choice.pipeline);
  if (!tasks) {
    diagnostics.error(tasks.error());
    return kExitUsage;
  }
  const auto capture = open_for_verb(o.input, diagnostics, ShownNotices::kAll, &o.choice);
  if (!capture) return kExitInput;
  warn_of_tasks(*capture, *tasks, diagnostics);
  if (timeline_clock(*capture) == TimelineSummary::Clock::kInstructions && o.weight == "ns") {
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset, "this capture has no time to weigh stacks by",
                       "use --weight instructions"});
    return kExitUsage;
  }
  TimelineOptions options;
  options.pipeline = o.choice.pipeline;
  options.thread_tracks = o.by == "thread" || !has_cpu_streams(*capture);
  options.cpu_tracks = !options.thread_tracks;
  options.detail = o.source.any();
  choose_threads(*tasks, *capture, options);
  // Everything is decoded: callers can have begun before the requested time.
  TimeBounds time;
  if (!take_time(o.time, *capture, diagnostics, time)) return kExitUsage;
  options.counted = options.detail_time = time;
  auto out = Output::open(o.output);
  if (!out) {
    diagnostics.error(out.error());
    return kExitInput;
  }
  FlowErrors errors(*capture, o.choice, time);
  errors.watch(options);
  FoldedStacks stacks({.tracks = o.by != "all", .versions = o.versions, .time = time, .source = o.source});
  Result<TimelineSummary> summary;
  {
    ProgressBar bar(o.choice.progress, "stacks");
    summary = run_timeline(*capture, options, stacks, bar.callback());
  }
  if (!summary) {
    diagnostics.error(summary.error());
    return kExitInput;
  }
  const auto write = [&](std::string_view text) { out->write(text); };
  if (o.format == "firefox" || (o.format.empty() && o.output.ends_with(".json"))) {
    FirefoxProfile profile(stacks.names(), weight_named(o.weight), o.by != "all");
    stacks.visit([&](std::span<const uint32_t> stack, const Cost& own) { profile.add(stack, own); });
    profile.write(write);
  } else {
    stacks.write(weight_named(o.weight), write);
  }
  if (!flush_output(*out, diagnostics)) return kExitInput;
  for (const Notice& n : stacks.take_notices()) diagnostics.notice(n);
  if (tasks->any() && stacks.empty() && !interrupted()) warn_of_idle_tasks(*tasks, diagnostics);
  if (const std::string note = stacks.shallow_note(); !note.empty()) diagnostics.note(note);
  errors.tell(diagnostics);
  return errors.judge(exit_code_for(*summary), diagnostics);
}

}  // namespace

RunVerb add_stacks(CLI::App& app) {
  auto o = std::make_shared<StacksText>();
  CLI::App* verb = app.add_subcommand("stacks", "stacks added up, for flame graphs or Firefox's profiler");
  add_input_options(*verb, o->input);
  add_decode_options(*verb, o->choice, o->input.capture);
  const std::string output = "Output";
  add_output_option(*verb, o->output);
  verb->add_option("--format", o->format,
                   "folded; firefox: a profile for profiler.firefox.com (default: by the file's name, .json)")
      ->check(CLI::IsMember({"folded", "firefox"}))
      ->group(output);
  verb->add_option("--weight", o->weight, "of a stack: own ns, own instructions, or calls")
      ->check(CLI::IsMember({"ns", "instructions", "calls"}))
      ->capture_default_str()
      ->group(output);
  verb->add_option("--by", o->by, "all; cpu or thread: its name as outermost frame")
      ->check(CLI::IsMember({"all", "cpu", "thread"}))
      ->capture_default_str()
      ->group(output);
  verb->add_flag("--versions", o->versions, "versions of a function's text as frames of their own")
      ->group(output);
  add_source_options(*verb, o->input, o->source);
  add_task_options(*verb, o->tasks);
  add_time_option(*verb, o->time);
  return [o] { return run_stacks(*o); };
}

}  // namespace asof
