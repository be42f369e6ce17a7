// ThreadStacks: callers by calls and returns alone, as perf's thread stacks have them: a return goes to the nearest
// call that it fits, or to none. (decoder/calls knows more; here the answer is to be perf's.)
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "tools/script/script_record.h"

namespace asof {

struct ThreadStack {
  struct Caller {
    Addr back;
    Space space;
    bool trace_end;  // the call ended the trace
  };
  struct Ran {  // instructions of a piece of CodeOfBlocks
    uint32_t piece, count;
  };
  struct TakenBranch {
    Addr from, to;
    Space from_space, to_space;
    uint32_t flags;
    Time time;
    uint8_t insn_size;
    std::array<uint8_t, 16> insn;
    std::vector<Ran> ran;  // up to it, since the branch before it
  };
  std::vector<Caller> callers;       // outermost first
  std::deque<TakenBranch> branches;  // newest first
  std::vector<Ran> ran;              // since the last branch, if the code is wanted
  bool filtering = false;            // --graph-function
  size_t entry_depth = 0;

  // `keep`: branches that are wanted.
  void take(const ScriptRecord& branch, size_t keep);
  void lose();

 private:
  void pop(Addr to);
};

// How many of the newest branches a thread took after a sample at `ip` and before its time, by perf's rule: a sample in
// user space is behind the newest branch that went there, one in the kernel where a branch and the next one have it
// between them, or behind the newest branch from or to user space.
size_t branches_since(const ThreadStack& stack, Addr ip);

class ThreadStacks {
 public:
  // Idle threads and unknown ones have one for each CPU.
  ThreadStack& of(const ScriptRecord& r) { return stacks_[{r.tid, r.tid > 0 ? -1 : r.cpu}]; }

 private:
  std::map<std::pair<int32_t, int32_t>, ThreadStack> stacks_;
};

}  // namespace asof
