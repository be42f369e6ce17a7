// Clock: TSC from the timing packets of one segment, and perf time from TSC. Intel SDM vol. 3, "Intel PT:
// Timing packets" (TSC, TMA, MTC, CYC, CBR); conversion as tools/perf/util/tsc.c.
//
// Two answers are kept apart. now(): the best estimate at the current packet. floor() and ceiling(): what is
// certain of it, for the choice of text versions. TSC and MTC are exact (to a CTC tick's rounding); a CYC
// estimate is only as good as the measured ratio of TSC ticks per cycle, and counts for bounds with a margin
// of an eighth.
#pragma once
#include <cstdint>
#include <optional>

#include "arch/x86/packet.h"
#include "arch/x86/x86.h"
#include "textstore/time.h"

namespace asof::x86 {

class Clock {
 public:
  Clock() = default;
  // `reference`: full TSC near the trace, to extend the packets' 56 bits; 0: none.
  // `skip_first`: the first MTC does not calibrate (SKL168).
  Clock(const Config& config, uint64_t reference, bool skip_first = false)
      : config_(&config), tsc_(reference), skip_calibration_(skip_first) {}

  // Takes TSC, TMA, MTC, CYC, CBR and PIP; others are ignored. Returns true when now() may have moved: never
  // for an MTC without a TMA before it, which says nothing.
  bool update(const Packet& k);
  // VMX non-root operation, by the last PIP. TSC and TMA are the guest's then (SDM vol. 3, "TSC packets":
  // with the VMX TSC offset and scaling) and say nothing of the host's time. CTC is not the guest's, so MTCs
  // count on from the host's TMA, until the first TSC of the guest: what it follows (a sleep) may have
  // skipped any number of MTCs.
  bool guest() const { return guest_; }
  // Config::guest_text: no PIP is of another than the traced machine.
  bool heeds_nr() const { return config_ == nullptr || !config_->guest_text; }
  void set_guest(bool guest) { guest_ = guest; }
  // Until the first TSC: it is not earlier than this.
  void set_not_before(Time t) { not_before_ = t; }

  // kTimeMin when there is no time yet or no conversion.
  Time now() const { return have_ ? to_time(estimate()) : not_before_; }
  Time floor() const { return have_ ? to_time(bound(-1)) : not_before_; }
  // kTimeMax when nothing bounds it from above.
  Time ceiling() const { return have_ ? to_time(bound(+1)) : kTimeMax; }
  bool has_time() const { return have_ && config_->time.has_value(); }
  bool knows_mtc() const { return have_tma_; }     // else MTCs say nothing
  bool calibrated() const { return ratio_ != 0; }  // cycles count

 private:
  uint64_t estimate() const { return tsc_ + cycles_to_tsc(cycles_); }
  uint64_t bound(int side) const;
  uint64_t cycles_to_tsc(uint64_t cycles) const {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(cycles) * ratio_) >> kRatioBits);
  }
  Time to_time(uint64_t tsc) const { return has_time() ? config_->time->to_perf(tsc) : kTimeMin; }
  void on_tsc(uint64_t payload);
  void on_tma(uint64_t ctc, uint64_t fc);
  void on_mtc(uint8_t payload);
  void on_cbr(uint8_t cbr);
  void anchor(uint64_t tsc);  // an exact point in time: calibrates, drops the cycles counted so far

  static constexpr unsigned kRatioBits = 16;
  const Config* config_ = nullptr;
  uint64_t tsc_ = 0;        // at the last exact point
  uint64_t cycles_ = 0;     // since then
  uint64_t ratio_ = 0;      // TSC ticks per cycle, kRatioBits fraction bits; 0: unknown, cycles do not count
  uint64_t mtc_base_ = 0;   // TSC when CTC stood at the TMA's value
  uint64_t ctc_since_ = 0;  // CTC ticks since then
  uint32_t last_ctc_ = 0;   // low bits, as far as MTC tells them
  uint8_t cbr_ = 0;
  Time not_before_ = kTimeMin;  // while no TSC was seen
  bool guest_ = false;
  bool have_ = false;  // a TSC was seen
  bool have_tma_ = false;
  bool skip_calibration_ = false;
  bool mtc_high_known_ = false;  // the CTC bits above the TMA's 16 are known (mtc_freq > 8)
};

}  // namespace asof::x86
