// Clock: TSC from the timing packets of one segment, and perf time from TSC. Intel SDM vol. 3, "Intel PT:
// Timing packets" (TSC, TMA, MTC, CYC, CBR); conversion as tools/perf/util/tsc.c.
//
// Two answers are kept apart. now(): the best estimate at the current packet. floor() and ceiling(): what is
// certain of it, for the choice of text versions. TSC and MTC are exact (to a CTC tick's rounding). The cycle
// counter stands still in sleep (SDM vol. 3, "CYC packets": powered-down states). So cycles prove that some
// time has passed, by a rate that the core has not exceeded, less an eighth; they never prove that no more
// has. A rate is what CBR says, or was measured between one MTC and the very next: a sleep ends with a TSC
// packet.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>

#include "arch/x86/config.h"
#include "arch/x86/packet.h"
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
  // VMX non-root operation, by the last PIP (of another machine than the text's, at any rate:
  // Config::guest_text). TSC and TMA are the guest's then (SDM vol. 3, "TSC packets":
  // with the VMX TSC offset and scaling) and say nothing of the host's time. CTC is not the guest's, so MTCs
  // count on from the host's TMA, until the first TSC of the guest: what it follows (a sleep) may have
  // skipped any number of MTCs.
  bool guest() const { return guest_; }
  bool guest_text() const { return config_->guest_text; }
  // Until the first TSC: it is not earlier than this.
  void set_not_before(Time t) { not_before_ = t; }

  // kTimeMin when there is no time yet or no conversion.
  Time now() const { return have_ ? to_time(estimate()) : not_before_; }
  Time floor() const { return have_ ? to_time(lowest()) : not_before_; }
  // kTimeMax when nothing bounds it from above: so it is but at a TSC or MTC.
  Time ceiling() const { return have_ && exact_ ? to_time(tsc_) : kTimeMax; }
  bool has_time() const { return have_ && config_->time.has_value(); }
  bool knows_mtc() const { return have_tma_; }     // else MTCs say nothing
  bool calibrated() const { return ratio_ != 0; }  // cycles count
  bool exact() const { return exact_; }            // at a TSC or MTC

 private:
  uint64_t estimate() const { return tsc_ + passed_ + to_ticks(cycles_, ratio_); }
  uint64_t lowest() const { return tsc_ + passed_at_least_ + at_least(); }
  // Of the cycles counted at this rate. A measured rate without a CBR to compare it with proves nothing: a
  // stop of the core, or cycles that were not reported yet, may be in it.
  uint64_t at_least() const {
    if (cbr_ == 0 || config_->max_nonturbo == 0) return 0;
    const uint64_t ticks = to_ticks(cycles_, std::min(ratio_, low_ratio_));
    const uint64_t margin = ticks / 8 + 16;
    return ticks > margin ? ticks - margin : 0;
  }
  static uint64_t to_ticks(uint64_t cycles, uint64_t ratio) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(cycles) * ratio) >> kRatioBits);
  }
  // The rate of the CBR, 0: not known.
  uint64_t cbr_ratio() const {
    return cbr_ == 0 ? 0 : (static_cast<uint64_t>(config_->max_nonturbo) << kRatioBits) / cbr_;
  }
  Time to_time(uint64_t tsc) const { return has_time() ? config_->time->to_perf(tsc) : kTimeMin; }
  void on_tsc(uint64_t payload);
  void on_tma(uint64_t ctc, uint64_t fc);
  void on_mtc(uint8_t payload);
  void on_cbr(uint8_t cbr);
  void on_cyc(uint64_t cycles);
  void change_ratio(uint64_t ratio);
  // An exact point in time: drops the cycles counted so far. `next_mtc`: they measure the rate.
  void anchor(uint64_t tsc, bool next_mtc);

  static constexpr unsigned kRatioBits = 16;
  static constexpr uint64_t kNoRatio = UINT64_MAX;
  const Config* config_ = nullptr;
  uint64_t tsc_ = 0;              // at the last exact point
  uint64_t passed_ = 0;           // ticks since then, by cycles at other rates than this, as estimated
  uint64_t passed_at_least_ = 0;  // and as certain
  uint64_t cycles_ = 0;           // since then, at this rate
  uint64_t ratio_ = 0;  // TSC ticks per cycle, kRatioBits fraction bits; 0: unknown, cycles do not count
  uint64_t low_ratio_ = kNoRatio;  // the rate until just now: the core may have had it up to the next CYC
  bool rate_changed_ = false;      // since the last exact point
  bool exact_ = true;              // no cycles since then
  uint64_t mtc_base_ = 0;          // TSC when CTC was at the TMA's value
  uint64_t ctc_since_ = 0;         // CTC ticks since then
  uint32_t last_ctc_ = 0;          // low bits, as far as MTC has them
  uint8_t cbr_ = 0;
  Time not_before_ = kTimeMin;  // while no TSC was seen
  bool guest_ = false;
  bool have_ = false;  // a TSC was seen
  bool have_tma_ = false;
  bool skip_calibration_ = false;
  bool mtc_high_known_ = false;  // the CTC bits above the TMA's 16 are known (mtc_freq > 8)
};

}  // namespace asof::x86
