// TraceUnit: the Intel PT of one logical processor. It is given what executes and writes the packets that the SDM
// (vol. 3, "Intel Processor Trace") prescribes. It knows nothing of the emulator.
//
// Beside each rule stands the title of its section or table; numbers differ from edition to edition. How that was
// checked: the cases of the table "Packet Generation under Different Enable Conditions", and "TIP.PGD", TNT, PSB,
// PSBEND, PSB+, TraceStop, CBR, EXSTOP, PWRX, "Indirect Transfer Compression for Returns (RET)", "Cycle
// Thresholds", "Internal Buffer Overflow" and "Operational Errors" against the text of an edition that has the
// chapter as number 36. That edition lacks Event Trace, which was compared with the tests of Intel's own decoder instead
// (libipt 2.3, test/src/ptet-*.ptt: where CFE, EVD and MODE.Exec stand, which have a FUP, and which address it has), and
// TNT disable, of which Linux and perf say what is left out. The other sections are from memory; libipt and perf read
// their packets.
//
// Not there: TSX (MODE.TSX is never sent), VMX (PIP.NR is 0, no VMCS packets), SMM, PEBS by PT, PSB and PMI
// preservation. CPUID announces none of these.
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "tools/board/pt_plugin/output.h"
#include "tools/board/pt_plugin/packets.h"

namespace asof::pt {

// IA32_RTIT_CTL
constexpr uint64_t kTraceEn = 1 << 0, kCycEn = 1 << 1, kOs = 1 << 2, kUser = 1 << 3, kPwrEvtEn = 1 << 4,
                   kFupOnPtw = 1 << 5, kCr3Filter = 1 << 7, kToPa = 1 << 8, kMtcEn = 1 << 9, kTscEn = 1 << 10,
                   kDisRetC = 1 << 11, kPtwEn = 1 << 12, kBranchEn = 1 << 13, kEventEn = uint64_t{1} << 31,
                   kDisTnt = uint64_t{1} << 55;
// IA32_RTIT_STATUS
constexpr uint64_t kFilterEn = 1, kContextEn = 2, kTriggerEn = 4, kError = 1 << 4, kStopped = 1 << 5;

struct UnitConfig {
  uint32_t tsc_n = 125, tsc_d = 3;  // CPUID 0x15: TSC ticks per tick of the crystal (24 MHz and 1 GHz)
  uint8_t ratio = 10;               // core:bus; the core clock is the TSC's
  // The internal buffer: its size, and how many bytes leave it in 1,000 TSC ticks. Size 0: it never overflows.
  uint32_t buffer_bytes = 0, drain = 0;
};

// Where a CPU stands: the next instruction.
struct Place {
  uint64_t ip = 0;
  bool user = false;
  Exec exec = Exec::k64;
  bool interrupts = false;  // RFLAGS.IF; matters with EventEn only
};

enum class Flow : uint8_t { kCond, kJump, kCall, kJumpIndirect, kCallIndirect, kRet, kFar, kIret };

struct Branch {
  Flow flow = Flow::kJump;
  uint64_t ip = 0, after = 0;  // of the instruction, and of the one that follows it in memory
};

struct Interruption {
  uint64_t from = 0;  // the next instruction, or the one that faults
  std::optional<uint8_t> vector;
  std::optional<uint64_t> fault_address;  // of a page fault
};

enum class Sleep : uint8_t { kHlt, kMwait };

class TraceUnit {
 public:
  TraceUnit(const UnitConfig& config, Output& output) : config_(config), output_(output) {}

  // ---- registers
  uint64_t ctl() const { return ctl_; }
  void write_ctl(uint64_t value, uint64_t ip, const Place& next, uint64_t cr3, uint64_t tsc);
  uint64_t status() const;
  void write_status(uint64_t value);
  uint64_t cr3_match = 0;
  std::array<uint64_t, 4> ranges{};  // IA32_RTIT_ADDR0_A, 0_B, 1_A, 1_B

  // ---- execution; `tsc` never decreases
  // Between two instructions; PSB and OVF come here.
  void boundary(const Place& here, uint64_t tsc);
  void branch(const Branch& branch, const Place& to, uint64_t tsc);
  void mov_cr3(uint64_t cr3, const Place& next, uint64_t tsc);
  void interrupt(const Interruption& interruption, const Place& to, uint64_t tsc);
  void ptwrite(uint64_t ip, uint64_t value, bool eight_bytes, uint64_t tsc);
  void interrupt_flag(const Place& next, uint64_t tsc);  // STI, CLI, POPF before `next`
  void sleep(Sleep how, uint64_t ip, uint32_t hints, uint32_t extensions, uint64_t tsc);
  void wake(uint64_t tsc);

