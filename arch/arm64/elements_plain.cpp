// The packets that nearly all of a trace consists of, read in one go: atoms, addresses of A64 code,
// timestamps, cycle counts (Arm IHI 0064, "Instruction trace packets"). They are what read_packet() and
// ElementParser::on_packet() make of them where nothing waits for an address or a timestamp and nothing is
// speculative, but that atom packets which follow each other give one element, and cycle counts none.
#include <algorithm>

#include "arch/arm64/elements.h"

namespace asof::arm64 {
namespace {

constexpr uint32_t kMostAtoms = 32;    // of an element, as the walks have them
constexpr ptrdiff_t kLongest = 16;     // bytes of a packet, and more
constexpr uint8_t kFirstAtoms = 0xc0;  // headers from here on are of atoms

bool is_plain_address(uint8_t h) { return (h >= 0x90 && h <= 0x92) || h == 0x95 || h == 0x9a || h == 0x9d; }

}  // namespace

// Stops in front of any other packet, near the end of the trace, and after `most` elements.
void ElementParser::parse_plain(size_t most) {
  const uint8_t* const begin = bytes_.data();
  const uint8_t* const end = begin + bytes_.size();
  const uint8_t* p = begin + at_;
  if (end - p < kLongest) return;
  const size_t first = list_.size();
  list_.resize(first + std::min<size_t>(most, 64));
  Element* out = list_.data() + first;
  Element* const last = list_.data() + list_.size();
  while (out != last && end - p >= kLongest) {
    const uint8_t h = *p;
    Element& e = *out;
    e.offset = static_cast<uint32_t>(p - begin);
    e.time = static_cast<uint32_t>(times_base_ + times_.size());
    if (h >= kFirstAtoms) {
      p = plain_atoms(p, e);
      if (e.count == 0) break;
      ++out;
    } else if (is_plain_address(h)) {
      p = plain_address(p, e);
      ++out;
    } else if (h == 0x02 || h == 0x03) {
      p = plain_timestamp(p);
      if (timestamp_ == 0) continue;  // the counter does not run
      e.kind = El::kTime;
      e.value = timestamp_;
      times_.push_back(timestamp_);
      ++out;
    } else if (h >= 0x0c && h <= 0x1f) {
      p = plain_cycles(p);
    } else {
      break;
    }
  }
  list_.resize(static_cast<size_t>(out - list_.data()));
  at_ = static_cast<size_t>(p - begin);
}

// As many packets as go into one element; e.count 0: the first one is reserved.
inline const uint8_t* ElementParser::plain_atoms(const uint8_t* p, Element& e) const {
  const uint8_t* const end = bytes_.data() + bytes_.size();
  uint64_t value = 0;
  uint32_t count = 0;
  for (; p != end; ++p) {
    const uint32_t atoms = atoms_of(*p);
    const uint32_t more = atoms >> 24;
    if (more == 0 || count + more > kMostAtoms) break;
    value |= static_cast<uint64_t>(atoms & 0xffffff) << count;
    count += more;
  }
  e.value = value;
  e.kind = El::kAtoms;
  e.count = static_cast<uint8_t>(count);
  return p;
}

inline const uint8_t* ElementParser::plain_address(const uint8_t* p, Element& e) {
  Register r = history_[0];
  const auto byte = [p](unsigned i) { return static_cast<uint64_t>(p[i]); };
  const auto low = [&byte] {
    return (byte(1) & 0x7f) << 2 | (byte(2) & 0x7f) << 9 | byte(3) << 16 | byte(4) << 24;
  };
  const auto replace = [&r](unsigned bits, uint64_t value) {
    r = {(r.address & ~((1ULL << bits) - 1)) | value, 0};
  };
  switch (*p) {
    case 0x95:
      if ((byte(1) & 0x80) == 0) {
        replace(9, byte(1) << 2);
        p += 2;
      } else {
        replace(17, (byte(1) & 0x7f) << 2 | byte(2) << 9);
        p += 3;
      }
      break;
    case 0x9a:
      replace(32, low());
      p += 5;
      break;
    case 0x9d:
      r = {low() | byte(5) << 32 | byte(6) << 40 | byte(7) << 48 | byte(8) << 56, 0};
      p += 9;
      break;
    default:  // one of the last three
      r = history_[std::min<size_t>(*p & 3, 2)];
      p += 1;
  }
  remember(r);
  e.value = r.address;
  e.kind = El::kAddress;
  e.isa = r.isa;
  e.flags = e.offset == start_offset_ ? Element::kStart : uint8_t{0};
  return p;
}

// Eight bytes of seven bits at most, bit 7 says that more follow, then one of eight.
inline const uint8_t* ElementParser::plain_timestamp(const uint8_t* p) {
  const bool counted = (*p++ & 1) != 0;
  uint64_t value = 0, mask = ~0ULL;
  for (unsigned bits = 0;; bits += 7) {
    const uint64_t b = *p++;
    if (bits == 56) {
      value |= b << 56;
      break;
    }
    value |= (b & 0x7f) << bits;
    if ((b & 0x80) != 0) continue;
    mask = (1ULL << (bits + 7)) - 1;
    break;
  }
  timestamp_ = (timestamp_ & ~mask) | value;
  if (counted) {
    for (unsigned i = 0; i < 3 && (*p++ & 0x80) != 0;) ++i;
  }
  return p;
}

inline const uint8_t* ElementParser::plain_cycles(const uint8_t* p) const {
  const uint8_t h = *p++;
  const auto skip = [&p](unsigned most) {
    for (unsigned i = 0; i < most && (*p++ & 0x80) != 0;) ++i;
  };
  if (h >= 0x10) return p;
  if (h <= 0x0d) return p + 1;
  if (!format_.commit_opt) skip(5);
  if ((h & 1) == 0) skip(3);
  return p;
}

}  // namespace asof::arm64
