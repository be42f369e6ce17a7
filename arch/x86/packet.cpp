#include "arch/x86/packet.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace asof::x86 {
namespace {

constexpr std::array<uint8_t, kPsbSize> kPsb = {2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82,
                                                2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82};

constexpr Packet make(Pk type, unsigned size, uint64_t value = 0, uint64_t value2 = 0) {
  Packet k;
  k.type = type;
  k.size = static_cast<uint8_t>(size);
  k.value = value;
  k.value2 = value2;
  return k;
}
constexpr Packet kNoRoom = make(Pk::kEnd, 0);
constexpr Packet kNoPacket = make(Pk::kBad, 0);

Packet read_tnt(uint64_t payload, unsigned size) {
  const unsigned bits = payload == 0 ? 0 : 63U - static_cast<unsigned>(std::countl_zero(payload));
  if (bits == 0) return kNoPacket;  // no stop bit, or nothing below it
  Packet k = make(Pk::kTnt, size, payload & ~(1ULL << bits));
  k.ipc = static_cast<uint8_t>(bits);
  return k;
}

Packet read_ip_packet(Pk type, const uint8_t* p, size_t room) {
  const uint8_t ipc = p[0] >> 5;
  const unsigned n = kIpBytes[ipc].bytes;
  if (n == kReservedIp) return kNoPacket;
  if (room < 1 + n) return kNoRoom;
  uint64_t value = 0;
  if (n != 0 && room >= 1 + sizeof value)  // a copy of n bytes is a call
    value = load_le(p + 1, sizeof value) & (~uint64_t{0} >> (64 - 8 * n));
  else
    value = load_le(p + 1, n);
  Packet k = make(type, 1 + n, value);
  k.ipc = ipc;
  return k;
}

Packet read_mode(const uint8_t* p, size_t room) {
  if (room < 2) return kNoRoom;
  switch (p[1] >> 5) {
    case 0:
      return make(Pk::kModeExec, 2, p[1] & 0x1f);
    case 1:
      return make(Pk::kModeTsx, 2, p[1] & 0x1f);
    default:
      return kNoPacket;
  }
}

Packet read_cyc(const uint8_t* p, size_t room) {
  uint64_t value = p[0] >> 3;
  bool more = (p[0] & 4) != 0;
  unsigned shift = 5;
  unsigned n = 1;
  for (; more; ++n, shift += 7) {
    if (n >= room) return kNoRoom;
    if (shift > 57) return kNoPacket;
    value |= static_cast<uint64_t>(p[n] >> 1) << shift;
    more = (p[n] & 1) != 0;
  }
  return make(Pk::kCyc, n, value);
}

Packet read_psb(const uint8_t* p, size_t room) {
  if (std::memcmp(p, kPsb.data(), std::min<size_t>(room, kPsbSize)) != 0) return kNoPacket;
  return room < kPsbSize ? kNoRoom : make(Pk::kPsb, kPsbSize);
}

// TMA: 02 73, CTC 16 bits, reserved byte, FC 9 bits.
Packet read_tma(const uint8_t* p) {
  const uint64_t fc = load_le(p + 5, 2);
  if (p[4] != 0 || (fc & ~0x1ffULL) != 0) return kNoPacket;
  return make(Pk::kTma, 7, load_le(p + 2, 2), fc);
}

Packet with_ip_bit(Packet k, bool ip) {
  k.ip_bit = ip;
  return k;
}

// Packets 02 xx.
Packet read_extended(const uint8_t* p, size_t room) {
  if (room < 2) return kNoRoom;
  const auto need = [room](size_t n) { return room >= n; };
  const uint8_t x = p[1];
  if ((x & 0x1f) == 0x12) {  // PTW: IP bit 7, payload bytes code in bits 6:5
    const unsigned code = (x >> 5) & 3;
    if (code > 1) return kNoPacket;
    const unsigned n = code == 0 ? 4 : 8;
    if (!need(2 + n)) return kNoRoom;
    Packet k = with_ip_bit(make(Pk::kPtw, 2 + n, load_le(p + 2, n)), (x & 0x80) != 0);
    k.ipc = static_cast<uint8_t>(n);
    return k;
  }
  switch (x) {
    case 0x82:
      return read_psb(p, room);
    case 0x23:
      return make(Pk::kPsbend, 2);
    case 0xf3:
      return make(Pk::kOvf, 2);
    case 0x83:
      return make(Pk::kStop, 2);
    case 0xa3:
      return need(8) ? read_tnt(load_le(p + 2, 6), 8) : kNoRoom;
    case 0x43: {  // PIP: bit 0 NR, then CR3[51:5]
      if (!need(8)) return kNoRoom;
      const uint64_t v = load_le(p + 2, 6);
      return make(Pk::kPip, 8, (v >> 1) << 5, v & 1);
    }
    case 0x03:
      return need(4) ? make(Pk::kCbr, 4, p[2]) : kNoRoom;
    case 0x73:
      return need(7) ? read_tma(p) : kNoRoom;
    case 0xc8:
      return need(7) ? make(Pk::kVmcs, 7, load_le(p + 2, 5) << 12) : kNoRoom;
    case 0xc3:
      if (!need(3)) return kNoRoom;
      if (p[2] != 0x88) return kNoPacket;
      return need(11) ? make(Pk::kMnt, 11, load_le(p + 3, 8)) : kNoRoom;
    case 0x62:
      return make(Pk::kExstop, 2);
    case 0xe2:
      return with_ip_bit(make(Pk::kExstop, 2), true);
    case 0xc2:
      return need(10) ? make(Pk::kMwait, 10, load_le(p + 2, 4), load_le(p + 6, 4)) : kNoRoom;
    case 0x22:
      return need(4) ? make(Pk::kPwre, 4, load_le(p + 2, 2)) : kNoRoom;
    case 0xa2:
      return need(7) ? make(Pk::kPwrx, 7, load_le(p + 2, 5)) : kNoRoom;
    case 0x63:
      return need(3) ? make(Pk::kBbp, 3, p[2] & 0x1f, p[2] >> 7) : kNoRoom;
    case 0x33:
      return make(Pk::kBep, 2);
    case 0xb3:
      return with_ip_bit(make(Pk::kBep, 2), true);
    case 0x13:
      return need(4) ? with_ip_bit(make(Pk::kCfe, 4, p[2] & 0x1f, p[3]), (p[2] & 0x80) != 0) : kNoRoom;
    case 0x53:
      return need(11) ? make(Pk::kEvd, 11, p[2] & 0x3f, load_le(p + 3, 8)) : kNoRoom;
    default:
      return kNoPacket;
  }
}

}  // namespace

