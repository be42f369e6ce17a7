// The Embedded Trace Extension of one CPU: given what executes, it decides which packets result. The sections beside the
// rules in trace_unit.cpp and trace_buffer.cpp are those of DDI 0487 (an edition with FEAT_ITE and FEAT_TRBE_EXC), chapters
// D3, D4 "The Embedded Trace Extension" and D6.2 and D6.3 of "The Trace Buffer Extension": titles and rules (R_...) were
// compared with its text. From memory are the encodings of packets (OpenCSD reads every one of them) and the registers' numbers and reset
// values (Linux's drivers take the unit for one). Knows nothing of QEMU. Not modelled: Secure and Realm state, EL2, AArch32, transactions, VMIDs, speculation
// (TRCIDR8 is 0), Q elements, events, single-shot comparators, the sequencer, data breaks.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tests/support/etm_writer.h"
#include "tools/board/ete_plugin/registers.h"

namespace asof::ete {

class TraceUnit {
 public:
  // Takes a packet towards the trace buffer. False: it was lost, or its end was.
  using Output = std::function<bool(std::span<const uint8_t>)>;

  // Told how many P0 elements have been given to the output by now, and whether the last of them were lost.
  using OnElements = std::function<void(uint64_t elements, bool lost)>;
  // Told before the bytes of an A-Sync are given to the output.
  using OnSync = std::function<void()>;

  TraceUnit(const Registers& registers, Output output, OnElements on_elements, OnSync on_sync);

  bool enabled() const { return enabled_; }
  bool tracing() const {
    return on_ && !leaving_;
  }                                  // ViewInst active and not prohibited for the current instruction
  bool open() const { return on_; }  // or it is not, but the one before it was traced
  void enable();                     // TRCPRGCTLR.EN
  void disable();

  // Before the instruction at `ip` runs. `time`: the counter, none while it is not known.
  void stand(uint64_t ip, std::optional<uint64_t> time);
  // It has retired and `next` follows. `cycles`: of this CPU since power-on.
  void retire(Kind kind, uint64_t ip, uint64_t next, uint64_t cycles, std::optional<uint64_t> time);
  // `from`: the preferred return address; `vector`: where it went.
  void exception(uint16_t type, uint64_t from, uint64_t vector, uint64_t cycles,
                 std::optional<uint64_t> time);
  // CONTEXTIDR_EL1 has been written. It and TRFCR_EL1 take effect with the next ISB, exception or return from one.
  void write_context_id(uint32_t value) { next_context_id_ = value; }

  void flush();             // TSB CSYNC
  void request_sync();      // the trace buffer accepts trace again
  void begin_after_loss();  // likewise, and trace was lost meanwhile

  uint64_t made() const { return made_; }  // P0 elements
  bool lost() const { return lost_; }      // the last output was not accepted

 private:
  struct Target {
    uint64_t address = 0;
    bool with_context = false;
  };
  void synchronize();
  bool active(uint64_t ip) const;
  bool permitted(uint64_t ip) const;
  bool included(uint64_t ip) const;
  bool resource(uint64_t selector) const;
  bool in_range(unsigned pair, uint64_t ip) const;
  void start(uint64_t ip, std::optional<uint64_t> time);
  void stop();
  void leave(uint64_t next);
  void sync(std::optional<uint64_t> time);
  void atom(bool taken);
  void write_target();
  void after_element(uint64_t next, uint64_t cycles, std::optional<uint64_t> time, bool synchronized);
  void timestamp(uint64_t cycles, uint64_t time);
  void count(uint64_t cycles);
  bool timestamp_due(uint64_t cycles);
  bool broadcast(uint64_t ip) const;
  void push(uint64_t ip);
  bool pop(uint64_t ip, uint64_t next);
  test::EtmContext context(uint64_t ip) const;
  void drain();

  const Registers& registers_;
  Output output_;
  OnElements on_elements_;
  OnSync on_sync_;
  test::EtmWriter writer_;
  std::vector<uint64_t> returns_;
  std::optional<Target> target_;
  uint64_t config_ = 0;
  uint64_t trfcr_ = 0;  // as in effect
  uint64_t written_bytes_ = 0, synced_at_ = 0;
  uint64_t made_ = 0, given_ = 0, counted_at_ = 0, stamped_at_ = 0;
  uint32_t context_id_ = 0, next_context_id_ = 0;
  bool enabled_ = false, on_ = false, want_sync_ = false, lost_ = false, filters_ = false;
  bool new_context_ = false, wants_time_ = false;
  bool counted_ = false;  // there was a cycle count since the unit was enabled
  bool leaving_ =
      false;  // on, and the current instruction is out of the address ranges: only an exception can be traced
};

}  // namespace asof::ete
