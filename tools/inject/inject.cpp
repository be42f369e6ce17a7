// asof inject: a perf.data whose trace is replaced by samples made of it, for perf report, perf annotate and whatever
// else reads samples. The letters of --itrace are those of perf inject.
#include <fmt/format.h>

#include <atomic>
#include <optional>

#include "tools/cli/decode_run.h"
#include "tools/cli/matches.h"
#include "tools/cli/verbs.h"
#include "tools/disasm/disasm.h"
#include "tools/inject/injected_folder.h"
#include "tools/inject/sample_writer.h"
#include "tools/output/chunk_window.h"
#include "tools/output/format.h"
#include "tools/output/tally.h"
#include "tools/script/flow_records.h"
#include "tools/script/script_event_names.h"

namespace asof {
namespace {

struct InjectText {
  InputOptions input;
  DecodeChoice choice;
  std::string output, itrace = "ibx", time;
  bool autofdo = false;
};

class InjectConsumer final : public ChunkConsumer {
 public:
  InjectConsumer(const Capture& capture, const ScriptItrace& itrace, TimeBounds time, SampleWriter& writer,
                 const DecodeChoice& choice)
      : time_(time),
        max_errors_(choice.max_errors),
        coverage_(capture, choice.pipeline),
        merger_(capture.streams.size(), [&writer](std::string_view records) { writer.take(records); }) {
    for (const Stream& s : capture.streams)
      flows_.emplace_back(capture, s, itrace, itrace.chain != 0, itrace.last_branches != 0, nullptr);
  }

  void deliver(Chunk& chunk, const Stream&, Prepared*) override {
    const auto part = chunk_within(chunk, time_);
    const Chunk& counted = part ? *part : chunk;
    Tally tally;
    count_steps(counted, tally);
    coverage_.add(chunk, tally.ips.count);
    TimedText records;
    flows_[chunk.stream].take(chunk, records);
    merger_.add(chunk.stream, std::move(records), chunk.segment_start);
    if (interrupted() || coverage_.errors() > max_errors_) stopped_ = true;
  }
  bool stopped() const override { return stopped_; }
  void finish() {
    finish_flows(flows_, merger_);
    merger_.finish();
  }
  Coverage& coverage() { return coverage_; }

