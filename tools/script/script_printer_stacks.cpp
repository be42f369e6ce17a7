// ScriptPrinter: what a line shows of those before it: callers, the last branches, how deep its function is.
#include <fmt/format.h>

#include <algorithm>

#include "tools/script/script_printer.h"

namespace asof {

// What was inlined into a caller is at its call, not at the instruction behind, which can be another line's.
void ScriptPrinter::inlined_callers(const ScriptRecord& r, Space space, Addr a, bool called,
                                    uint64_t fields) {
  if (!format_.inlined) return;
  for (const SourceFrame& f : lines_of_source_.frames_at(space, called ? a - 1 : a, r.time)) {
    if (!f.inlined) return;
    out_ += '\t';
    if ((fields & kScriptIp) != 0)
      fmt::format_to(std::back_inserter(out_), "{:>16x}", names_.caller_address(r.pid, a, r.time));
    if ((fields & kScriptSym) != 0) {
      out_ += ' ';
      out_ += f.function.empty() ? "[unknown]" : f.function;
    }
    out_ += " (inlined)\n";
  }
}

bool ScriptPrinter::caller(const ScriptRecord& r, Space space, Addr a, bool called, uint64_t fields) {
  inlined_callers(r, space, a, called, fields);
  out_ += '\t';
  const ScriptName n = names_.at(space, a, r.time);
  if ((fields & kScriptIp) != 0)
    fmt::format_to(std::back_inserter(out_), "{:>16x}", names_.caller_address(r.pid, a, r.time));
  if ((fields & kScriptSym) != 0) {
    out_ += ' ';
    name(n, (fields & kScriptSymoff) != 0);
  }
  if ((fields & kScriptDso) != 0) fmt::format_to(std::back_inserter(out_), " ({})", n.dso);
  out_ += '\n';
  return format_.stops.empty() || !stop_symbols_.has(n.symbol);
}

// As many entries as perf has: each change between user and kernel takes one that is not shown.
void ScriptPrinter::call_chain(const ScriptRecord& r, const ThreadStack* stack, uint32_t length, uint64_t f) {
  out_ += '\n';
  if (!caller(r, r.space, r.ip, false, f) || stack == nullptr) return;
  bool kernel = is_kernel_address(r.ip);
  const size_t most = std::min<size_t>(length, format_.most_callers) + 1;
  size_t entries = 2;
  for (auto c = stack->callers.rbegin(); c != stack->callers.rend() && entries < most; ++c, ++entries) {
    const bool there = is_kernel_address(c->back);
    if (there != kernel && ++entries >= most) return;
    kernel = there;
    if (!caller(r, c->space, c->back, true, f)) return;
  }
}

void ScriptPrinter::branch_end(const ScriptRecord& r, Space space, Addr a, BranchForm form, uint64_t f) {
  const ScriptName n = names_.at(space, a, r.time);
  if (form == BranchForm::kSymbols) {
    name(n, true);
  } else {
    fmt::format_to(std::back_inserter(out_), "0x{:x}",
                   form == BranchForm::kOffsets ? names_.caller_address(r.pid, a, r.time) : a);
  }
  if ((f & kScriptDso) != 0) fmt::format_to(std::back_inserter(out_), "({})", n.dso);
}

void ScriptPrinter::branch_stack(const ScriptRecord& r, const ThreadStack* stack, uint32_t length,
                                 BranchForm form, uint64_t f, size_t skip) {
  if (stack == nullptr) return;
  for (size_t i = skip; i < stack->branches.size() && i - skip < length; ++i) {
    const ThreadStack::TakenBranch& b = stack->branches[i];
    if (form != BranchForm::kSymbols) out_ += ' ';
    branch_end(r, b.from_space, b.from, form, f);
    out_ += '/';
    branch_end(r, b.to_space, b.to, form, f);
    fmt::format_to(std::back_inserter(out_), "/-/{}/{}/0/ ", (b.flags & kFlagInTx) != 0 ? 'X' : '-',
                   (b.flags & kFlagTxAbort) != 0 ? 'A' : '-');
  }
}

// Functions under those that called them.
void ScriptPrinter::indented(const ScriptRecord& r, const Ends& ends, const ThreadStack* stack) {
  size_t depth = stack == nullptr ? 0 : stack->callers.size();
  if ((r.flags & kFlagReturn) != 0 && stack != nullptr) ++depth;
  if ((format_.fields.flow & kScriptDso) != 0 && (format_.fields.flow & (kScriptIp | kScriptAddr)) == 0)
    fmt::format_to(std::back_inserter(out_), "({:<{}})\t", ends.from.dso, file_width_);
  const bool enters = (r.flags & (kFlagCall | kFlagTraceBegin)) != 0;
  const bool leaves = !enters && (r.flags & (kFlagReturn | kFlagTraceEnd)) != 0;
  const ScriptName& n = enters ? ends.to : ends.from;
  const Addr a = enters ? r.addr : r.ip;
  std::string text;
  if (enters || leaves) {
    if (n.symbol != nullptr) {
      text = fmt::format("{:{}}{}", "", depth * 4, n.symbol->shown());
    } else if (a != 0) {
      text = fmt::format("{:{}}{:>16x}", "", depth * 4, a);
    }
  }
  constexpr size_t kStep = 32, kSlack = 52;
  if (text.size() > indent_width_ || (!text.empty() && text.size() + kSlack < indent_width_))
    indent_width_ = (text.size() + 4 + kStep - 1) / kStep * kStep;
  fmt::format_to(std::back_inserter(out_), "{:<{}}", text, indent_width_);
}

}  // namespace asof
