// asof branches: every taken branch, for compilers and binary optimizers that learn from profiles, or as a
// table. Streams one after the other; the same output for every -j.
#include "tools/cli/flow_found.h"
#include "tools/cli/matches.h"
#include "tools/cli/progress.h"
#include "tools/cli/task_options.h"
#include "tools/cli/verbs.h"
#include "tools/output/output.h"
#include "tools/profile/branch_count.h"
#include "tools/profile/branch_writer.h"
#include "tools/profile/file_text.h"

namespace asof {
namespace {

struct BranchesText {
  InputOptions input;
  DecodeChoice choice;
  TaskText tasks;
  std::string output, format = "csv", dsos, time, base;
  bool as_in_file = false;
};

std::unique_ptr<BranchWriter> make_writer(const BranchesText& o, const Capture& capture, BranchNames& names,
                                          Addr base, Output& out) {
  const auto write = [&out](std::string_view text) { out.write(text); };
  if (o.format == "perf-script") return make_perf_script_writer(capture, names, write);
  return make_bolt_writer(names, base, write);
}

struct WantedBranches {
  TimeBounds time{};
  TaskChoice tasks{};
  Addr base = 0;
};

// Whether there were any.
Result<bool> write_branches(const BranchesText& o, const Capture& capture, const WantedBranches& wanted,
                            Output& out, FlowFound& found) {
  ProgressBar bar(o.choice.progress, "branches");
  const auto run = [&](ChunkConsumer& consumer) {
    FlowWatch watch(consumer, found);
    return run_pipeline(capture, o.choice.pipeline, ChunkOrder::kByStream, watch, bar.callback());
  };
  const auto write = [&out](std::string_view text) { out.write(text); };
  if (o.format == "csv" && !wanted.tasks.any()) {
    CountedBranches branches(capture, split_list(o.dsos), wanted.time);
    if (const auto done = run(branches); !done) return std::unexpected(done.error());
    branches.counts().write_csv(write);
    return true;
  }
  BranchNames names(capture, split_list(o.dsos));
  BranchCounts counts;
  const auto writer = o.format == "csv" ? nullptr : make_writer(o, capture, names, wanted.base, out);
  FileText files(capture);
  bool any = false;
  TakenBranches branches(capture, wanted.time, wanted.tasks, [&](const TakenBranch& b) {
    any = true;
    writer ? writer->take(b) : counts.add(b, names);
  });
  if (o.as_in_file) branches.keep_only([&files](const Block& b) { return files.begin_in_file(b); });
  if (const auto done = run(branches); !done) return std::unexpected(done.error());
  writer ? writer->finish() : counts.write_csv(write);
  return any;
}

ExitCode run_branches(BranchesText& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  const auto base = o.base.empty() ? std::optional<uint64_t>(0) : parse_hex(o.base);
  if (!base) {
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset,
                       "--base: '" + o.base + "' is no hexadecimal number", "as in --base 555555554000"});
    return kExitUsage;
  }
  if (o.as_in_file && o.format == "csv") {
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset,
                       "--as-in-file is for profiles, not for the table",
                       "use it with --format perf-script or bolt-preagg"});
    return kExitUsage;
  }
  auto tasks = read_tasks(o.tasks, o.choice.pipeline);
  if (!tasks) {
    diagnostics.error(tasks.error());
    return kExitUsage;
  }
  WantedBranches wanted{.tasks = std::move(*tasks), .base = *base};
  const auto capture = open_for_verb(o.input, diagnostics, ShownNotices::kAll, &o.choice);
  if (!capture) return kExitInput;
  if (!take_time(o.time, *capture, diagnostics, wanted.time)) return kExitUsage;
  o.choice.pipeline.time = wanted.time;
  auto out = Output::open(o.output);
  if (!out) {
    diagnostics.error(out.error());
    return kExitInput;
  }
  warn_of_dsos(*capture, split_list(o.dsos), diagnostics);
  warn_of_tasks(*capture, wanted.tasks, diagnostics);
  FlowFound found(*capture, o.choice, wanted.time);
  const auto any = write_branches(o, *capture, wanted, *out, found);
  if (!any) {
    diagnostics.error(any.error());
    return kExitInput;
  }
  if (wanted.tasks.any() && !*any && !interrupted()) warn_of_idle_tasks(wanted.tasks, diagnostics);
  if (!flush_output(*out, diagnostics)) return kExitInput;
  return found.status(diagnostics);
}

}  // namespace

RunVerb add_branches(CLI::App& app) {
  auto o = std::make_shared<BranchesText>();
  CLI::App* verb = app.add_subcommand("branches", "taken branches, for AutoFDO, BOLT and as a table");
  add_input_options(*verb, o->input);
  add_decode_options(*verb, o->choice, o->input.capture);
  const std::string output = "Output";
  add_output_option(*verb, o->output);
  verb->add_option("--format", o->format, "csv: counts by pair; perf-script; bolt-preagg")
      ->check(CLI::IsMember({"csv", "perf-script", "bolt-preagg"}))
      ->capture_default_str()
      ->group(output);
  verb->add_option("--base", o->base,
                   "bolt-preagg: hexadecimal, taken off every address: where a file that can be loaded "
                   "anywhere was loaded")
      ->type_name("ADDR")
      ->group(output);
  verb->add_flag("--as-in-file", o->as_in_file,
                 "leave out code that leads elsewhere than in its file, which readers of the profile look at")
      ->group(output);
  const std::string filter = "Filters";
  verb->add_option("--dsos,--dso", o->dsos, "only branches in, into or out of these files")
      ->type_name("LIST")
      ->group(filter);
  add_task_options(*verb, o->tasks);
  add_time_option(*verb, o->time);
  return [o] { return run_branches(*o); };
}

}  // namespace asof
