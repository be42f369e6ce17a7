// ShadowStacks: the call stacks of a capture whose execution was observed, from what executed alone: a return
// address is pushed at every call and popped at the return to it, as on the stack in memory. It does not use
// the decoder's call reconstruction (decoder/call_*): it has the true runs, their bytes, and the thread that
// each switch record names. What an unwinder would have seen at an instant is then the function that ran,
// those of the return addresses, and those that were interrupted.
//
// What the kernel does in addition to calls and returns is taken from its source, one rule for each:
//  * __switch_to_asm, cpu_switch_to: after its last branch, the stack is another thread's.
//  * poke_int3_handler() (arch/x86/kernel/alternative.c) emulates a call: it pushes the return address.
//  * iret_to_self() (arch/x86/include/asm/sync_core.h): IRET to the next instruction.
//  * trampolines return on behalf of the function they were called from (kernel/bpf/trampoline.c,
//    arch/x86/kernel/ftrace_64.S): a return to a frame further below drops those above.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "decoder/model/capture.h"
#include "tests/support/truth.h"

namespace asof::test {

std::vector<TruthRun> read_truth_runs(const std::string& path);

class ShadowStacks {
 public:
  ShadowStacks(const Capture& capture, std::map<int, std::vector<TruthRun>> runs);
  ~ShadowStacks();

  static constexpr const char* kUnknownText = "run whose text is not known";
  // An instant before a run of a CPU.
  struct Moment {
    int cpu = 0;
    size_t run = 0;
    uint64_t instruction = 0;          // executed on the CPU before it, in known text
    std::vector<std::string> stack{};  // innermost first; "?": no symbol
  };
  const std::vector<TruthRun>& runs(int cpu) const;
  // Stacks at the beginning of these runs (cpu, index), in that order. Frames discovered only later are
  // included.
  std::vector<Moment> stacks_at(const std::vector<std::pair<int, size_t>>& wanted);
  // What no rule above explains, by kind, and how often.
  const std::map<std::string, uint64_t>& oddities() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace asof::test
