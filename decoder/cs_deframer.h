// Deframer: one section of CoreSight frames (Arm IHI 0029, "Trace Formatter" and "TPIU"), frame by frame.
// State is small and copyable, so that reading can start again at a checkpoint.
#pragma once
#include <array>
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
    void copy(uint8_t* out) const;
  };
  Plain next_plain();
  std::span<const FrameRun> runs() const { return {runs_.data(), run_count_}; }
  uint64_t skipped() const { return skipped_; }
  uint64_t skipped_at() const { return skipped_at_; }

 private:
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
