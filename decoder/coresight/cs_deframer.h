// Deframer: one section of CoreSight frames (Arm IHI 0029, "Trace Formatter" and "TPIU"), frame by frame.
// State is small and copyable, so that reading can restart at a checkpoint.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "decoder/coresight/cs_frames.h"

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
  // Where sources seldom alternate, nearly every frame carries bytes of one source only: it names no ID, or
  // one in its first byte. Such a frame is stepped over by skip_plain(), which returns how many bytes it
  // carries, all of id(); 0: it is none. copy_plain() takes the bytes of `id` out of all that follow each
  // other, while `out` has room for a frame, and returns how many it wrote. next() reports what comes then.
  size_t skip_plain() {
    const uint8_t* p = bytes_.data() + offset_;
    Plain frame;
    if (alignment_ != FrameAlignment::kMemory || bytes_.size() - offset_ < kFrameSize ||
        !read_plain(p, frame))
      return 0;
    offset_ += kFrameSize;
    return frame.count;
  }
  size_t copy_plain(uint8_t id, std::span<uint8_t> out) {
    if (alignment_ != FrameAlignment::kMemory) return 0;
    const uint8_t* p = bytes_.data() + offset_;
    size_t written = 0;
    Plain frame;
    while (bytes_.size() - offset_ >= kFrameSize && out.size() - written >= kFrameSize &&
           read_plain(p, frame)) {
      p += kFrameSize;
      offset_ += kFrameSize;
      if (id_ != id) continue;
      put_half(out.data() + written, frame.low);
      put_half(out.data() + written + 8, frame.high);
      written += frame.count;
    }
    return written;
  }
  std::span<const FrameRun> runs() const { return {runs_.data(), run_count_}; }
  uint64_t skipped() const { return skipped_; }
  uint64_t skipped_at() const { return skipped_at_; }

 private:
  struct Plain {
    uint64_t low = 0, high = 0;  // the bytes it carries
    size_t count = 0;            // how many
  };
  bool read_plain(const uint8_t* p, Plain& out) {
    constexpr uint64_t kEven = 0x0001000100010001;
    // Four bits, to the lowest ones of the bytes at even places.
    const auto spread = [](uint64_t bits) { return (bits * 0x0000200040008001) & kEven; };
    uint64_t low = half_of(p), high = half_of(p + 8);
    if (((low & (kEven - 1)) | (high & kEven)) != 0) return false;
    const uint64_t flags = high >> 56;
    const bool named = (low & 1) != 0;
    if (named) {
      const auto id = static_cast<uint8_t>((low & 0xff) >> 1);
      const bool late = (flags & 1) != 0;
      if (late && id != id_) return false;
      id_ = id;
    }
    low |= spread(flags & 0xf);
    high |= spread(flags >> 4);
    out.low = named ? low >> 8 | high << 56 : low;
    out.high = named ? high >> 8 : high;
    out.count = named ? kFrameSize - 2 : kFrameSize - 1;
    return true;
  }
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
      place_of_{};  // of the current frame; place_of_: offset minus base
  std::array<uint8_t, kFrameSize> data_{}, places_{};
  std::array<FrameRun, kFrameSize> runs_{};
  size_t run_count_ = 0, data_count_ = 0;
  uint64_t skipped_ = 0, skipped_at_ = 0;
};

}  // namespace asof
