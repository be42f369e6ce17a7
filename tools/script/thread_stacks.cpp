#include "tools/script/thread_stacks.h"

#include <utility>

namespace asof {
namespace {

constexpr size_t kMostCallers = 16384;  // of recursion without end the outermost go

}  // namespace

void ThreadStack::pop(Addr to) {
  for (size_t i = callers.size(); i > 0; --i) {
    if (callers[i - 1].back != to) continue;
    callers.resize(i - 1);
    return;
  }
}

void ThreadStack::take(const ScriptRecord& b, size_t keep) {
  if (keep != 0) {
    branches.push_front(
        {b.ip, b.addr, b.space, b.to_space, b.flags, b.time, b.insn_size, b.insn, std::move(ran)});
    ran.clear();
    if (branches.size() > keep) branches.pop_back();
  }
  if ((b.flags & kFlagCall) != 0) {
    const Addr back = b.ip + ((b.flags & kFlagAsync) != 0 ? 0 : b.insn_size);
    if (b.addr == 0 || back == b.addr) return;
    if (callers.size() == kMostCallers) callers.erase(callers.begin(), callers.begin() + kMostCallers / 2);
    callers.push_back({back, b.space, (b.flags & kFlagTraceEnd) != 0});
  } else if ((b.flags & kFlagTraceBegin) != 0) {
    pop(b.addr);
    while (!callers.empty() && callers.back().trace_end) callers.pop_back();
  } else if ((b.flags & kFlagReturn) != 0 && b.ip != 0) {
    pop(b.addr);
  }
}

size_t branches_since(const ThreadStack& stack, Addr ip) {
  const auto in_user = [](Addr a) { return a != 0 && !is_kernel_address(a); };
  for (size_t i = 0; i < stack.branches.size(); ++i) {
    const ThreadStack::TakenBranch& b = stack.branches[i];
    if (in_user(b.to)) return i;
    if (!is_kernel_address(ip)) continue;
    const bool between = i != 0 && ip >= b.to && ip <= stack.branches[i - 1].from;
    if (between || !is_kernel_address(b.from)) return i;
  }
  return stack.branches.size();
}

void ThreadStack::lose() {
  callers.clear();
  branches.clear();
  ran.clear();
}

}  // namespace asof