Packet read_packet(const uint8_t* p, const uint8_t* end, uint8_t block_bytes) {
  const size_t room = static_cast<size_t>(end - p);
  if (room == 0) return kNoRoom;
  const uint8_t b = p[0];
  if (block_bytes != 0 && (b & 7) == 4) {
    if (room < 1U + block_bytes) return kNoRoom;
    Packet k = make(Pk::kBip, 1U + block_bytes, load_le(p + 1, block_bytes), b >> 3);
    k.ipc = block_bytes;
    return k;
  }
  if ((b & 1) == 0) {
    if (b == 0x00) return make(Pk::kPad, 1);
    if (b == 0x02) return read_extended(p, room);
    return read_tnt(b >> 1, 1);
  }
  if ((b & 3) == 3) return read_cyc(p, room);
  switch (b & 0x1f) {
    case 0x0d:
      return read_ip_packet(Pk::kTip, p, room);
    case 0x11:
      return read_ip_packet(Pk::kPge, p, room);
    case 0x01:
      return read_ip_packet(Pk::kPgd, p, room);
    case 0x1d:
      return read_ip_packet(Pk::kFup, p, room);
    default:
      break;
  }
  switch (b) {
    case 0x99:
      return read_mode(p, room);
    case 0x19:
      return room >= 8 ? make(Pk::kTsc, 8, load_le(p + 1, 7)) : kNoRoom;
    case kMtcByte:
      return room >= kMtcSize ? make(Pk::kMtc, kMtcSize, p[1]) : kNoRoom;
    case 0xd9: {  // TRIG: bit 7 IP, bit 6 instruction count follows (16 bits)
      if (room < 3) return kNoRoom;
      const unsigned n = (p[1] & 0x40) != 0 ? 5 : 3;
      if (room < n) return kNoRoom;
      return with_ip_bit(make(Pk::kTrig, n, p[2]), (p[1] & 0x80) != 0);
    }
    default:
      return kNoPacket;
  }
}

std::optional<Packet> pge_ahead(const uint8_t* p, const uint8_t* end, bool guest_text) {
  for (;;) {
    const Packet k = read_packet(p, end);
    switch (k.type) {
      case Pk::kPge:
        return k;
      case Pk::kPip:
        if ((k.value2 != 0) != guest_text) return std::nullopt;  // of another machine
        [[fallthrough]];
      case Pk::kPad:
      case Pk::kTsc:
      case Pk::kTma:
      case Pk::kMtc:
      case Pk::kCyc:
      case Pk::kCbr:
      case Pk::kVmcs:
      case Pk::kMnt:
      case Pk::kModeExec:
      case Pk::kModeTsx:
        p += k.size;
        break;
      default:
        return std::nullopt;
    }
  }
}

// Every thirteen bytes a look at four of them: wherever a PSB begins, one such look is inside it.
size_t find_psb(std::span<const uint8_t> bytes, size_t from) {
  constexpr size_t kLook = sizeof(uint32_t), kStep = kPsbSize - kLook + 1;
  if (bytes.size() < kPsbSize || from > bytes.size() - kPsbSize) return SIZE_MAX;
  for (size_t at = from; at <= bytes.size() - kLook; at += kStep) {
    if ((static_cast<uint32_t>(load_le(&bytes[at], kLook)) & 0x7f7f7f7fU) != 0x02020202U) [[likely]]
      continue;
    for (size_t x = at - std::min(at - from, kStep - 1); x <= at && bytes.size() - x >= kPsbSize; ++x) {
      if (std::memcmp(&bytes[x], kPsb.data(), kPsbSize) == 0) return x;
    }
  }
  return SIZE_MAX;
}

}  // namespace asof::x86
