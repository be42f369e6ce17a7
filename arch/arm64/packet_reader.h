// What the payload of ETMv4 and ETE packets is made of: bytes, fields of seven bits a byte, addresses, contexts.
#pragma once
#include <cstdint>

#include "arch/arm64/bits.h"
#include "arch/arm64/packet.h"

namespace asof::arm64 {

// Reads payload bytes; what is missing is remembered, so that a packet is taken apart without a test at every
// byte.
class Reader {
 public:
  Reader(const uint8_t* p, const uint8_t* end) : begin_(p), p_(p), end_(end) {}

  uint8_t byte() {
    if (p_ == end_) {
      short_ = true;
      return 0;
    }
    return *p_++;
  }
  // Seven bits a byte, bit 7 says that more follow; at most `limit` bytes.
  uint64_t field(unsigned limit, unsigned* used = nullptr) {
    uint64_t v = 0;
    unsigned n = 0;
    for (; n < limit; ++n) {
      const uint8_t b = byte();
      v |= static_cast<uint64_t>(b & 0x7f) << (7 * n);
      if ((b & 0x80) == 0) {
        ++n;
        break;
      }
    }
    if (used != nullptr) *used = n;
    return v;
  }
  uint64_t little_endian(unsigned n) {
    uint64_t v = 0;
    for (unsigned i = 0; i < n; ++i) v |= static_cast<uint64_t>(byte()) << (8 * i);
    return v;
  }
  bool ran_out() const { return short_; }
  uint32_t size() const { return static_cast<uint32_t>(p_ - begin_); }

 private:
  const uint8_t* begin_;
  const uint8_t* p_;
  const uint8_t* end_;
  bool short_ = false;
};

inline void short_address(Reader& r, Packet& k) {
  const unsigned shift = k.isa == 0 ? 2 : 1;
  const uint8_t low = r.byte();
  k.form = AddrForm::kShort;
  k.value = static_cast<uint64_t>(low & 0x7f) << shift;
  k.addr_bits = static_cast<uint8_t>(7 + shift);
  if ((low & 0x80) == 0) return;
  k.value |= static_cast<uint64_t>(r.byte()) << (7 + shift);
  k.addr_bits = static_cast<uint8_t>(15 + shift);
}

inline void long_address(Reader& r, Packet& k, unsigned bytes) {
  k.form = bytes == 8 ? AddrForm::kLong64 : AddrForm::kLong32;
  const uint8_t first = r.byte(), second = r.byte();
  if (k.isa == 0) {
    k.value = static_cast<uint64_t>(first & 0x7f) << 2 | static_cast<uint64_t>(second & 0x7f) << 9;
  } else {
    k.value = static_cast<uint64_t>(first & 0x7f) << 1 | static_cast<uint64_t>(second) << 8;
  }
  k.value |= r.little_endian(bytes - 2) << 16;
}

inline void context(Reader& r, Packet& k, const PacketFormat& f) {
  const uint8_t info = r.byte();
  ContextInfo& c = k.context;
  c.present = true;
  c.el = info & 3;
  c.nse = (info & 8) != 0;
  c.sf = (info & 0x10) != 0;
  c.ns = (info & 0x20) != 0;
  c.has_vmid = (info & 0x40) != 0;
  c.has_cid = (info & 0x80) != 0;
  if (c.has_vmid) c.vmid = static_cast<uint32_t>(r.little_endian(f.vmid_bytes));
  if (c.has_cid) c.cid = static_cast<uint32_t>(r.little_endian(f.cid_bytes));
}

}  // namespace asof::arm64
