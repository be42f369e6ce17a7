#include "tools/script/script_choice.h"

#include <fmt/format.h>

#include <tuple>

#include "decoder/perf/record_types.h"
#include "tools/cli/matches.h"

namespace asof {
namespace {

std::unexpected<Error> usage(std::string reason, std::string hint = {}) {
  return fail(Code::kBadOption, "", Error::kNoOffset, std::move(reason), std::move(hint));
}

// --call-trace, --call-ret-trace and --insn-trace are perf's abbreviations for fields and --itrace.
Result<void> abbreviations(const ScriptChoice& o, ScriptFormat& format) {
  const int count = int{o.call_trace} + int{o.call_return_trace} + int{!o.insn_trace.empty()};
  if (count == 0) return {};
  if (count > 1) return usage("only one of --call-trace, --call-ret-trace and --insn-trace can be given");
  if (!o.itrace.empty())
    return usage("--itrace does not go with --call-trace, --call-ret-trace and --insn-trace");
  format.nanoseconds = true;
  format.itrace = ScriptItrace();
  std::string fields;
  if (!o.insn_trace.empty()) {
    const std::string& how = o.insn_trace;
    if (how != "raw" && how != "disasm")
      return usage(fmt::format("--insn-trace: '{}' is not taken", how), "there are raw and disasm");
    fields = how == "disasm" ? "-event,-period,+disasm" : "-event,-period,+insn";
    format.itrace.instructions = true;
    format.itrace.by_time = false;
    format.itrace.period = 1;
  } else {
    fields = "-ip,-addr,-event,-period,+callindent";
    if (o.call_return_trace) fields += ",+flags";
    format.itrace.branches = format.itrace.calls = format.itrace.errors = true;
    format.itrace.ptwrite = format.itrace.power = true;
    format.itrace.returns = o.call_return_trace;
    format.pad_files = !o.call_return_trace;
  }
  return change_fields(fields, format.fields);
}

}  // namespace

Result<ScriptFormat> script_format(const ScriptChoice& o) {
  ScriptFormat format;
  format.itrace = default_script_itrace();
  if (!o.itrace.empty()) {
    const auto itrace = parse_script_itrace(o.itrace);
    if (!itrace) return std::unexpected(itrace.error());
    format.itrace = *itrace;
  }
  if (const auto ok = abbreviations(o, format); !ok) return std::unexpected(ok.error());
  for (const std::string& fields : o.fields) {
    if (const auto ok = change_fields(fields, format.fields); !ok) return std::unexpected(ok.error());
  }
  if (o.no_itrace) {
    if (!o.itrace.empty()) return usage("--itrace and --no-itrace exclude each other");
    format.itrace = ScriptItrace();
    format.trace = false;
  }
  if (o.hide_chains) format.itrace.chain = format.itrace.sample_chain = 0;
  format.hide_chains = o.hide_chains;
  format.most_callers = o.max_stack;
  format.most_blocks = o.max_blocks;
  format.stops = split_names(o.stop_bt);
  if (format.itrace.timeless && format.itrace.quick != 0)
    return usage("--itrace: q and Z exclude each other", "-F -time leaves out times");
  if (format.itrace.timeless) {
    format.fields.flow &= ~uint64_t{kScriptTime};
    format.fields.synth &= ~uint64_t{kScriptTime};
  }
  if (format.itrace.last_branches == 0 && format.has(kScriptBrstackinsn | kScriptBrstackinsnlen))
    return usage("the fields brstackinsn and brstackinsnlen need --itrace with the letter l",
                 "as in --itrace i1000il");
  if (o.relative && o.deltas) return usage("--reltime and --deltatime exclude each other");
  format.nanoseconds = format.nanoseconds || o.nanoseconds;
  format.relative = o.relative;
  format.deltas = o.deltas;
  format.inlined = o.inlined;
  format.side_band = o.side_band;
  format.side_band.samples = true;
  format.side_band.cpus = o.choice.pipeline.cpus;
  format.graph_functions = split_names(o.graph_functions);
  if (format.itrace.quick != 0 && (format.wants_stacks() || format.wants_branches()))
    return usage("--itrace: with q the flow is not known: no g, l, callindent and --graph-function",
                 "'asof script' without q decodes it");
  return format;
}

Result<void> fit_to_recording(const Capture& capture, ScriptFormat& format) {
  if (!capture.perf) {
    format.side_band.samples = false;
  } else if (const auto ok = fit_fields(capture.perf->attrs(), !format.hide_chains, format.fields); !ok) {
    return ok;
  }
  const bool samples = format.side_band.samples && capture.record_counts.contains(perf::kSample);
  format.side_band.samples = samples;
  if (!samples) format.itrace.sample_chain = format.itrace.sample_branches = 0;
  if (format.itrace.last_branches == 0 && !samples &&
      format.has(kScriptBrstack | kScriptBrstacksym | kScriptBrstackoff))
    return usage("the fields brstack, brstacksym and brstackoff need --itrace with the letter l",
                 "as in --itrace i1000il");
  if (format.has_any(kScriptTod) && (!capture.perf || !capture.perf->clock_data()))
    return usage("--fields: tod needs a recording that says how its clock and that of the day go together",
                 "record with perf record -k CLOCK_MONOTONIC (or another clock)");
  return {};
}

Result<ScriptSelection> script_selection(const ScriptChoice& o) {
  ScriptSelection s;
  auto tasks = read_tasks(o.tasks);
  if (!tasks) return std::unexpected(tasks.error());
  s.tasks = std::move(*tasks);
  s.symbols = split_names(o.symbols);
  s.dsos = split_list(o.dsos);
  return s;
}

}  // namespace asof
