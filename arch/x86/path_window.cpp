// How the sizes of paths in a window are worked out.
#include "arch/x86/path_window.h"

#include <cstring>

namespace asof::x86 {
namespace {

// Bytes that are worked on at once; a comparison makes all bits of a byte.
using Lanes = uint8_t __attribute__((vector_size(16)));

Lanes load(const uint8_t* p) {
  Lanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
void store(uint8_t* p, Lanes v) { std::memcpy(p, &v, sizeof v); }
Lanes equal(Lanes a, uint8_t b) { return reinterpret_cast<Lanes>(a == Lanes{} + b); }

// Two at a time.
template <class F>
void for_all_lanes(size_t end, F work) {
  for (size_t i = 0; i < end; i += 2 * sizeof(Lanes)) {
    work(i);
    work(i + sizeof(Lanes));
  }
}

}  // namespace

void PathWindow::cover(const uint8_t* p, const uint8_t* end) {
  begin_ = p;
  end_ = p + kCovered;
  const auto left = static_cast<size_t>(end - p);
  if (left >= kWorked) return work_out(p);
  std::array<uint8_t, kWorked> padded{};
  std::memcpy(padded.data(), p, left);
  work_out(padded.data());
}

// Row by row: what is next to a byte is in the same row, one further.
void PathWindow::work_out(const uint8_t* p) {
  alignas(kLanes) std::array<uint8_t, kRow> tips;   // size of a TIP that ends a path
  alignas(kLanes) std::array<uint8_t, kRow> ends;   // packed size without a TNT packet of six bits; else 0
  alignas(kLanes) std::array<uint8_t, kRow> fulls;  // all bits: there is one
  uint8_t* const sizes = bytes_.data() + kRow;
  store(&tips[kWorked], Lanes{});
  store(&fulls[kWorked], Lanes{});
  for_all_lanes(kWorked, [&](size_t i) {
    const Lanes b = load(p + i);
    store(&bytes_[i], b);
    store(&tips[i], (equal(b, 0x2d) & 3) | (equal(b, 0x4d) & 5) | (equal(b, 0x6d) & 7));
  });
  for_all_lanes(kWorked, [&](size_t i) {
    const Lanes b = load(&bytes_[i]);
    const Lanes full = equal(b & 0x81, 0x80);
    const Lanes tnt = ~equal(b & 0xfc, 0) & equal(b & 1, 0);
    const Lanes size = (tnt & (load(&tips[i + 1]) + PathSize::kTnt)) | (~tnt & load(&tips[i]));
    store(&fulls[i], full);
    store(&ends[i], ~full & size);
    store(&sizes[i], size);
  });
  // With one TNT packet of six bits in front, with two, with four.
  for (int times = 0; times < 2; ++times) {
    for_all_lanes(kWorked, [&](size_t i) {
      store(&sizes[i], (load(&fulls[i]) & (load(&sizes[i + 1]) + PathSize::kTnt)) | load(&ends[i]));
    });
  }
  for_all_lanes(kWorked, [&](size_t i) {
    const Lanes two = load(&fulls[i]) & load(&fulls[i + 1]);
    store(&sizes[i], (two & (load(&sizes[i + 2]) + 2 * PathSize::kTnt)) | (~two & load(&sizes[i])));
  });
}

}  // namespace asof::x86
