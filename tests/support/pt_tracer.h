// PtTracer: the trace unit of one simulated CPU. It is given what executes and writes the packets that Intel
// PT writes for it (SDM vol. 3, "Intel Processor Trace", change-of-flow events and packet generation): TNT
// and TIP with return compression, context filtering by privilege, PSB+ by trace volume, TSC/TMA/MTC/CYC
// timing, overflow.
//
// Return compression is limited to what every decoder agrees on: a RET is compressed only if its CALL was
// traced since the last PSB, start, overflow or RET that did not match; otherwise libipt and perf differ in
// what they pop.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/support/pt_writer.h"
#include "tests/support/sim_random.h"
#include "textstore/address.h"

namespace asof::test {

struct TracerConfig {
  bool user = true, kernel = true;
  bool return_compression = true;
  // What happens to the return stack at a return to another address than its top: hardware differs.
  enum class Mismatch : uint8_t { kClears, kKeeps, kTakes } mismatch = Mismatch::kClears;
  bool mtc = true;
  bool tma = true;  // false: MTCs give no time
  bool cyc = false;
  uint8_t mtc_freq = 3;      // log2 of CTC ticks per MTC
  bool tsc = true;           // in PSB+; false: no time at all, as fuzzers trace
  uint32_t tsc_ctc_n = 100;  // TSC ticks per CTC tick
  uint32_t tsc_ctc_d = 1;
  uint8_t cbr = 24;
  uint32_t psb_bytes = 4096;  // trace bytes between two PSB
  uint64_t psb_ticks = 0;     // also after this many TSC ticks; 0: never
  bool long_tnt = false;
  bool keep_packets = true;
};

class PtTracer {
 public:
  explicit PtTracer(const TracerConfig& config);

  // The position of the CPU, before each instruction. Writes the timing packets and PSB+ that are due at
  // `tsc`.
  void at(uint64_t tsc, Addr ip, bool user, uint64_t cr3);

  void start();           // TraceEn: PSB+, then TIP.PGE when the context is traced
  void stop();            // orderly: FUP and TIP.PGD at the current instruction
  void lose();            // the buffer is full: nothing more is written, not even a TIP.PGD
  void begin_overflow();  // packets are dropped from here on
  void end_overflow();    // OVF, FUP (or TIP.PGE later)
  void timestamp(uint64_t tsc);
  // The core clock stops until `until`, and continues at the rate `cbr`. `deep`: power-down, after which TSC,
  // TMA and CBR follow (SDM vol. 3, "CYC packets", "TSC packets"). Otherwise only a changed rate produces a
  // packet.
  void sleep(uint64_t until, bool deep, uint8_t cbr);

  // VM entry at the current instruction, the execution of a guest until `until`, whose text may be at
  // `addresses`, and the exit to `host` (SDM vol. 3, "Trace in VMX operation"; the kernel must be traced, as
  // there are no PIPs otherwise).
  void guest(uint64_t until, Addr host, std::span<const Addr> addresses, SimRandom& random);

  bool running() const { return running_; }
  // Would the current instruction be traced?
  bool traced() const { return running_ && !overflow_ && in_context(user_); }

  // The effect of the current instruction.
  void cond(bool taken);
  void call(Addr return_address, Addr target);
  void call_indirect(Addr return_address, Addr target);
  void ret(Addr target);
  void jump_indirect(Addr target);
  void ptwrite(uint64_t payload);
  void mov_cr3(uint64_t cr3);
  // Far transfer or, with `async`, an interrupt or exception at the current instruction.
  void transfer(Addr target, bool to_user, bool async);

  PtWriter& writer() { return writer_; }
  const PtWriter& writer() const { return writer_; }
  const TracerConfig& config() const { return config_; }

 private:
  bool in_context(bool user) const { return user ? config_.user : config_.kernel; }
  void flush_tnt();
  void stamp();
  void psb(bool with_ip);
  void due_mtc();
  void tip(Addr target);
  void enable(Addr target);
  void push(Addr return_address);
  PsbPlus::Tma tma() const;
  uint64_t ctc(uint64_t tsc) const { return tsc * config_.tsc_ctc_d / config_.tsc_ctc_n; }

  TracerConfig config_;
  PtWriter writer_;
  uint8_t cbr_;  // now; config_.cbr is the TSC's own
  bool running_ = false;
  bool overflow_ = false;
  bool psb_wanted_ = false;
  Addr ip_ = 0;
  bool user_ = false;
  uint64_t cr3_ = 0;
  uint64_t tsc_ = 0;
  uint64_t mtc_done_ = 0;  // number of the last MTC period written
  uint64_t cyc_at_ = 0;
  uint64_t psb_at_ = 0;  // offset
  uint64_t psb_tsc_ = 0;
  std::vector<Addr> returns_;
};

}  // namespace asof::test
