#include "arch/x86/clock.h"

#include <algorithm>
#include <utility>

namespace asof::x86 {
namespace {

constexpr uint64_t kTscMask = (1ULL << 56) - 1;

}  // namespace

bool Clock::update(const Packet& k) {
  switch (k.type) {
    case Pk::kPip:
      guest_ = (k.value2 != 0) != config_->guest_text;
      return false;
    case Pk::kTsc:
      if (guest_) {
        have_tma_ = false;
        return false;
      }
      on_tsc(k.value);
      return true;
    case Pk::kTma:
      if (guest_) return false;
      on_tma(k.value, k.value2);
      return true;
    case Pk::kMtc:
      if (!have_tma_) return false;
      on_mtc(static_cast<uint8_t>(k.value));
      return true;
    case Pk::kCbr:
      on_cbr(static_cast<uint8_t>(k.value));
      return false;
    case Pk::kCyc:
      on_cyc(k.value);
      return true;
    default:
      return false;
  }
}

void Clock::on_cyc(uint64_t cycles) {
  // A hostile trace can count any number of cycles; beyond 2^44 (hours) they mean nothing.
  constexpr uint64_t kMost = 1ULL << 44;
  exact_ = false;
  cycles_ = std::min(cycles_ + std::min(cycles, kMost), kMost);
  if (low_ratio_ != kNoRatio) change_ratio(ratio_);
}

// What was counted so far was at the old rate; what is counted next may still be.
void Clock::change_ratio(uint64_t ratio) {
  constexpr uint64_t kMost = 1ULL << 54;
  passed_at_least_ = std::min(passed_at_least_ + at_least(), kMost);
  passed_ = std::min(passed_ + to_ticks(cycles_, ratio_), kMost);
  cycles_ = 0;
  low_ratio_ = ratio == ratio_ ? kNoRatio : ratio_;
  constexpr uint64_t kMostRatio = 256ULL << kRatioBits;
  ratio_ = std::min(ratio, kMostRatio);
}

void Clock::anchor(uint64_t tsc, bool next_mtc) {
  if (next_mtc && cycles_ != 0 && tsc > tsc_ && !skip_calibration_ && !rate_changed_) {
    const uint64_t ratio = ((tsc - tsc_) << kRatioBits) / cycles_;
    const uint64_t said = cbr_ratio();
    constexpr uint64_t kOne = 1U << kRatioBits;
    const bool fits = said == 0 ? ratio >= kOne / 16 && ratio <= kOne * 16
                                : ratio >= said - said / 8 && ratio <= said + said / 8;
    if (fits) ratio_ = ratio;
  }
  skip_calibration_ = rate_changed_ = false;
  tsc_ = tsc;
  cycles_ = passed_ = passed_at_least_ = 0;
  exact_ = true;
}

// The packet has the low 56 bits; the rest is that of the value nearest to what is known.
void Clock::on_tsc(uint64_t payload) {
  uint64_t tsc = (tsc_ & ~kTscMask) | payload;
  if (tsc_ != 0) {
    constexpr uint64_t half = 1ULL << 55;
    if (tsc > tsc_ && tsc - tsc_ > half && tsc > kTscMask)
      tsc -= 1ULL << 56;
    else if (tsc < tsc_ && tsc_ - tsc > half)
      tsc += 1ULL << 56;
  }
  anchor(tsc, false);
  have_ = true;
  have_tma_ = false;
}

void Clock::on_tma(uint64_t ctc, uint64_t fc) {
  if (!have_ || config_->tsc_ctc_d == 0 || config_->tsc_ctc_n == 0) return;
  have_tma_ = true;
  mtc_base_ = tsc_ - fc;
  ctc_since_ = 0;
  const uint32_t bits = config_->mtc_freq + 8U;
  mtc_high_known_ = bits <= 16;
  last_ctc_ = static_cast<uint32_t>(ctc) & ((1U << std::min(bits, 16U)) - 1);
}

void Clock::on_mtc(uint8_t payload) {
  const uint32_t bits = config_->mtc_freq + 8U;
  const uint32_t ctc = static_cast<uint32_t>(payload) << config_->mtc_freq;
  if (!mtc_high_known_) {
    // TMA gave only 16 bits: take the higher ones from this, the next MTC, as if none was lost in between.
    uint32_t high = ctc & ~0xffffU;
    if ((ctc & 0xffffU) < last_ctc_) high -= 0x10000U;
    last_ctc_ |= high & ((1U << bits) - 1);
    mtc_high_known_ = true;
  }
  const bool next = static_cast<uint8_t>((last_ctc_ >> config_->mtc_freq) + 1) == payload;
  ctc_since_ += (ctc - last_ctc_) & ((1U << bits) - 1);
  last_ctc_ = ctc;
  const uint64_t tsc = mtc_base_ + static_cast<uint64_t>(static_cast<unsigned __int128>(ctc_since_) *
                                                         config_->tsc_ctc_n / config_->tsc_ctc_d);
  anchor(std::max(tsc, tsc_), next);  // never backwards: a TSC between two ticks may be past the rounded tick
}

// Sent at every change of the rate, after sleep, and at sync points.
void Clock::on_cbr(uint8_t cbr) {
  if (cbr == 0 || cbr == cbr_) return;
  const uint8_t before = std::exchange(cbr_, cbr);
  rate_changed_ = true;
  // Where the TSC's own ratio is not known, a measured rate changes with the CBR's.
  change_ratio(config_->max_nonturbo != 0 ? cbr_ratio() : ratio_ * before / cbr);
  if (before == 0 && exact_) low_ratio_ = kNoRatio;  // in a PSB+, at the time of its TSC
}

}  // namespace asof::x86
