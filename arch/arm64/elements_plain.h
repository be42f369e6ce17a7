// The packets that nearly all of a trace consists of: atoms, addresses of A64 code, timestamps, cycle counts
// (Arm IHI 0064, "Instruction trace packets"). They are here what read_packet() and
// ElementParser::on_packet() make of them where nothing waits for an address or a timestamp and nothing is
// speculative, but that atom packets which follow each other give one element, and cycle counts none.
#pragma once
#include <algorithm>

#include "arch/arm64/elements.h"

namespace asof::arm64 {

inline bool ElementParser::plain_only() const {
  return !draining_ && !waiting_ && exception_ == SIZE_MAX && marker_ == SIZE_MAX && format_.max_spec == 0;
}

template <class Taker>
[[gnu::always_inline]] inline ElementParser::Passed ElementParser::pass_plain(Taker& taker) {
  Passed passed;
  if (!list_.empty() || !plain_only()) return passed;
  const uint8_t* const begin = bytes_.data();
  const uint8_t* const end = begin + bytes_.size();
  const uint8_t* p = begin + at_;
  size_t times = times_base_;
  while (passed.last == Take::kOn && end - p >= kLongestPlain) {
    const uint8_t h = *p;
    if (h >= 0xc0) {
      uint64_t value = 0;
      uint32_t count = 0;
      const uint8_t* const next = plain_atoms(p, end, value, count);
      if (count == 0) break;
      passed.last = taker.atoms(static_cast<uint32_t>(value), count, static_cast<uint32_t>(p - begin));
      if (passed.last == Take::kRefuse) break;
      p = next;
    } else if (h == 0x02 || h == 0x03) {
      p = plain_timestamp(p, timestamp_);
      if (timestamp_ == 0) continue;  // the counter does not run
      taker.time(timestamp_, static_cast<uint32_t>(times++));
    } else if ((h & 0xf0) == 0x90) {
      Register r;
      const uint8_t* const next = plain_address(p, r);
      if (next == p) break;
      passed.last = taker.address(r.address, r.isa);
      if (passed.last == Take::kRefuse) break;
      remember(r);
      p = next;
    } else if (h >= 0x0c && h <= 0x1f) {
      p = plain_cycles(p);
      continue;
    } else {
      break;
    }
    ++passed.elements;
  }
  at_ = static_cast<size_t>(p - begin);
  base_ += passed.elements;
  times_base_ = times;
  return passed;
}

// As many packets as go into one element; none: the next one is reserved.
inline const uint8_t* ElementParser::plain_atoms(const uint8_t* p, const uint8_t* end, uint64_t& value,
                                                 uint32_t& count) {
  constexpr uint32_t kMost = 32;  // as the walks have them
  for (; p != end; ++p) {
    const uint32_t atoms = atoms_of(*p);
    const uint32_t more = atoms >> 24;
    if (more == 0 || count + more > kMost) break;
    value |= static_cast<uint64_t>(atoms & 0xffffff) << count;
    count += more;
  }
  return p;
}

// Gives `p` back for those that are not plain.
[[gnu::always_inline]] inline const uint8_t* ElementParser::plain_address(const uint8_t* p,
                                                                          Register& r) const {
  const auto byte = [p](unsigned i) { return static_cast<uint64_t>(p[i]); };
  const auto low = [&byte] {
    return (byte(1) & 0x7f) << 2 | (byte(2) & 0x7f) << 9 | byte(3) << 16 | byte(4) << 24;
  };
  const auto replace = [&](unsigned bits, uint64_t value) {
    r = {(history_[0].address & ~((1ULL << bits) - 1)) | value, 0};
  };
  switch (*p) {
    case 0x90:
      r = history_[0];
      return p + 1;
    case 0x91:
      r = history_[1];
      return p + 1;
    case 0x92:
      r = history_[2];
      return p + 1;
    case 0x95:
      if ((byte(1) & 0x80) == 0) {
        replace(9, byte(1) << 2);
        return p + 2;
      }
      replace(17, (byte(1) & 0x7f) << 2 | byte(2) << 9);
      return p + 3;
    case 0x9a:
      replace(32, low());
      return p + 5;
    case 0x9d:
      r = {low() | byte(5) << 32 | byte(6) << 40 | byte(7) << 48 | byte(8) << 56, 0};
      return p + 9;
    default:
      return p;
  }
}

// Eight bytes of seven bits at most, bit 7 says that more follow, then one of eight. They take the place of
// the low bits of `value`.
inline const uint8_t* ElementParser::plain_timestamp(const uint8_t* p, uint64_t& value) const {
  const bool counted = (*p++ & 1) != 0;
  uint64_t given = 0, mask = ~0ULL;
  for (unsigned bits = 0;; bits += 7) {
    const uint64_t b = *p++;
    if (bits == 56) {
      given |= b << 56;
      break;
    }
    given |= (b & 0x7f) << bits;
    if ((b & 0x80) != 0) continue;
    mask = (1ULL << (bits + 7)) - 1;
    break;
  }
  value = (value & ~mask) | given;
  if (counted) skip_field(p, 3);
  return p;
}

inline const uint8_t* ElementParser::plain_cycles(const uint8_t* p) const {
  const uint8_t h = *p++;
  if (h >= 0x10) return p;
  if (h <= 0x0d) return p + 1;
  if (!format_.commit_opt) skip_field(p, 5);
  if ((h & 1) == 0) skip_field(p, 3);
  return p;
}

}  // namespace asof::arm64
