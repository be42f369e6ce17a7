// Deframer: one section of CoreSight frames (Arm IHI 0029, "Trace Formatter" and "TPIU"), frame by frame.
// State is small and copyable, so that reading can start again at a checkpoint.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "decoder/cs_frames.h"

namespace asof {

inline constexpr size_t kFrameSize = 16;
inline constexpr size_t kPlainBytes = 15;         // that a frame without an ID carries
inline constexpr uint8_t kNoTraceId = 0;          // the formatter's own: padding
inline constexpr uint8_t kUnknownTraceId = 0xff;  // no ID seen yet; IDs have seven bits

// 1 to 0x6f are trace sources; 0 is padding, the rest is the formatter's or reserved.
constexpr bool is_source_id(uint8_t id) { return id > 0 && id < 0x70; }

// Bytes of one source that follow each other within a frame.
struct FrameRun {
  uint8_t id = kNoTraceId;
  uint8_t count = 0;
  const uint8_t* data = nullptr;
  const uint8_t* places = nullptr;  // of each byte, its offset in the section minus `base`
  uint64_t base = 0;
};

class Deframer {
 public:
  Deframer(std::span<const uint8_t> bytes, FrameAlignment alignment, uint64_t offset = 0,
           uint8_t id = kUnknownTraceId)
      : bytes_(bytes), alignment_(alignment), offset_(offset), id_(id), synced_(offset != 0) {}

  // Where the next frame starts, and the source its first byte belongs to.
  uint64_t offset() const { return offset_; }
  uint8_t id() const { return id_; }

  enum class Item : uint8_t {
    kFrame,     // runs() are its bytes
    kBarrier,   // trace before and after it do not belong together
    kUnsynced,  // skipped() bytes from skipped_at() on are no frame
    kPartial,   // likewise, the last of the section
    kEnd,
  };
  Item next();
  // Steps over the next frame if all that it carries is of one source, which is id() then: it names no ID, or
  // one in its first byte. Nearly every frame is so where sources seldom take turns. `count` 0: this one is
  // not, next() tells what it is.
  struct Plain {
    const uint8_t* frame = nullptr;
    size_t count = 0;  // bytes it carries
    // Writes them; `out` has room for a whole frame.
    void copy(uint8_t* out) const {
      const auto with_low_bits = [this](unsigned half) {
        constexpr uint64_t kEven = 0x0001000100010001;
        const uint64_t bits = frame[15] >> (4 * half) & 0xfU;  // to places 0, 16, 32 and 48
        return half_of(frame + 8 * half) | ((bits * 0x0000200040008001) & kEven);
      };
      const uint64_t low = with_low_bits(0), high = with_low_bits(1);
      const bool named = count < kFrameSize - 1;
      put_half(out, named ? low >> 8 | high << 56 : low);
      put_half(out + 8, named ? high >> 8 : high);
    }
  };
  Plain next_plain() {
    constexpr uint64_t kIdBits = 0x0001000100010001;
    if (alignment_ != FrameAlignment::kMemory || bytes_.size() - offset_ < kFrameSize) return {};
    const uint8_t* const frame = bytes_.data() + offset_;
    if (((half_of(frame) & (kIdBits - 1)) | (half_of(frame + 8) & kIdBits)) != 0) return {};
    const bool named = (frame[0] & 1U) != 0;
    if (named) {
      const uint8_t id = frame[0] >> 1U;
      const bool late = (frame[15] & 1U) != 0;
      if (late && id != id_) return {};
      id_ = id;
    }
    offset_ += kFrameSize;
    return {frame, named ? kFrameSize - 2 : kFrameSize - 1};
  }
  std::span<const FrameRun> runs() const { return {runs_.data(), run_count_}; }
  uint64_t skipped() const { return skipped_; }
  uint64_t skipped_at() const { return skipped_at_; }

 private:
  static uint64_t half_of(const uint8_t* p) {
    uint64_t v = 0;
    std::memcpy(&v, p, sizeof(v));
    return std::endian::native == std::endian::little ? v : __builtin_bswap64(v);
  }
  static void put_half(uint8_t* p, uint64_t v) {
    if (std::endian::native != std::endian::little) v = __builtin_bswap64(v);
    std::memcpy(p, &v, sizeof(v));
  }
  Item next_in_memory();
  Item next_from_port();
  Item search_sync();
  bool gather_frame();
  void unpack(uint64_t base);
  void add(uint8_t id, uint8_t value, uint8_t place);
  Item skip(Item item, uint64_t from, uint64_t to);

  std::span<const uint8_t> bytes_;
  FrameAlignment alignment_;
  uint64_t offset_ = 0;
  uint8_t id_ = kUnknownTraceId;
  bool synced_ = false;
  std::array<uint8_t, kFrameSize> frame_{},
      place_of_{};  // of the frame at hand; place_of_: offset minus base
  std::array<uint8_t, kFrameSize> data_{}, places_{};
  std::array<FrameRun, kFrameSize> runs_{};
  size_t run_count_ = 0, data_count_ = 0;
  uint64_t skipped_ = 0, skipped_at_ = 0;
};

}  // namespace asof
