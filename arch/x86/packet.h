// Intel PT packets: one bounded read at a time. Encodings: Intel SDM vol. 3, "Packet Definitions" (Intel PT).
// Purpose-built because the walk is the decoder's inner loop; tests compare it with libipt's packet decoder.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "textstore/address.h"

namespace asof::x86 {

enum class Pk : uint8_t {
  kPad,
  kTnt,
  kTip,
  kPge,
  kPgd,
  kFup,
  kModeExec,
  kModeTsx,
  kPsb,
  kPsbend,
  kOvf,
  kStop,
  kTsc,
  kTma,
  kMtc,
  kCyc,
  kCbr,
  kPip,
  kVmcs,
  kMnt,
  kPtw,
  kExstop,
  kMwait,
  kPwre,
  kPwrx,
  kBbp,
  kBip,
  kBep,
  kCfe,
  kEvd,
  kTrig,
  kEnd,  // no complete packet is left
  kBad,  // not a packet
};

constexpr bool is_timing(Pk t) {
  return t == Pk::kTsc || t == Pk::kTma || t == Pk::kMtc || t == Pk::kCyc || t == Pk::kCbr;
}

struct Packet {
  Pk type = Pk::kBad;
  uint8_t size = 0;
  uint8_t ipc = 0;      // IP packets: IPBytes field; TNT: number of bits; PTW/BIP: payload bytes
  bool ip_bit = false;  // PTW, EXSTOP, BEP, CFE: a FUP follows that belongs to it
  uint64_t value = 0;   // payload; TNT: bits, oldest is the highest; MODE.Exec: bit 0 CS.L, 1 CS.D, 2 IF
  uint64_t value2 = 0;  // second field: TMA FC, MWAIT extensions, CFE vector, EVD payload, BIP id
};

inline uint64_t load_le(const uint8_t* p, unsigned n) {
  uint64_t v = 0;
  std::memcpy(&v, p, n);  // x86-64 and arm64 hosts are little-endian
  return v;
}

// Reads the packet at [p, end). Never reads past end. `block_bytes` is the context between BBP and BEP, where
// a byte that would else be a short TNT starts a BIP: its payload size (4 or 8), or 0 outside.
Packet read_packet(const uint8_t* p, const uint8_t* end, uint8_t block_bytes = 0);

// What a MODE.Exec says of RFLAGS.IF, with Event Trace.
constexpr bool interrupt_flag(uint64_t value) { return (value & 4) != 0; }
// Bits of the code that a MODE.Exec's value means.
constexpr uint8_t exec_mode(uint64_t value) { return (value & 1) != 0 ? 64 : (value & 2) != 0 ? 32 : 16; }

// The context after packet k.
inline uint8_t next_block_bytes(const Packet& k, uint8_t block_bytes) {
  switch (k.type) {
    case Pk::kBbp:
      return k.value2 != 0 ? 4 : 8;
    case Pk::kBep:
    case Pk::kPsb:
    case Pk::kOvf:
      return 0;
    default:
      return block_bytes;
  }
}

// The TIP.PGE ahead, when nothing but state and time packets of the text's machine precedes it.
std::optional<Packet> pge_ahead(const uint8_t* p, const uint8_t* end, bool guest_text);

inline constexpr unsigned kPsbSize = 16;
// Offset of the next PSB at or after `from`, or SIZE_MAX.
size_t find_psb(std::span<const uint8_t> bytes, size_t from);

inline constexpr uint8_t kMtcByte = 0x59;  // an MTC's first byte
inline constexpr uint8_t kMtcSize = 2;
constexpr Packet mtc(uint8_t payload) { return {.type = Pk::kMtc, .size = kMtcSize, .value = payload}; }
constexpr bool is_short_tnt(uint8_t b) { return (b & 1) == 0 && b > 2; }
// Over PAD packets. Some recorders align every other packet with them.
inline const uint8_t* skip_pads(const uint8_t* p, const uint8_t* end) {
  while (end - p >= 8) {
    const uint64_t bytes = load_le(p, 8);
    if (bytes != 0) return p + std::countr_zero(bytes) / 8;
    p += 8;
  }
  while (p < end && *p == 0) ++p;
  return p;
}
inline const uint8_t* skip_short_tnt(const uint8_t* p, const uint8_t* end) {
  while (p < end && is_short_tnt(*p)) ++p;
  return p;
}

// By IPBytes: how many bytes of IP a packet has, which bits of the last IP stay, and how many of the highest
// are copies of the one below them (SDM, "IP compression").
struct IpBytes {
  uint8_t bytes;
  uint8_t copied;
  uint64_t kept;

  // Not suppressed, nor of a reserved size.
  constexpr bool has_ip() const { return static_cast<uint8_t>(bytes - 1) < 8; }
  constexpr Addr ip(uint64_t value, Addr last_ip) const {
    const uint64_t ip = (last_ip & kept) | (value & ~kept);
    return static_cast<uint64_t>(static_cast<int64_t>(ip << copied) >> copied);
  }
};
constexpr uint8_t kReservedIp = 0xff;
constexpr std::array<IpBytes, 8> kIpBytes = {{{0, 0, ~0ULL},
                                              {2, 0, ~0ULL << 16},
                                              {4, 0, ~0ULL << 32},
                                              {6, 16, 0},
                                              {6, 0, ~0ULL << 48},
                                              {kReservedIp, 0, 0},
                                              {8, 0, 0},
                                              {kReservedIp, 0, 0}}};

// IP of an IP packet with IPBytes `ipc` and payload `value` (bits above its bytes do not matter), given the
// last IP. Returns false when suppressed. By a table: which size comes next no processor foresees.
inline bool update_ip(uint8_t ipc, uint64_t value, uint64_t& last_ip) {
  if (ipc == 0) return false;
  last_ip = kIpBytes[ipc].ip(value, last_ip);
  return true;
}

constexpr bool is_tip(uint8_t b) { return (b & 0x1f) == 0x0d; }

// A TIP packet: the IP it says, and its size.
struct Tip {
  Addr ip = 0;
  uint32_t size = 0;

  // False: what is at p is none, has no IP, or is near the end.
  bool read(const uint8_t* p, const uint8_t* end, Addr last_ip) {
    if (end - p < 9 || !is_tip(*p)) return false;
    const IpBytes& of = kIpBytes[*p >> 5];
    if (!of.has_ip()) return false;
    size = 1U + of.bytes;
    ip = of.ip(load_le(p + 1, 8), last_ip);
    return true;
  }
};

}  // namespace asof::x86
