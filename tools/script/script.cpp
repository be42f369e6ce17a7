// asof script: perf script's options and lines, for tools that read those. The flow becomes perf's synthesised events,
// stream by stream (flow_records.h); they are put in order of time (merge.h) and printed (script_printer.h). The output
// is the same for every -j; memory is that of the records that wait for their turn.
#include <fmt/format.h>

#include <atomic>

#include "decoder/calls/cycle_walk.h"
#include "tools/cli/decode_run.h"
#include "tools/cli/matches.h"
#include "tools/cli/verbs.h"
#include "tools/output/chunk_window.h"
#include "tools/output/coverage.h"
#include "tools/output/format.h"
#include "tools/output/merge.h"
#include "tools/output/output.h"
#include "tools/output/tally.h"
#include "tools/script/flow_records.h"
#include "tools/script/quick_script.h"
#include "tools/script/script_choice.h"
#include "tools/script/script_printer.h"

namespace asof {
namespace {

void tell_printed(ScriptPrinter& printer, Diagnostics& diagnostics) {
  for (const Notice& n : printer.take_notices()) diagnostics.notice(n);
  if (printer.trace_text_failure()) diagnostics.warn(*printer.trace_text_failure());
  if (printer.bad_samples() == 0) return;
  diagnostics.warn({Code::kRecordTooShort, "", Error::kNoOffset,
                    fmt::format("{} of the recording too short for the fields that its event says",
                                format_plural(printer.bad_samples(), "sample is", "samples are")),
                    "'asof events --type SAMPLE' lists them"});
}

class ScriptConsumer final : public ChunkConsumer {
 public:
  ScriptConsumer(const Capture& capture, const ScriptFormat& format, const ScriptSelection& selection,
                 Output& out, Diagnostics& diagnostics, const DecodeChoice& choice)
      : capture_(capture),
        out_(out),
        diagnostics_(diagnostics),
        time_(selection.time),
        max_errors_(choice.max_errors),
        filtered_(selection.any()),
        wants_cycles_(format.has(kScriptIpc)),
        coverage_(capture, choice.pipeline),
        printer_(capture, format, selection, [&out](std::string_view text) { out.write(text); }),
        side_band_(capture, format.side_band),
        merger_(capture.streams.size() + (format.side_band.any() ? 1 : 0),
                [this](std::string_view records) { printer_.take(records); }) {
    printer_.show(side_band_);
    // As in perf, the trace comes behind the records if it has no times.
    if (format.itrace.timeless) side_band_.add_to(merger_, capture.streams.size(), kTimeMax);
    CodeOfBlocks* const code = format.wants_code() ? &code_ : nullptr;
    if (code != nullptr) printer_.show(code_);
    for (const Stream& s : capture.streams)
      flows_.emplace_back(capture, s, format.itrace, format.wants_stacks(), format.wants_branches(), code);
  }

  void deliver(Chunk& chunk, const Stream&, Prepared*) override {
    const auto part = chunk_within(chunk, time_);
    const Chunk& counted = part ? *part : chunk;
    Tally tally;
    count_steps(counted, tally);
    coverage_.add(chunk, tally.ips.count);
    any_cycles_ = any_cycles_ || has_cycles(chunk);
    TimedText records;
    flows_[chunk.stream].take(chunk, records);
    side_band_.add_to(merger_, capture_.streams.size(), chunk.segment_start);
    merger_.add(chunk.stream, std::move(records), chunk.segment_start);
    if (interrupted() || out_.closed() || coverage_.errors() > max_errors_) stopped_ = true;
  }
  bool stopped() const override { return stopped_; }

  void finish() {
    finish_flows(flows_, merger_);
    if (!stopped_) side_band_.add_to(merger_, capture_.streams.size(), kTimeMax);
    merger_.finish();
    out_.flush();
    if (filtered_)
      coverage_.selected(fmt::format("{} selected", format_plural(printer_.lines(), "line", "lines")),
                         printer_.lines() != 0);
    tell_printed(printer_, diagnostics_);
    tell_causes(coverage_, diagnostics_);
    if (wants_cycles_ && !any_cycles_) diagnostics_.warn(no_cycles(capture_));
    if (merger_.forced() != 0) {
      diagnostics_.note(
          "the order of lines over CPUs is approximate in places: a segment was too long to hold back the "
          "others");
    }
  }
  Coverage& coverage() { return coverage_; }

