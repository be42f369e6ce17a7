#include "arch/arm64/stable_text.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "arch/steps.h"
#include "arch/walk/block_cache.h"

namespace asof::arm64 {
namespace {

constexpr auto kLengths = [] {
  std::array<uint8_t, walk::kMaxBlockInsns> all{};
  all.fill(4);
  return all;
}();

// Block::hash of `n` instructions from `ip` on is ip * ones[n] + steps[n].
struct HashSums {
  std::array<uint64_t, walk::kMaxBlockInsns + 1> ones{}, steps{};
};
constexpr auto kHashSums = [] {
  HashSums sums;
  for (uint64_t n = 0; n < walk::kMaxBlockInsns; ++n) {
    sums.ones[n + 1] = sums.ones[n] * kHashFactor + 1;
    sums.steps[n + 1] = sums.steps[n] * kHashFactor + 4 * n;
  }
  return sums;
}();

uint32_t word_at(const uint8_t* p) {
  uint32_t w = 0;
  std::memcpy(&w, p, sizeof(w));
  return std::endian::native == std::endian::little ? w : __builtin_bswap32(w);
}

#ifdef __SSE2__
// Of the eight words at `p`: bit 2 i is set when number i is not plain.
uint32_t not_plain(const uint8_t* p) {
  const auto half = [](const uint8_t* at) {
    const __m128i w = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i group = _mm_and_si128(w, _mm_set1_epi32(7 << 26));
    return _mm_or_si128(_mm_cmpeq_epi32(group, _mm_set1_epi32(5 << 26)),
                        _mm_cmpeq_epi32(_mm_srli_epi32(w, 16), _mm_setzero_si128()));
  };
  return static_cast<uint32_t>(_mm_movemask_epi8(_mm_packs_epi32(half(p), half(p + 16))));
}
#endif

// The first word that is not plain; `end`: there is none.
const uint8_t* skip_plain(const uint8_t* p, const uint8_t* end) {
#ifdef __SSE2__
  // Blocks are short, and where they end no processor foresees: a loop over words would cost more.
  constexpr ptrdiff_t kAtOnce = 32;
  for (; end - p >= kAtOnce; p += kAtOnce) {
    if (const uint32_t found = not_plain(p); found != 0)
      return p + size_t{4} * (static_cast<unsigned>(std::countr_zero(found)) / 2);
  }
#endif
  while (p != end && is_plain_a64(word_at(p))) p += 4;
  return p;
}

}  // namespace

void StableText::find_cell(Space space, Addr a) {
  cell_ = text_.cell(space, a);
  space_ = space;
  version_ = nullptr;
  if (text_at_ == TextAt::kAsof) {
    if (cell_.stable()) version_ = &cell_.versions[0];
  } else {
    const Time at = text_at_ == TextAt::kFirst ? kTimeMin : kTimeMax;
    for (const Version& v : cell_.versions) {
      if (v.from <= at && v.until >= at) version_ = &v;
    }
  }
  if (version_ != nullptr && version_->bytes == nullptr) version_ = nullptr;
}

// One more instruction, which is not plain. False: it is none of the block.
bool StableText::take(uint32_t word, Addr at, Insn& last) const {
  decode_a64(word, at, wfx_, last);
  if (last.waypoint != Waypoint::kTrap) return true;
  last = Insn{};
  return false;
}

bool StableText::read(Space space, Addr ip, Arena& arena, Block& b, Insn& last) {
  if (!contains(space, ip)) return false;
  const Version version = *version_;
  const AddrRange cell = cell_.range;
  const uint8_t* bytes = version.bytes + (ip - cell.begin);
  const uint8_t* const end = bytes + 4 * std::min<uint64_t>((cell.end - ip) / 4, walk::kMaxBlockInsns);
  const uint8_t* p = bytes;
  bool open = true;  // nothing but `end` has ended it
  last = Insn{};
  while (open && (p = skip_plain(p, end)) != end) {
    const bool taken = take(word_at(p), ip + static_cast<size_t>(p - bytes), last);
    p += taken ? 4 : 0;
    open = taken && last.waypoint == Waypoint::kNone;
  }
  auto count = static_cast<size_t>(p - bytes) / 4;
  bool unsure = version.unsure;
  if (open && count < walk::kMaxBlockInsns) [[unlikely]]
    count = read_across(space, ip, count, arena, bytes, last, unsure);
  b = Block{.ip = ip,
            .target = last.target,
            .size = static_cast<uint32_t>(4 * count),
            .count = static_cast<uint16_t>(count),
            .kind = last.kind,
            .mode = kA64,
            .unsure = unsure,
            .space = space,
            .origin = version.origin,
            .bytes = bytes,
            .lengths = kLengths.data(),
            .hash = ip * kHashSums.ones[count] + kHashSums.steps[count],
            .power = kHashPowers[count]};
  return count != 0;
}

// The instructions from number `count` on of the block at `ip`, which lie after its cell or across its end.
// Returns how many there are now.
size_t StableText::read_across(Space space, Addr ip, size_t count, Arena& arena, const uint8_t*& bytes,
                               Insn& last, bool& unsure) {
  std::array<uint8_t, size_t{4} * walk::kMaxBlockInsns> copy;
  const size_t inside = count;
  while (count < walk::kMaxBlockInsns && last.waypoint == Waypoint::kNone) {
    uint8_t* const p = copy.data() + 4 * count;
    if (fetch(space, ip + 4 * count, p, unsure) != 4) break;
    const uint32_t word = word_at(p);
    if (!is_plain_a64(word) && !take(word, ip + 4 * count, last)) break;
    ++count;
  }
  if (count == inside) return count;
  std::memcpy(copy.data(), bytes, 4 * inside);
  auto* const kept = arena.take<uint8_t>(4 * count);
  std::memcpy(kept, copy.data(), 4 * count);
  bytes = kept;
  return count;
}

// The word at `a`, which may lie across cells. Returns how many bytes of it are known.
size_t StableText::fetch(Space space, Addr a, uint8_t* out, bool& unsure) {
  size_t n = 0;
  while (n < 4 && contains(space, a + n)) {
    const size_t part = std::min<uint64_t>(4 - n, cell_.range.end - (a + n));
    if (part == 0) break;
    unsure = unsure || version_->unsure;
    std::memcpy(out + n, version_->bytes + (a + n - cell_.range.begin), part);
    n += part;
  }
  return n;
}

}  // namespace asof::arm64