  // ---- for the log
  // What a decoder can know: `count` outcomes (of conditional branches, indirect transfers, interruptions,
  // enabling) are in packets that were written, the last of them before byte `at`.
  struct Shown {
    uint64_t count = 0, at = 0;
  };
  bool tracing() const { return trigger_; }
  bool packet_en() const { return packet_en_; }
  bool flow() const { return packet_en_ && (ctl_ & kBranchEn); }
  bool losing() const { return loss_ != Loss::kNone; }
  const Shown& flushed() const { return flushed_; }  // as of the last TNT packet
  const Shown& shown() const { return shown_; }
  uint64_t now() const { return now_; }
  uint64_t written() const { return output_.written(); }
  uint64_t sync_at() const { return sync_at_; }  // where the last PSB begins
  uint64_t sync_tsc() const { return sync_tsc_; }
  uint64_t syncs() const { return syncs_; }
  uint64_t overflows() const { return overflows_; }

 private:
  enum class Loss : uint8_t { kNone, kOverflow, kOutput };
  static constexpr unsigned kReturns = 64;

  // unit_enable.cpp
  bool context(const Place& p) const;
  bool in_range(unsigned config, uint64_t ip) const;
  bool filter(uint64_t ip) const;
  void enable(const Place& next, uint64_t cr3);
  void disable(uint64_t ip);
  void pge(const Place& to);
  void pgd(const Place& to, bool has_context);
  void trace_stop();
  // unit.cpp
  void outcome(bool taken);
  void indirect(IpPacket kind, uint64_t ip);
  void show(unsigned outcomes);
  void mode_if_changed(const Place& to);
  bool returns_to(uint64_t target);
  void push(uint64_t address);
  // unit_timing.cpp
  void advance(uint64_t tsc);
  void stamp(uint64_t tsc);
  void time_packets();
  void psb(const Place& here);
  uint64_t ctc(uint64_t tsc) const {
    return tsc / config_.tsc_n * config_.tsc_d + tsc % config_.tsc_n * config_.tsc_d / config_.tsc_n;
  }
  uint64_t tsc_of(uint64_t ctc) const { return (ctc * config_.tsc_n + config_.tsc_d - 1) / config_.tsc_d; }
  unsigned mtc_shift() const { return ctl_ >> 14 & 15; }
  // unit_write.cpp
  // Whether the whole packet was written; it may be the last one that the output takes.
  bool put(const Packet& p);
  bool put_ip(IpPacket kind, uint64_t ip);
  void flush_tnt();
  bool write(const Packet& p);
  void begin_overflow();
  void end_overflow(const Place& here);
  void drain(uint64_t tsc);
  bool emitting() const { return trigger_ && loss_ == Loss::kNone; }

  UnitConfig config_;
  Output& output_;
  uint64_t ctl_ = 0, status_ = 0, cr3_ = 0;
  bool trigger_ = false, context_en_ = false, filter_en_ = false, packet_en_ = false;
  Loss loss_ = Loss::kNone;
  uint64_t now_ = 0;
  // packets
  uint64_t last_ip_ = 0;
  bool full_ip_ = true;
  unsigned tnt_ = 0, tnt_count_ = 0;
  uint64_t tnt_tsc_ = 0;        // of the first outcome in tnt_
  std::optional<Packet> mode_;  // the last MODE.Exec
  std::array<uint64_t, kReturns> returns_{};
  unsigned return_top_ = 0, return_count_ = 0;
  uint64_t psb_bytes_ = 0;  // since PSB: PacketByteCnt
  // timing
  uint64_t mtc_done_ = 0;  // number of the last MTC period
  uint64_t mtc_next_ = 0;  // TSC of the next
  uint64_t cyc_at_ = 0;
  uint64_t slept_at_ = 0;
  // the internal buffer
  uint64_t occupied_ = 0, drained_at_ = 0;
  bool overflow_cr3_ = false;  // a PIP was lost
  // log
  Shown flushed_, shown_;
  uint64_t sync_at_ = 0, sync_tsc_ = 0, syncs_ = 0, overflows_ = 0;
};

}  // namespace asof::pt
