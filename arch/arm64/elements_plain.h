// The packets that nearly all of a trace consists of: atoms, addresses of A64 code, timestamps, cycle counts
// (Arm IHI 0064, "Instruction trace packets"). They are here what read_packet() and
// ElementParser::on_packet() make of them where nothing waits for an address or a timestamp and nothing is
// speculative, but that in a list atom packets which follow each other give one element, and cycle counts
// none. Which packet is next, and how long it is, no processor can predict: payloads are taken apart without
// a branch, from eight bytes at once.
#pragma once
#include <array>
#include <bit>
#include <cstring>

#include "arch/arm64/elements.h"

namespace asof::arm64 {

inline bool ElementParser::plain_only() const {
  return !draining_ && !waiting_ && exception_ == SIZE_MAX && marker_ == SIZE_MAX && format_.max_spec == 0;
}

template <class Taker>
[[gnu::always_inline]] inline ElementParser::Passed ElementParser::pass_plain(Taker& taker) {
  Passed passed;
  if (!list_.empty() || !plain_only() || cycles_ || bytes_.size() < kLongestPlain) return passed;
  const uint8_t* const begin = bytes_.data();
  const uint8_t* const last = begin + (bytes_.size() - kLongestPlain);
  const uint8_t* p = begin + at_;
  size_t times = times_base_;
  while (p <= last) {
    const uint8_t h = *p;
    if (h >= 0xc0) {
      const uint32_t atoms = atoms_of(h);
      if (atoms == 0) break;
      passed.last = taker.atoms(atoms & 0xffffff, atoms >> 24);
      if (passed.last != Take::kOn) [[unlikely]] {
        passed.offset = static_cast<uint32_t>(p - begin);
        p += passed.last == Take::kStop ? 1 : 0;
        break;
      }
      ++p;
    } else if (h == 0x02 || h == 0x03) {
      p = plain_timestamp(p, timestamp_);
      if (timestamp_ != 0) taker.time(timestamp_, static_cast<uint32_t>(times++));  // else it does not run
    } else if ((h & 0xf0) == 0x90) {
      Register r;
      const uint8_t* const next = plain_address(p, r);
      if (next == p) break;
      passed.last = taker.address(r.address, r.isa, static_cast<uint32_t>(p - begin));
      if (passed.last == Take::kRefuse) break;
      remember(r);
      p = next;
      if (passed.last == Take::kStop) break;
    } else if (h >= 0x0c && h <= 0x1f) {
      p = plain_cycles(p);
    } else {
      break;
    }
  }
  passed.elements = p != begin + at_ ? 1 : 0;
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

// Address packets with the low bits of an A64 address, by the low half of the header and bit 7 of the first
// byte after it: bytes, and how many bits they replace. Without bytes: not plain.
struct PlainAddress {
  uint8_t size = 0;
  uint8_t bits = 0;
};
inline constexpr auto kPlainAddresses = [] {
  std::array<PlainAddress, 32> all{};
  for (const unsigned more : {0U, 1U}) {
    for (const unsigned entry : {0U, 1U, 2U}) all[2 * entry + more] = {1, 0};  // one of the last three
    all[2 * 0x5 + more] = more == 0 ? PlainAddress{2, 9} : PlainAddress{3, 17};
    all[2 * 0xa + more] = {5, 32};
    all[2 * 0xd + more] = {9, 64};
  }
  return all;
}();

inline uint64_t eight_bytes(const uint8_t* p) {
  uint64_t v = 0;
  std::memcpy(&v, p, sizeof(v));
  return std::endian::native == std::endian::little ? v : __builtin_bswap64(v);
}

// Gives `p` back for those that are not plain.
[[gnu::always_inline]] inline const uint8_t* ElementParser::plain_address(const uint8_t* p,
                                                                          Register& r) const {
  const size_t form = *p & 0xfU;
  const uint64_t payload = eight_bytes(p + 1);
  const PlainAddress plain = kPlainAddresses[2 * form + (payload >> 7 & 1)];
  const uint64_t low = (payload & 0x7f) << 2;
  const uint64_t given = plain.bits <= 17 ? low | (payload & 0xff00) << 1
                                          : low | (payload & 0x7f00) << 1 | (payload & ~uint64_t{0xffff});
  const uint64_t mask = plain.bits == 64 ? ~uint64_t{0} : (uint64_t{1} << plain.bits) - 1;
  const Register& base = history_[plain.bits == 0 && form < history_.size() ? form : 0];
  r = {(base.address & ~mask) | (given & mask), plain.bits == 0 ? base.isa : uint8_t{0}};
  return p + plain.size;
}

// Eight bytes of seven bits at most, bit 7 says that more follow, then one of eight. They take the place of
// the low bits of `value`.
[[gnu::always_inline]] inline const uint8_t* ElementParser::plain_timestamp(const uint8_t* p,
                                                                            uint64_t& value) const {
  constexpr uint64_t kMore = 0x8080808080808080;
  const bool counted = (*p++ & 1) != 0;
  const uint64_t payload = eight_bytes(p);
  const uint64_t ends = ~payload & kMore;
  const unsigned size = static_cast<unsigned>(std::countr_zero(ends)) / 8 + 1;  // 9: none of them ends it
  uint64_t mask = size == 9 ? ~uint64_t{0} >> 8 : (uint64_t{1} << 7 * size) - 1;
  uint64_t given = payload & ~kMore;
  given = (given & 0x007f007f007f007f) | (given & 0x7f007f007f007f00) >> 1;
  given = (given & 0x00003fff00003fff) | (given & 0x3fff00003fff0000) >> 2;
  given = ((given & 0x0fffffff) | (given & 0x0fffffff00000000) >> 4) & mask;
  if (size == 9) [[unlikely]] {
    given |= static_cast<uint64_t>(p[8]) << 56;
    mask = ~uint64_t{0};
  }
  p += size;
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
