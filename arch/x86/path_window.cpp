// How the sizes of paths in a window are worked out.
#include "arch/x86/path_window.h"

#include <cstring>

#include "arch/x86/packet.h"

namespace asof::x86 {
namespace {

// Bytes that are worked on at once; a comparison makes all bits of one. No function takes or gives them by value: how that is
// done depends on the processor.
using Lanes16 = uint8_t __attribute__((vector_size(16)));
using Lanes32 = uint8_t __attribute__((vector_size(32)));

}  // namespace

static_assert(PathSize::kMtc == kMtcSize);

void PathWindow::cover(const uint8_t* p, const uint8_t* end) {
  begin_ = p;
  end_ = p + kCovered;
  const auto left = static_cast<size_t>(end - p);
  if (left >= kWorked) return work_out(p);
  std::array<uint8_t, kWorked> padded{};
  std::memcpy(padded.data(), p, left);
  work_out(padded.data());
}

// Row by row: what is next to a byte is in the same row, one further. A path of no bytes in front of an MTC has kMtcNext in its
// size, and every path that ends there has it from that.
template <class Lanes, bool kOverMtc>
[[gnu::always_inline]] inline void PathWindow::work_out_by(const uint8_t* p) {
  constexpr uint8_t kMtcNext = 0x80;
  alignas(kLanes) std::array<uint8_t, kRow> mtcs;   // kMtcNext: an MTC is there
  alignas(kLanes) std::array<uint8_t, kRow> tips;   // size of a TIP that ends a path
  alignas(kLanes) std::array<uint8_t, kRow> ends;   // packed size without a TNT packet of six bits; else 0
  alignas(kLanes) std::array<uint8_t, kRow> fulls;  // all bits: there is one
  uint8_t* const sizes = bytes_.data() + kRow;
  uint8_t* const behind = sizes + kRow;
  if constexpr (kOverMtc) std::memset(&mtcs[kWorked], 0, kLanes);
  std::memset(&tips[kWorked], 0, kLanes);
  std::memset(&fulls[kWorked], 0, kLanes);
  const auto load = [](Lanes & v, const uint8_t* from) __attribute__((always_inline)) {
    std::memcpy(&v, from, sizeof v);
  };
  const auto store = [](uint8_t * to, const Lanes& v) __attribute__((always_inline)) {
    std::memcpy(to, &v, sizeof v);
  };
  for (size_t i = 0; i < kWorked; i += sizeof(Lanes)) {
    Lanes b;
    load(b, p + i);
    store(&bytes_[i], b);
    if constexpr (kOverMtc)
      store(&mtcs[i], static_cast<Lanes>(b == kMtcByte) & kMtcNext);
    else
      store(&tips[i], ((b == 0x2d) & 3) | ((b == 0x4d) & 5) | ((b == 0x6d) & 7));
  }
  if constexpr (kOverMtc) {
    for (size_t i = 0; i < kWorked; i += sizeof(Lanes)) {
      Lanes b, here, behind_two, behind_four, behind_six;
      load(b, &bytes_[i]);
      load(here, &mtcs[i]);
      load(behind_two, &mtcs[i + 3]);
      load(behind_four, &mtcs[i + 5]);
      load(behind_six, &mtcs[i + 7]);
      store(&tips[i], here | ((b == 0x2d) & (behind_two | 3)) | ((b == 0x4d) & (behind_four | 5)) |
                          ((b == 0x6d) & (behind_six | 7)));
    }
  }
  for (size_t i = 0; i < kWorked; i += sizeof(Lanes)) {
    Lanes b, tip, next_tip;
    load(b, &bytes_[i]);
    load(tip, &tips[i]);
    load(next_tip, &tips[i + 1]);
    const Lanes full = (b & 0x81) == 0x80;
    const Lanes tnt = ((b & 0xfc) != 0) & ((b & 1) == 0);
    const Lanes size = (tnt & (next_tip + PathSize::kTnt)) | (~tnt & tip);
    store(&fulls[i], full);
    store(&ends[i], ~full & size);
    store(&sizes[i], size);
  }
  // With one TNT packet of six bits in front, with two, with four.
  for (int times = 0; times < 2; ++times) {
    for (size_t i = 0; i < kWorked; i += sizeof(Lanes)) {
      Lanes full, end, next;
      load(full, &fulls[i]);
      load(end, &ends[i]);
      load(next, &sizes[i + 1]);
      store(&sizes[i], (full & (next + PathSize::kTnt)) | end);
    }
  }
  for (size_t i = 0; i < kWorked; i += sizeof(Lanes)) {
    Lanes full, next_full, size, second;
    load(full, &fulls[i]);
    load(next_full, &fulls[i + 1]);
    load(size, &sizes[i]);
    load(second, &sizes[i + 2]);
    const Lanes two = full & next_full;
    size = (two & (second + 2 * PathSize::kTnt)) | (~two & size);
    if constexpr (kOverMtc) {
      store(&sizes[i], size & static_cast<uint8_t>(~kMtcNext));
      static_assert(kMtcNext >> 6 == kMtcSize);
      store(&behind[i], (size & 0xf) + ((size >> 6) & kMtcSize));
    } else {
      store(&sizes[i], size);
      store(&behind[i], size & 0xf);
    }
  }
}

template <class Lanes>
[[gnu::always_inline]] inline void PathWindow::work_out_in(const uint8_t* p) {
  over_mtc_ ? work_out_by<Lanes, true>(p) : work_out_by<Lanes, false>(p);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void PathWindow::work_out_wide(const uint8_t* p) { work_out_in<Lanes32>(p); }
bool PathWindow::has_wide() { return __builtin_cpu_supports("avx2"); }
#else
void PathWindow::work_out_wide(const uint8_t* p) { work_out_in<Lanes32>(p); }
bool PathWindow::has_wide() { return false; }
#endif

void PathWindow::work_out(const uint8_t* p) { wide_ ? work_out_wide(p) : work_out_in<Lanes16>(p); }

}  // namespace asof::x86
