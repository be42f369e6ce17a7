// Follower: from blocks of translated code that begin, and interruptions, to what retired on one CPU: passed to
// its trace unit and its log.
//
// A block has retired when the next one begins or an interruption comes from the address after it. It may also end
// early: an exception, an instruction that is begun anew (REP, atomics, self-modified pages) or one that is
// executed alone (access to a device). So the count of instructions begun since its start says how many there were.
#pragma once
#include <cstdint>
#include <vector>

#include "tools/board/pt_plugin/cpu_log.h"
#include "tools/board/pt_plugin/insn.h"
#include "tools/board/pt_plugin/unit.h"

namespace asof::pt {

// Translated code.
struct CodeBlock {
  uint64_t address = 0;           // where it was translated
  uint32_t number = 0;            // in the log's `code`
  std::vector<uint16_t> offsets;  // of each instruction, and of the end
  InsnClass last;                 // only the last instruction of a block changes the flow

  unsigned count() const { return static_cast<unsigned>(offsets.size()) - 1; }
};

class Follower {
 public:
  Follower(TraceUnit& unit, CpuLog& log) : unit_(unit), log_(log) {}

  // `begun`: instructions begun on this CPU before this moment. `block` is used until it has ended.
  void block(const CodeBlock& block, const Place& here, uint64_t begun, uint64_t tsc);
  // `i.from` is where it happened; `exception`: a synchronous one.
  void interruption(const Interruption& i, const Place& to, bool exception, uint64_t begun, uint64_t tsc);

  // While an instruction of the current block begins, before it has any effect:
  void write_ctl(uint64_t value, uint64_t ip, const Place& next, uint64_t cr3, uint64_t begun, uint64_t tsc);
  void mov_cr3(uint64_t cr3) { new_cr3_ = cr3; }
  void ptwrite(uint64_t ip, uint64_t value, bool eight_bytes, uint64_t tsc);
  void interrupt_flag(const Place& next, uint64_t tsc);
  void sleep(Sleep how, uint64_t ip, uint32_t hints, uint32_t extensions, uint64_t tsc);

  // Ends of blocks that none of the above explains.
  uint64_t unexplained() const { return unexplained_; }
  bool follows() const { return unit_.tracing(); }
  // Address of the current block's first instruction.
  uint64_t ip() const { return here_.ip; }

 private:
  enum class Cause : uint8_t { kFlow, kInterrupt, kException };
  uint64_t address(unsigned i) const { return here_.ip + block_->offsets[i]; }
  Place place(uint64_t ip, Cause cause) const;
  void finish(const Place& next, Cause cause, uint64_t begun, uint64_t tsc);
  void retire(unsigned count, uint32_t flags);
  void wake(uint64_t tsc);
  void note(uint64_t expected);
  void note_marks();

  TraceUnit& unit_;
  CpuLog& log_;
  const CodeBlock* block_ = nullptr;  // begun, not yet finished
  Place here_;                        // where it began
  uint64_t begun_ = 0, tsc_ = 0;
  Exec user_exec_ = Exec::k64;  // of the user code that ran last
  uint32_t entry_flags_ = 0;
  uint64_t new_cr3_ = 0;
  bool asleep_ = false, was_losing_ = false, was_stopped_ = false;
  uint64_t syncs_ = 0, unexplained_ = 0;
};

}  // namespace asof::pt