 private:
  const Capture& capture_;
  Output& out_;
  Diagnostics& diagnostics_;
  TimeBounds time_;
  uint64_t max_errors_;
  bool filtered_, wants_cycles_, any_cycles_ = false;
  Coverage coverage_;
  CodeOfBlocks code_;
  std::vector<FlowRecords> flows_;  // by stream
  ScriptPrinter printer_;
  SideBandLines side_band_;
  Merger merger_;
  std::atomic<bool> stopped_ = false;
};

// --no-itrace: nothing is decoded.
ExitCode print_samples(const Capture& capture, const ScriptFormat& format, const ScriptSelection& selection,
                       Output& out, Diagnostics& diagnostics) {
  ScriptPrinter printer(capture, format, selection, [&out](std::string_view text) { out.write(text); });
  SideBandLines lines(capture, format.side_band);
  printer.show(lines);
  printer.take(lines.take(kTimeMax).text);
  out.flush();
  if (!flush_output(out, diagnostics)) return kExitInput;
  tell_printed(printer, diagnostics);
  diagnostics.note(fmt::format("{}; nothing of the trace, as --no-itrace asks for",
                               format_plural(printer.lines(), "line", "lines")));
  return kExitOk;
}

ExitCode print_script(const Capture& capture, const ScriptChoice& o, const ScriptFormat& format,
                      const ScriptSelection& selection, Diagnostics& diagnostics) {
  auto out = Output::open(o.output);
  if (!out) {
    diagnostics.error(out.error());
    return kExitInput;
  }
  if (format.itrace.quick != 0) return print_quick(capture, o.choice, format, selection, *out, diagnostics);
  if (!format.trace) return print_samples(capture, format, selection, *out, diagnostics);
  ScriptConsumer consumer(capture, format, selection, *out, diagnostics, o.choice);
  const ChunkOrder order = format.itrace.timeless ? ChunkOrder::kByStream : ChunkOrder::kByTime;
  return finish_decode(run_with_progress(consumer, capture, o.choice, "script", order), consumer, o.choice,
                       *out, diagnostics);
}

ExitCode run_script(ScriptChoice& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  const auto format = script_format(o);
  auto selection = script_selection(o);
  if (!format || !selection) {
    diagnostics.error(!format ? format.error() : selection.error());
    return kExitUsage;
  }
  auto capture = open_for_verb(o.input, diagnostics, ShownNotices::kAll, format->trace ? &o.choice : nullptr);
  if (!capture) return kExitInput;
  // Sync points of other machines are no event of perf's.
  ScriptFormat shown = *format;
  shown.itrace.power = shown.itrace.power && code_machine(capture->machine) == CodeMachine::kX86;
  // perf shows names without parameters.
  if (!o.input.no_demangle) capture->symbols.show(NameStyle::kWithoutParameters);
  if (!take_time(o.time, *capture, diagnostics, selection->time)) return kExitUsage;
  if (const auto ok = ticks_to_time(trace_clock(*capture), shown.itrace); !ok) {
    diagnostics.error(ok.error());
    return kExitUsage;
  }
  if (const auto ok = fit_to_recording(*capture, shown); !ok) {
    diagnostics.error(ok.error());
    return kExitUsage;
  }
  for (const std::string_view why : format->itrace.without_effect)
    diagnostics.note(fmt::format("--itrace: {}", why));
  // Callers and periods depend on what ran before: only what none of them needs is not decoded.
  const bool alone = !format->wants_stacks() && !format->wants_branches() && !format->itrace.instructions;
  if (alone) {
    o.choice.pipeline.time = selection->time;
    if (!selection->tasks.tids.empty()) o.choice.pipeline.tids = selection->tasks.tids;
  }
  o.choice.pipeline.decode.cycles = format->has(kScriptIpc);
  warn_of_tasks(*capture, selection->tasks.pids, selection->tasks.tids, diagnostics);
  warn_of_symbols(*capture, selection->symbols, diagnostics);
  warn_of_symbols(*capture, format->graph_functions, diagnostics);
  warn_of_dsos(*capture, selection->dsos, diagnostics);
  warn_of_comms(names_of_threads(*capture), selection->tasks.comms, "thread", diagnostics);
  return print_script(*capture, o, shown, *selection, diagnostics);
}

void add_output(CLI::App& verb, ScriptChoice& o) {
  const std::string group = "Output";
  add_output_option(verb, o.output);
  verb.add_option(
          "-F,--fields", o.fields,
          "comm,tid,pid,time,cpu,event,ip,sym,dso,addr,symoff,srcline,period,flags,insn,insnlen,synth,"
          "callindent,brstack,brstacksym,brstackoff,brstackinsn,brstackinsnlen,disasm,ipc,misc; of the "
          "recording's own samples also trace,tod,weight,ins_lat,iregs,uregs,phys_addr,data_page_size,"
          "code_page_size,bpf-output; +f and -f change the default; hw:, sw:, trace:, raw:, break:, synth: "
          "in "
          "front: of these events")
      ->type_name("LIST")
      ->allow_extra_args(false)
      ->group(group);
  verb.add_option(
          "--itrace", o.itrace,
          "i[N[ns|us|ms|i|t]] instructions every N (100us), b branches, c calls, r returns, x "
          "transactions, w "
          "ptwrite, p power, o PEBS, I interrupts (Event Trace), e errors (e-o-l: no overflows, no losses), "
          "g[N] call chains, l[N] last branches, G[N] and L[N] these for the recording's own samples, "
          "sN skip N events, Z no times, stream by stream, q only addresses in the trace (quick, no code "
          "is walked; qq: of PSB+ alone), A IPC wherever there are more cycles (default: "
          "cxwpoIe)")
      ->type_name("LETTERS")
      ->group(group);
  verb.add_flag("--no-itrace", o.no_itrace, "only the recording's own samples: nothing is decoded")
      ->group(group);
  verb.add_option("--max-stack", o.max_stack, "entries of a call chain at most")
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  verb.add_option("--stop-bt", o.stop_bt, "call chains end at these functions")
      ->type_name("LIST")
      ->group(group);
  verb.add_option("--max-blocks", o.max_blocks,
                  "blocks of code that brstackinsn shows at most (default: all)")
      ->type_name("N")
      ->group(group);
  verb.add_flag("--ns", o.nanoseconds, "times with nanoseconds")->group(group);
  verb.add_flag("--reltime", o.relative, "times from the first line")->group(group);
  verb.add_flag("--deltatime", o.deltas, "times from the line before")->group(group);
  verb.add_flag("--inline", o.inlined, "inlined functions in call chains")->group(group);
  verb.add_flag("-G,--hide-call-graph", o.hide_chains, "no call chains")->group(group);
  verb.add_flag("--show-mmap-events", o.side_band.mappings, "records of mappings as lines")->group(group);
  verb.add_flag("--show-task-events", o.side_band.tasks, "records of names, forks and exits")->group(group);
  verb.add_flag("--show-switch-events", o.side_band.switches, "records of context switches")->group(group);
  verb.add_flag("--show-lost-events", o.side_band.losses, "records of losses")->group(group);
  verb.add_flag("--show-bpf-events", o.side_band.bpf, "records of BPF programs and other code")->group(group);
  verb.add_flag("--show-namespace-events", o.side_band.namespaces, "records of namespaces")->group(group);
  verb.add_flag("--show-cgroup-events", o.side_band.cgroups, "records of cgroups")->group(group);
  verb.add_flag("--show-text-poke-events", o.side_band.pokes, "records of changes of text, and of code")
      ->group(group);
  verb.add_flag("--call-trace", o.call_trace, "calls, indented")->group(group);
  verb.add_flag("--call-ret-trace", o.call_return_trace, "calls and returns, indented")->group(group);
  // A flag that may have a value behind "=": the next word is not its value.
  verb.add_flag("--insn-trace{raw}", o.insn_trace,
                "every instruction with its bytes, or disassembled (=disasm)")
      ->group(group);
}

}  // namespace

RunVerb add_script(CLI::App& app) {
  auto o = std::make_shared<ScriptChoice>();
  CLI::App* verb =
      app.add_subcommand("script", "what perf script prints of a trace, for tools that read that");
  add_input_options(*verb, o->input);
  add_debuginfod_option(*verb, o->input);
  add_decode_options(*verb, o->choice, o->input.capture);
  add_output(*verb, *o);
  const std::string filter = "Filters";
  add_task_options(*verb, o->tasks, "-c,--comms,--comm");
  add_time_option(*verb, o->time);
  verb->add_option("-S,--symbols", o->symbols, "only in these functions; patterns as in a shell: 'sched*'")
      ->type_name("LIST")
      ->group(filter);
  verb->add_option("--dsos,--dso", o->dsos, "only in these files")->type_name("LIST")->group(filter);
  verb->add_option("--graph-function", o->graph_functions, "only these functions and what they call")
      ->type_name("LIST")
      ->group(filter);
  return [o] { return run_script(*o); };
}

}  // namespace asof
