#include "arch/x86/clock.h"

#include <algorithm>

namespace asof::x86 {
namespace {

constexpr uint64_t kTscMask = (1ULL << 56) - 1;

}  // namespace

bool Clock::update(const Packet& k) {
  switch (k.type) {
    case Pk::kPip:
      guest_ = k.value2 != 0 && heeds_nr();
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
      // A hostile trace can count any number of cycles; beyond 2^44 (hours) they mean nothing.
      cycles_ = std::min<uint64_t>(cycles_ + k.value, 1ULL << 44);
      return true;
    default:
      return false;
  }
}

uint64_t Clock::bound(int side) const {
  const uint64_t est = cycles_to_tsc(cycles_);
  const uint64_t margin = est / 8 + (cycles_ != 0 ? 16 : 0);
  if (side < 0) return tsc_ + (est > margin ? est - margin : 0);
  return tsc_ + est + margin;
}

void Clock::anchor(uint64_t tsc) {
  if (have_ && cycles_ != 0 && tsc > tsc_ && !skip_calibration_) {
    const uint64_t ratio = ((tsc - tsc_) << kRatioBits) / cycles_;
    // Cycles do not count while the core sleeps: a ratio out of any clock's range measures the sleep, not the
    // clock.
    if (ratio >= (1U << kRatioBits) / 16 && ratio <= (16U << kRatioBits)) ratio_ = ratio;
  }
  skip_calibration_ = false;
  tsc_ = tsc;
  cycles_ = 0;
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
  if (have_)
    anchor(tsc);
  else {
    tsc_ = tsc;
    cycles_ = 0;
  }
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
  ctc_since_ += (ctc - last_ctc_) & ((1U << bits) - 1);
  last_ctc_ = ctc;
  const uint64_t tsc = mtc_base_ + static_cast<uint64_t>(static_cast<unsigned __int128>(ctc_since_) *
                                                         config_->tsc_ctc_n / config_->tsc_ctc_d);
  anchor(std::max(tsc, tsc_));  // never backwards: a TSC between two ticks may be past the rounded tick
}

void Clock::on_cbr(uint8_t cbr) {
  if (cbr == 0 || cbr == cbr_ || config_->max_nonturbo == 0) return;
  cbr_ = cbr;
  // Fold what was counted at the old ratio into the base, then count on at the new one.
  tsc_ += cycles_to_tsc(cycles_);
  cycles_ = 0;
  ratio_ = (static_cast<uint64_t>(config_->max_nonturbo) << kRatioBits) / cbr;
}

}  // namespace asof::x86
