// ScriptPrinter: what a line shows of those before it: callers, the last branches, how deep its function is.
#include <fmt/format.h>

#include "tools/script/script_printer.h"

namespace asof {

// What was inlined into a caller is at its call, not at the instruction behind, which can be another line's.
void ScriptPrinter::inlined_callers(const ScriptRecord& r, Space space, Addr a, bool called) {
  if (!format_.inlined) return;
  for (const SourceFrame& f : lines_of_source_.frames_at(space, called ? a - 1 : a, r.time)) {
    if (!f.inlined) return;
    out_ += '\t';
    if ((format_.fields.flow & kScriptIp) != 0)
      fmt::format_to(std::back_inserter(out_), "{:>16x}", names_.caller_address(r.pid, a, r.time));
    if ((format_.fields.flow & kScriptSym) != 0) {
      out_ += ' ';
      out_ += f.function.empty() ? "[unknown]" : f.function;
    }
    out_ += " (inlined)\n";
  }
}

void ScriptPrinter::caller(const ScriptRecord& r, Space space, Addr a, bool called) {
  inlined_callers(r, space, a, called);
  out_ += '\t';
  const ScriptName n = names_.at(space, a, r.time);
  if ((format_.fields.flow & kScriptIp) != 0)
    fmt::format_to(std::back_inserter(out_), "{:>16x}", names_.caller_address(r.pid, a, r.time));
  if ((format_.fields.flow & kScriptSym) != 0) {
    out_ += ' ';
    name(n, (format_.fields.flow & kScriptSymoff) != 0);
  }
  if ((format_.fields.flow & kScriptDso) != 0) fmt::format_to(std::back_inserter(out_), " ({})", n.dso);
  out_ += '\n';
}

// As many entries as perf has: each change between user and kernel takes one that is not shown.
void ScriptPrinter::call_chain(const ScriptRecord& r, const ScriptName&, const ThreadStack* stack) {
  out_ += '\n';
  caller(r, r.space, r.ip, false);
  if (stack == nullptr) return;
  bool kernel = is_kernel_address(r.ip);
  const size_t most = size_t{format_.itrace.chain} + 1;
  size_t entries = 2;
  for (auto c = stack->callers.rbegin(); c != stack->callers.rend() && entries < most; ++c, ++entries) {
    const bool there = is_kernel_address(c->back);
    if (there != kernel && ++entries >= most) return;
    kernel = there;
    caller(r, c->space, c->back, true);
  }
}

void ScriptPrinter::branch_stack(const ScriptRecord& r, const ThreadStack* stack, bool symbols) {
  if (stack == nullptr) return;
  const bool dso = (format_.fields.flow & kScriptDso) != 0;
  const auto end = [&](Space space, Addr a) {
    const ScriptName n = names_.at(space, a, r.time);
    if (symbols) {
      name(n, true);
    } else {
      fmt::format_to(std::back_inserter(out_), "0x{:x}", a);
    }
    if (dso) fmt::format_to(std::back_inserter(out_), "({})", n.dso);
  };
  for (const ThreadStack::TakenBranch& b : stack->branches) {
    if (!symbols) out_ += ' ';
    end(b.from_space, b.from);
    out_ += '/';
    end(b.to_space, b.to);
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
