#include "arch/x86/mtc_check.h"

#include <algorithm>

#include "arch/x86/packet.h"

namespace asof::x86 {
namespace {

constexpr uint64_t kTscMask = (1ULL << 56) - 1;
constexpr uint64_t kNone = UINT64_MAX;
constexpr uint64_t kFewest = 4;  // MTCs; fewer say too little about their distance

// Consecutive MTCs: one whose payload is one more than that of the last comes one period after it (SDM vol. 3, "MTC
// packets"), whatever was sent between. So a TSC with one on either side is known to a period.
class MtcCount {
 public:
  explicit MtcCount(const Config& config) : config_(&config) {}

  void take(const Packet& k, MtcFit& fit) {
    if (k.type == Pk::kPip) guest_ = (k.value2 != 0) != config_->guest_text;
    if (guest_ || k.type == Pk::kOvf) return reset();
    if (k.type == Pk::kTsc) latest_ = k.value & kTscMask;
    if (k.type == Pk::kMtc) take_mtc(static_cast<uint8_t>(k.value), fit);
  }

 private:
  void reset() {
    payload_ = kNone;
    first_ = latest_ = kNone;
  }
  void take_mtc(uint8_t payload, MtcFit& fit) {
    if (payload != static_cast<uint8_t>(payload_ + 1)) reset();
    const bool timed = payload_ != kNone && latest_ != kNone;
    payload_ = payload;
    if (timed && first_ == kNone) {
      first_ = latest_;
      mtcs_ = 0;
    } else if (timed && mtcs_ >= kFewest) {
      const uint64_t passed = (latest_ - first_) & kTscMask;
      ++fit.checked;
      if (passed + 1 < ticks(mtcs_ - 1) || passed > ticks(mtcs_ + 1) + 1) ++fit.wrong;
    }
    latest_ = kNone;
    ++mtcs_;
  }
  uint64_t ticks(uint64_t periods) const {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(periods) << config_->mtc_freq) *
                                 config_->tsc_ctc_n / config_->tsc_ctc_d);
  }

  const Config* config_;
  uint64_t payload_ = kNone;                 // of the last MTC
  uint64_t first_ = kNone, latest_ = kNone;  // TSC: the first of them, and one since the last MTC
  uint64_t mtcs_ = 0;                        // since the first TSC
  bool guest_ = false;
};

}  // namespace

MtcFit check_mtc(const Stream& stream, const Config& config, uint64_t most_bytes, uint32_t most_checks) {
  MtcFit fit;
  if (config.tsc_ctc_d == 0 || config.tsc_ctc_n == 0) return fit;
  for (const StreamPiece& piece : stream.pieces) {
    const auto bytes = piece.bytes.first(std::min<uint64_t>(piece.bytes.size(), most_bytes));
    MtcCount count(config);
    size_t at = find_psb(bytes, 0);
    uint8_t block_bytes = 0;
    while (at < bytes.size() && fit.checked < most_checks) {
      if (block_bytes == 0 && is_short_tnt(bytes[at])) {  // which most bytes are
        ++at;
        continue;
      }
      const Packet k = read_packet(bytes.data() + at, bytes.data() + bytes.size(), block_bytes);
      if (k.type == Pk::kEnd) break;
      if (k.type == Pk::kBad) {
        count = MtcCount(config);
        at = find_psb(bytes, at + 1);
        block_bytes = 0;
        continue;
      }
      count.take(k, fit);
      block_bytes = next_block_bytes(k, block_bytes);
      at += k.size;
    }
  }
  return fit;
}

}  // namespace asof::x86
