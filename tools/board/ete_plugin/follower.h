// One CPU as the plugin sees it: which instruction begins, and what interrupts it. From that follow what retired, what
// the trace unit is told, and the log of what really ran. Knows nothing of QEMU.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tools/board/ete_plugin/log.h"
#include "tools/board/ete_plugin/trace_buffer.h"
#include "tools/board/ete_plugin/trace_unit.h"

namespace asof::ete {

struct Instruction {
  uint64_t address;  // as translated
  uint32_t code;
  uint16_t index;
  uint16_t remaining;  // instructions of its block from it on
  Kind kind;
  uint8_t operand;  // general register of an MRS or MSR
  Register system;
};

struct Clock {
  uint64_t now;  // CNTVCT
  bool certain;  // not while all CPUs were idle and none has read the counter since
};

class Follower {
 public:
  Follower(CpuLog log, File trace, TraceBuffer::Translate translate, std::function<void()> interrupt);

  Registers& registers() { return registers_; }
  bool tracing() const { return unit_.enabled(); }
  const Instruction* pending() const { return pending_; }
  uint64_t trace_bytes() const { return buffer_.accepted(); }

  // MSR: true if this enabled the trace unit.
  bool write(Register r, uint64_t value, Clock clock);
  void write_context_id(uint32_t value) { unit_.write_context_id(value); }
  void flush();  // TSB CSYNC

  void begin(const Instruction& i, uint64_t address, Clock clock);
  // The CPU took an exception or interrupt. `syndrome`: exception class of ESR_EL1.
  void discontinuity(uint64_t from, uint64_t to, unsigned exception_class, Clock clock);
  void finish();

 private:
  void complete(uint64_t next, Clock clock);
  void settle();
  void after_filter(bool was_open);

  CpuLog log_;
  Registers registers_;
  TraceBuffer buffer_;
  TraceUnit unit_;
  bool write_trace(std::span<const uint8_t> bytes);

  File trace_;  // a copy of what memory got
  const Instruction* pending_ = nullptr;
  uint64_t pending_at_ = 0, pending_clock_ = 0;
  uint64_t cycles_ = 0;
  uint32_t entry_flags_ = 0;  // of the next instruction
  // P0 elements whose packets, and A-Syncs that were given to the buffer since settle(), and where in the trace
  // that was. The log has records before an A-Sync if their packets precede it.
  struct Given {
    uint64_t elements, output;
    bool lost, sync;
  };
  std::vector<Given> given_;
  bool lossy_ = false;
};

// TYPE of the Exception packet (D4.3.5.2.1 "PE Architectural exceptions" names the types), from the vector's offset and
// ESR_EL1.EC.
uint16_t exception_type(uint64_t vector, unsigned exception_class);

}  // namespace asof::ete