 private:
  TimeBounds time_;
  uint64_t max_errors_;
  Coverage coverage_;
  std::vector<FlowRecords> flows_;  // by stream
  Merger merger_;
  std::atomic<bool> stopped_ = false;
};

std::unexpected<Error> usage(std::string reason, std::string hint) {
  return fail(Code::kBadOption, "", Error::kNoOffset, std::move(reason), std::move(hint));
}

Result<ScriptItrace> read_letters(const InjectText& o) {
  auto itrace = parse_script_itrace(o.itrace);
  if (!itrace) return itrace;
  if (itrace->quick != 0)
    return usage("--itrace: letter 'q' is not taken: samples are made of the flow",
                 "'asof script --itrace=iq' prints the addresses in the trace");
  if (!itrace->instructions && !itrace->branches && !itrace->transactions && !itrace->ptwrite &&
      !itrace->power)
    return usage("--itrace: nothing to make samples of",
                 "there are i, b, c, r, x, w and p, and e beside them");
  return itrace;
}

Result<void> check_source(const Capture& capture) {
  if (capture.blocks)
    return usage("a block stream has no records of perf to put samples beside",
                 "give the perf.data it was made from");
  if (!capture.perf)
    return usage(fmt::format("a {} has no records of perf to put samples beside", capture.kind),
                 "give the perf.data that perf recorded");
  if (capture.perf->swapped())
    return usage("this recording is of a machine of the other byte order", "use 'asof script'");
  return {};
}

ExitCode inject(const InjectText& o, const Capture& capture, const ScriptItrace& itrace, TimeBounds time,
                Diagnostics& diagnostics) {
  constexpr uint64_t kExclude = 7U << 4U;  // exclude_user, exclude_kernel, exclude_hv
  uint64_t exclude = 0;
  for (const PerfAttr& a : capture.perf->attrs()) {
    if (a.name.starts_with("intel_pt") || a.name.starts_with("cs_etm")) exclude = a.flags & kExclude;
  }
  const auto events = synthesised_events(itrace, exclude, event_modifiers(capture));
  // AutoFDO reads files, and no copies of kcore.
  const auto output = o.autofdo ? Result<std::string>(o.output) : prepare_output(o.output, *capture.perf);
  if (!output) {
    diagnostics.error(output.error());
    return kExitInput;
  }
  PerfDataFile file(*output, *capture.perf, events);
  if (!file.begin()) {
    diagnostics.error(file.finish().error());
    return kExitInput;
  }
  capture.perf->for_each([&](const Record& r) {
    if (is_kept(r) && (!o.autofdo || is_for_autofdo(r))) file.side_band(r);
    return true;
  });
  SampleWriter writer(capture, itrace, events, time, file);
  std::optional<MappedText> mapped;
  if (o.autofdo) writer.only_in(mapped.emplace(capture));
  InjectConsumer consumer(capture, itrace, time, writer, o.choice);
  const auto done = run_with_progress(consumer, capture, o.choice, "inject");
  consumer.finish();
  const auto kept = done ? file.finish() : done;
  if (!kept) {
    diagnostics.error(kept.error());
    return kExitInput;
  }
  tell_stopped(consumer.coverage(), o.choice);
  tell_causes(consumer.coverage(), diagnostics);
  diagnostics.note(fmt::format(
      "{}: {}; {}", o.output,
      format_plural(writer.samples(), "sample", "samples") +
          (writer.left_out() == 0 ? "" : fmt::format(" ({} more in no file)", writer.left_out())) +
          (writer.errors() == 0 ? "" : ", " + format_plural(writer.errors(), "error", "errors")),
      consumer.coverage().line()));
  return exit_code_for(consumer.coverage(), o.choice);
}

ExitCode run_inject(InjectText& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  auto itrace = read_letters(o);
  if (!itrace) {
    diagnostics.error(itrace.error());
    return kExitUsage;
  }
  if (itrace->pebs || itrace->interrupts || itrace->sample_chain != 0 || itrace->sample_branches != 0 ||
      itrace->timeless)
    diagnostics.note(
        "--itrace: o, I, G, L and Z change nothing here: 'asof script' prints what they ask for");
  for (const std::string_view why : itrace->without_effect)
    diagnostics.note(fmt::format("--itrace: {}", why));
  if (itrace->approx_ipc) diagnostics.note("--itrace: A changes nothing: samples have no IPC");
  if (o.output.empty() || o.output == "-") {
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset, "inject writes a file", "-o out.data"});
    return kExitUsage;
  }
  const auto capture = open_for_verb(o.input, diagnostics, ShownNotices::kAll, &o.choice);
  if (!capture) return kExitInput;
  if (const auto ok = check_source(*capture); !ok) {
    diagnostics.error(ok.error());
    return kExitUsage;
  }
  note_recorded_samples(*capture, diagnostics);
  // Sync points of other machines are no event of perf's.
  itrace->power = itrace->power && code_machine(capture->machine) == CodeMachine::kX86;
  if (const auto ok = ticks_to_time(trace_clock(*capture), *itrace); !ok) {
    diagnostics.error(ok.error());
    return kExitUsage;
  }
  TimeBounds time;
  if (!take_time(o.time, *capture, diagnostics, time)) return kExitUsage;
  return inject(o, *capture, *itrace, time, diagnostics);
}

}  // namespace

RunVerb add_inject(CLI::App& app) {
  auto o = std::make_shared<InjectText>();
  CLI::App* verb = app.add_subcommand("inject", "a perf.data with samples instead of trace, for perf report");
  add_input_options(*verb, o->input);
  add_decode_options(*verb, o->choice, o->input.capture);
  verb->add_option("-o,--output", o->output,
                   "perf.data to write; a folder if the recording has copies of kcore")
      ->type_name("FILE")
      ->group("Output");
  verb->add_option("--itrace", o->itrace,
                   "i[N[ns|us|ms|i|t]] instructions every N (100us), b branches, c calls, r returns, x "
                   "transactions, w ptwrite, p power, e errors, g[N] call chains, l[N] last branches, sN "
                   "skip N events")
      ->capture_default_str()
      ->type_name("LETTERS")
      ->group("Output");
  verb->add_flag(
          "--autofdo", o->autofdo,
          "only what create_llvm_prof reads: no records that it does not know, samples and branches in "
          "mapped files")
      ->group("Output");
  add_time_option(*verb, o->time);
  return [o] { return run_inject(*o); };
}

}  // namespace asof
