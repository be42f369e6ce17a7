// The lines are those of perf's tools/perf/builtin-script.c and util/evsel_fprintf.c, as seen in its output.
#include "tools/script/script_printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "textstore/plain_text.h"
#include "tools/cli/matches.h"
#include "tools/output/format.h"
#include "tools/script/script_event_names.h"

namespace asof {
namespace {

using Kind = ScriptRecord::Kind;

constexpr size_t kPaddedFile = 50;
constexpr size_t kSynthWidth = 34;

bool is_flow(Kind kind) {
  return kind == Kind::kBranch || kind == Kind::kInstructions || kind == Kind::kTransaction;
}

// Of the trace, so that the letter s counts it.
bool is_made(Kind kind) { return kind != Kind::kError && kind != Kind::kSideBand && kind != Kind::kSample; }

}  // namespace

ScriptPrinter::ScriptPrinter(const Capture& capture, const ScriptFormat& format,
                             const ScriptSelection& selection, Write write)
    : capture_(capture),
      format_(format),
      selection_(selection),
      write_(std::move(write)),
      names_(capture),
      selected_symbols_{selection.symbols},
      graph_symbols_{format.graph_functions},
      stop_symbols_{format.stops},
      disassembler_(Syntax::kAtt, code_machine(capture.machine)),
      lines_of_source_(capture),
      trace_text_(capture),
      recorded_names_(capture.perf ? recorded_event_names(*capture.perf) : std::vector<std::string>()),
      modifiers_(event_modifiers(capture)),
      name_width_(event_name_width(capture, format.itrace, recorded_names_)),
      file_width_(format.pad_files ? kPaddedFile : 0) {}

bool ScriptPrinter::NamedSymbols::has(const Symbol* symbol) {
  if (symbol == nullptr) return false;
  const auto [at, fresh] = known.try_emplace(symbol, false);
  if (fresh)
    at.value() =
        std::ranges::any_of(names, [&](const std::string& name) { return matches_symbol(name, *symbol); });
  return at.value();
}

void ScriptPrinter::take(std::string_view records) {
  out_.clear();
  for (size_t at = 0; at + sizeof(ScriptRecord) <= records.size(); at += sizeof(ScriptRecord)) {
    const ScriptRecord r = ScriptRecord::from(records, at);
    ThreadStack* stack = nullptr;
    if (format_.wants_stacks() || format_.wants_branches()) {
      stack = &stacks_.of(r);
      if (r.kind == Kind::kLoss) stack->lose();
      if (r.kind == Kind::kBranch) stack->take(r, format_.kept_branches());
      if (r.kind == Kind::kCode)
        stack->ran.push_back({static_cast<uint32_t>(r.a), static_cast<uint32_t>(r.b)});
    }
    const bool made = is_made(r.kind) || r.kind == Kind::kSample;
    const bool wanted = stack == nullptr || !made || in_graph(r, *stack);
    if (r.shown && wanted) print(r, stack);
  }
  write_(out_);
}

std::string_view ScriptPrinter::comm(const ScriptRecord& r, std::string& kept) const {
  const std::string_view known = capture_.tasks.comm(r.tid, r.time);
  if (!known.empty()) return known;
  if (r.tid == 0) return "swapper";
  kept = fmt::format(":{}", r.tid);
  return kept;
}

// As in perf, a symbol and a file are those of where the event is, not of where a branch goes.
bool ScriptPrinter::selected(const ScriptRecord& r, const Ends& ends) {
  const ScriptSelection& s = selection_;
  if (r.time != kTimeMin && (r.time < s.time.lo || r.time > s.time.hi)) return false;
  if (s.tasks.any() && !s.tasks.has(capture_.tasks, r.pid, r.tid, r.time)) return false;
  if (r.kind == Kind::kError || r.kind == Kind::kSideBand) return true;
  if (!s.symbols.empty() && !selected_symbols_.has(ends.from.symbol)) return false;
  return s.dsos.empty() || std::ranges::any_of(s.dsos, [&](const std::string& dso) {
           return ends.from.dso == dso || ends.from.dso.ends_with("/" + dso);
         });
}

// perf's --graph-function: from the call of one of them to its return.
// Branches decide, shown or not.
bool ScriptPrinter::in_graph(const ScriptRecord& r, ThreadStack& stack) {
  if (format_.graph_functions.empty()) return true;
  if (r.kind != Kind::kBranch) return stack.filtering;
  const bool enters = (r.flags & (kFlagCall | kFlagTraceBegin)) != 0;
  const bool leaves = !enters && (r.flags & (kFlagReturn | kFlagTraceEnd)) != 0;
  const Symbol* symbol = nullptr;
  if (enters) symbol = names_.at(r.to_space, r.addr, r.time).symbol;
  if (leaves) symbol = names_.at(r.space, r.ip, r.time).symbol;
  const bool named = graph_symbols_.has(symbol);
  const size_t depth = stack.callers.size();
  if (stack.filtering) {
    stack.filtering = depth > stack.entry_depth;
    return stack.filtering || (leaves && named);
  }
  if (!named || !enters) return named;
  stack.filtering = true;
  // A call is on the stack already.
  stack.entry_depth = (r.flags & kFlagCall) != 0 && depth != 0 ? depth - 1 : depth;
  return true;
}

void ScriptPrinter::print(const ScriptRecord& r, ThreadStack* stack) {
  if (skipped_ < format_.itrace.skip && is_made(r.kind)) {
    ++skipped_;
    return;
  }
  const Ends ends{names_.at(r.space, r.ip, r.time),
                  is_flow(r.kind) ? names_.at(r.to_space, r.addr, r.time) : ScriptName{}};
  if (!selected(r, ends)) return;
  if (r.kind != Kind::kError && r.kind != Kind::kSideBand && (fields_of(r) & ~uint64_t{kScriptFlags}) == 0)
    return;
  ++lines_;
  if (r.kind == Kind::kSample) return sample(r, ends, stack);
  if (r.kind == Kind::kPebs) return pebs(r, ends, stack);
  if (r.kind == Kind::kError) return error(r);
  if (r.kind == Kind::kSideBand) return side_band(r);
  if (is_flow(r.kind)) return flow(r, ends, stack);
  synthesised(r);
}

// As in perf, events of a type of which no field is to be shown are not.
uint64_t ScriptPrinter::fields_of(const ScriptRecord& r) const {
  if (r.kind == Kind::kSample) return format_.fields.of_record(side_band_lines_->event_type(r));
  if (r.kind == Kind::kPebs) return format_.fields.of_record(capture_.perf->attrs()[r.a].type);
  return is_flow(r.kind) ? format_.fields.flow : format_.fields.synth;
}

void ScriptPrinter::time(Time t) {
  if (format_.relative) {
    if (!first_time_) first_time_ = t;
    t -= *first_time_;
  } else if (format_.deltas) {
    const Time before = last_time_.value_or(t);
    last_time_ = t;
    t -= before;
  }
  const auto ns = static_cast<uint64_t>(std::max<Time>(t, 0));
  const uint64_t seconds = ns / 1'000'000'000, rest = ns % 1'000'000'000;
  if (format_.nanoseconds) {
    fmt::format_to(std::back_inserter(out_), "{:5}.{:09}: ", seconds, rest);
  } else {
    fmt::format_to(std::back_inserter(out_), "{:5}.{:06}: ", seconds, rest / 1000);
  }
}

// Of what is made of the trace perf 6.1 says nothing here; it does of the same events once perf inject has written them.
std::string ScriptPrinter::misc(const ScriptRecord& r) const {
  if (r.kind == Kind::kSideBand || r.kind == Kind::kSample) return side_band_lines_->misc(r);
  const Addr a = r.ip != 0 ? r.ip : r.addr;
  return a == 0 ? "" : is_kernel_address(a) ? "K" : "U";
}

void ScriptPrinter::head(const ScriptRecord& r, uint64_t fields, bool chain) {
  auto it = std::back_inserter(out_);
  if ((fields & kScriptComm) != 0) {
    std::string kept;
    fmt::format_to(it, "{:>{}} ", comm(r, kept), chain ? 0 : 16);
  }
  const bool pid = (fields & kScriptPid) != 0, tid = (fields & kScriptTid) != 0;
  if (pid && tid) {
    fmt::format_to(it, "{:>5}/{:<5} ", r.pid, r.tid);
  } else if (pid || tid) {
    fmt::format_to(it, "{:>5} ", pid ? r.pid : r.tid);
  }
  if ((fields & kScriptCpu) != 0 && r.cpu >= 0) fmt::format_to(it, "[{:03}] ", r.cpu);
  if ((fields & kScriptMisc) != 0) fmt::format_to(it, "{:<5} ", misc(r));
  if ((fields & kScriptTod) != 0 && r.time != kTimeMin) tod(r.time);
  if ((fields & kScriptTime) != 0 && r.time != kTimeMin) time(r.time);
}

void ScriptPrinter::event_name(const ScriptRecord& r) {
  std::string name(script_event_name(r.kind));
  if (r.kind == Kind::kSample) {
    const auto all = capture_.perf->attrs();
    name = recorded_names_[static_cast<size_t>(side_band_lines_->record(r).id.attr - all.data())];
  } else if (r.kind == Kind::kPebs) {
    name = recorded_names_[r.a];
  }
  if (r.kind == Kind::kBranch || r.kind == Kind::kInstructions) name += modifiers_;
  fmt::format_to(std::back_inserter(out_), "{:>{}}: ", name, name_width_);
}

void ScriptPrinter::name(const ScriptName& n, bool with_offset) {
  if (n.symbol == nullptr) {
    out_ += "[unknown]";
    return;
  }
  out_ += n.symbol->shown();
  if (with_offset) fmt::format_to(std::back_inserter(out_), "+0x{:x}", n.offset);
}

void ScriptPrinter::place(Addr ip, const ScriptName& n, uint64_t f) {
  fmt::format_to(std::back_inserter(out_), "{:>16x}", ip);
  if ((f & kScriptSym) != 0) {
    out_ += ' ';
    name(n, (f & kScriptSymoff) != 0);
  }
  if ((f & kScriptDso) != 0) fmt::format_to(std::back_inserter(out_), " ({:<{}})", n.dso, file_width_);
}

void ScriptPrinter::target(const ScriptRecord& r, const Ends& ends) {
  place(r.addr, ends.to, format_.fields.flow);
}

// perf gives the length 0 to what has no instruction, the beginning of tracing.
void ScriptPrinter::instruction(const ScriptRecord& r) {
  const uint64_t f = format_.fields.flow;
  const bool known = r.insn_size != 0;
  const std::span<const uint8_t> bytes(r.insn.data(), r.insn_size);
  if ((f & kScriptInsnlen) != 0 && (known || r.ip == 0))
    fmt::format_to(std::back_inserter(out_), " ilen: {}", r.insn_size);
  if (!known) return;
  if ((f & kScriptInsn) != 0) fmt::format_to(std::back_inserter(out_), " insn: {}", format_bytes(bytes));
  if ((f & kScriptDisasm) != 0)
    fmt::format_to(std::back_inserter(out_), "\t\t{}", disassembler_.text(bytes, r.ip, r.mode));
}

void ScriptPrinter::branch_code(const ScriptRecord& r, const ThreadStack* stack) {
  if (branch_blocks_ && stack != nullptr) branch_blocks_->append(r, *stack, out_);
}

void ScriptPrinter::ipc(const ScriptRecord& r) {
  if ((format_.fields.flow & kScriptIpc) == 0 || r.cycles == 0 || r.instructions == 0) return;
  fmt::format_to(std::back_inserter(out_), " \t IPC: {} ({}/{}) ", format_ratio(r.instructions, r.cycles),
                 r.instructions, r.cycles);
}

void ScriptPrinter::source_line(const ScriptRecord& r, uint64_t f) {
  if ((f & kScriptSrcline) == 0 || r.ip == 0) return;
  const SourceLine line = lines_of_source_.at(r.space, r.ip, r.time);
  if (!line) return;
  std::string_view file = line.file;
  if (const size_t slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
  fmt::format_to(std::back_inserter(out_), "\n  {}:{}", plain_text(file), line.line);
}

void ScriptPrinter::flow(const ScriptRecord& r, const Ends& ends, const ThreadStack* stack) {
  const uint64_t f = format_.fields.flow;
  const bool branches = r.kind == Kind::kBranch, chain = !branches && format_.itrace.chain != 0;
  head(r, f, chain && (f & kScriptIp) != 0);
  if ((f & kScriptPeriod) != 0) fmt::format_to(std::back_inserter(out_), "{:>10} ", r.period);
  if ((f & kScriptEvent) != 0) event_name(r);
  if ((f & kScriptFlags) != 0) fmt::format_to(std::back_inserter(out_), "  {:<21} ", flags_text(r.flags));
  if (branches) {
    branch(r, ends, stack);
  } else {
    if ((f & kScriptAddr) != 0) fmt::format_to(std::back_inserter(out_), "{:>16x}", r.addr);
    if ((f & kScriptIp) != 0 && chain) {
      call_chain(r, stack, format_.itrace.chain, f);
    } else if ((f & kScriptIp) != 0) {
      out_ += ' ';
      place(r.ip, ends.from, f);
      source_line(r, f);
    }
    const uint32_t last = format_.itrace.last_branches;
    if ((f & kScriptBrstack) != 0) {
      branch_stack(r, stack, last, BranchForm::kAddresses, f);
    } else if ((f & kScriptBrstacksym) != 0) {
      branch_stack(r, stack, last, BranchForm::kSymbols, f);
    } else if ((f & kScriptBrstackoff) != 0) {
      branch_stack(r, stack, last, BranchForm::kOffsets, f);
    }
    instruction(r);
    branch_code(r, stack);
    ipc(r);
  }
  out_ += '\n';
}

void ScriptPrinter::branch(const ScriptRecord& r, const Ends& ends, const ThreadStack* stack) {
  const uint64_t f = format_.fields.flow;
  if ((f & kScriptCallindent) != 0) indented(r, ends, stack);
  if ((f & kScriptIp) != 0) {
    out_ += ' ';
    place(r.ip, ends.from, f);
  }
  if ((f & kScriptAddr) != 0 || format_.fields.targets) {
    out_ += " => ";
    target(r, ends);
  }
  ipc(r);
  if ((f & kScriptIp) != 0) source_line(r, f);
  instruction(r);
}

void ScriptPrinter::synthesised(const ScriptRecord& r) {
  const uint64_t f = format_.fields.synth;
  head(r, f, false);
  if ((f & kScriptEvent) != 0) event_name(r);
  if ((f & kScriptFlags) != 0) fmt::format_to(std::back_inserter(out_), "  {:<21} ", flags_text(r.flags));
  if ((f & kScriptSynth) != 0)
    fmt::format_to(std::back_inserter(out_), "{:<{}}", synth_text(capture_, r), kSynthWidth);
  if ((f & kScriptIp) != 0) {
    out_ += ' ';
    place(r.ip, names_.at(r.space, r.ip, r.time), format_.fields.flow);
  }
  out_ += '\n';
}

// Those that perf wrote itself, when it started, have no time.
void ScriptPrinter::side_band(const ScriptRecord& r) {
  const std::string text = side_band_lines_->text(r, names_);
  if (text.empty()) return;  // damaged: a notice says so
  constexpr uint64_t kShown = kScriptComm | kScriptTid | kScriptPid | kScriptCpu | kScriptTime | kScriptMisc;
  uint64_t fields = format_.fields.of_record(side_band_lines_->event_type(r)) & kShown;
  if ((fields & kScriptComm) != 0) {
    ScriptRecord named = r;
    named.tid = static_cast<int32_t>(r.b);
    std::string kept;
    fmt::format_to(std::back_inserter(out_), "{:>16} ", comm(named, kept));
    fields &= ~uint64_t{kScriptComm};
  }
  const bool timed = r.time != kTimeMin;
  head(r, timed ? fields : fields & ~uint64_t{kScriptTime}, false);
  if (!timed && (fields & kScriptTime) != 0)
    out_ += format_.nanoseconds ? "    0.000000000: " : "    0.000000: ";
  out_ += text;
  out_ += '\n';
}

void ScriptPrinter::error(const ScriptRecord& r) {
  const auto ns = static_cast<uint64_t>(std::max<Time>(r.time, 0));
  fmt::format_to(std::back_inserter(out_),
                 " instruction trace error type 1 time {}.{:09} cpu {} pid {} tid {} ip {} code {}: {}\n",
                 ns / 1'000'000'000, ns % 1'000'000'000, r.cpu, r.pid, r.tid,
                 r.ip == 0 ? std::string("0") : fmt::format("{:#x}", r.ip), r.a, perf_error_text(r.a));
}

}  // namespace asof
