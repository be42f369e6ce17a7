// PathWindow: how long the packets of a path (path_cache.h) are, wherever one may begin. Where the next path begins waits for
// that, and working it out from one path's packets takes some 18 cycles, more than half of what a known path takes otherwise.
// So it is worked out for all bytes of a window of the trace, 16 or 32 at a time, before it is known where paths begin.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace asof::x86 {

// Bytes of a path's packets. 0: there is no path.
class PathSize {
 public:
  static constexpr unsigned kFull = 4;  // TNT packets of six bits at the most, before one more and a TIP
  static constexpr unsigned kMost = kFull + 1 + 7;
  static constexpr uint8_t kTnt = 0x11;  // what a TNT packet adds to packed()
  static constexpr unsigned kMtc = 2;    // bytes of an MTC that may follow
  explicit PathSize(uint8_t packed) : packed_(packed) {}

  unsigned all() const { return packed_ & 0xfU; }
  unsigned tnts() const { return packed_ >> 4; }
  // Both in one number.
  uint64_t packed() const { return packed_; }

 private:
  uint32_t packed_;
};

class PathWindow {
 public:
  // `wide`: 32 bytes at a time; where has_wide().
  explicit PathWindow(bool wide = has_wide()) : wide_(wide) {}
  static bool has_wide();
  // What it covered has become something else.
  void forget() { begin_ = end_ = nullptr; }
  // Has `p`, and kCovered bytes behind it; what is not before `end` counts as PAD packets.
  void cover(const uint8_t* p, const uint8_t* end);
  bool covers(const uint8_t* p) const { return p >= begin_ && p < end_; }
  // With it, behind_path() is behind an MTC that follows the path, too: for those that say nothing.
  void go_over_mtc(bool over) {
    if (over == over_mtc_) return;
    over_mtc_ = over;
    forget();
  }
  const uint8_t* end() const { return end_; }

  // A place of the window, where the bytes of the trace are again, with some behind what is covered.
  const uint8_t* place(const uint8_t* p) const { return bytes_.data() + (p - begin_); }
  const uint8_t* at(const uint8_t* place) const { return begin_ + (place - bytes_.data()); }
  // Of the path there; at most PathSize::kMost and an MTC behind what is covered.
  static PathSize size_at(const uint8_t* place) { return PathSize{place[kRow]}; }
  // Where the next path may begin, if there is one.
  static const uint8_t* behind_path(const uint8_t* place) { return place + place[2 * kRow]; }

 private:
  static constexpr size_t kLanes = 32;  // at the most
  static constexpr size_t kCovered = 512;
  // As many more as decide how long the last is, and the one after it.
  static constexpr size_t kWorked = kCovered + kLanes;
  static_assert(PathSize::kMost + PathSize::kMtc + PathSize::kFull + 2 < kLanes);
  static_assert(kWorked % kLanes == 0);
  static constexpr size_t kRow = kWorked + kLanes;  // the last lanes are read as what follows, and are zeros
  void work_out(const uint8_t* p);
  void work_out_wide(const uint8_t* p);
  template <class Lanes>
  void work_out_in(const uint8_t* p);
  template <class Lanes, bool kOverMtc>
  void work_out_by(const uint8_t* p);

  const bool wide_;
  const uint8_t* begin_ = nullptr;
  const uint8_t* end_ = nullptr;
  bool over_mtc_ = false;
  // Those of the trace, then of each the size of a path there and how far on the next may begin.
  alignas(kLanes) std::array<uint8_t, 3 * kRow> bytes_{};
};

}  // namespace asof::x86
