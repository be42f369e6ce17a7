// ETMv4 and ETE instruction trace packets: one bounded read at a time. Encodings: Arm IHI 0064, "Instruction
// trace packets", and the ETE chapter of Arm DDI 0487. Purpose-built because the walk is the decoder's inner
// loop and a segment must be readable from any offset; tests compare it with OpenCSD's packet processor.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "arch/arm64/config.h"

namespace asof::arm64 {

enum class Pk : uint8_t {
  kAsync,
  kDiscard,
  kOverflow,
  kTraceInfo,
  kTimestamp,
  kTraceOn,
  kFunctionReturn,
  kException,
  kExceptionReturn,
  kCycleCount,
  kInstrumentation,  // ETE
  kTransStart,       // ETE
  kTransCommit,      // ETE
  kDataSync,
  kCommit,
  kCancel,  // with or without misprediction
  kMispredict,
  kConditional,  // conditional instruction tracing: no effect on the flow
  kIgnore,
  kEvent,
  kContext,
  kAddress,          // with or without context
  kSourceAddress,    // ETE
  kTimestampMarker,  // ETE and ETMv4.6
  kQ,
  kAtoms,
  kEnd,  // no complete packet is left
  kBad,  // not a packet
};

// How an address packet gives its address.
enum class AddrForm : uint8_t { kNone, kExact, kShort, kLong32, kLong64 };

struct ContextInfo {
  bool present = false;  // else as before
  uint8_t el = 0;
  bool sf = false;  // AArch64
  bool ns = false;
  bool nse = false;
  bool has_vmid = false, has_cid = false;
  uint32_t vmid = 0, cid = 0;
};

struct Packet {
  Pk type = Pk::kBad;
  AddrForm form = AddrForm::kNone;
  uint8_t isa = 0;        // IS of an address; entry of the history for kExact
  uint8_t addr_bits = 0;  // kShort: bits that `value` replaces
  uint8_t atom_count = 0;
  bool mispredict = false;  // kCancel
  bool has_count = false;   // kTimestamp, kCycleCount: cycles; kQ: instructions
  bool no_address = false;  // kException: none follows (ETE: reset, transaction failure)
  bool target = false;      // kException: its address is also the target of the branch before it
  uint32_t size = 0;
  uint32_t atoms = 0;   // oldest at bit 0; 1: E
  uint32_t count = 0;   // cycles; elements to commit or to cancel; instructions of Q; exception type; event
  uint32_t commit = 0;  // kCycleCount: elements to commit; kTraceInfo: speculation depth
  uint64_t value = 0;   // address, timestamp, payload
  uint8_t value_bits = 0;  // kTimestamp: bits that `value` replaces
  ContextInfo context;
};

// What of a trace unit's configuration changes the bytes of packets.
struct PacketFormat {
  bool ete = false;
  uint8_t version = 0x40;  // major and minor: 0x40 for ETMv4.0, 0x53 for ETEv1.3
  bool m_profile = false;
  bool commit_opt = true;  // TRCIDR0.COMMOPT: cycle counts have no commit field
  bool conditional = false;
  bool q = false;
  bool data = false;
  uint8_t vmid_bytes = 0, cid_bytes = 0;
  uint8_t cycle_bits = 12;
  uint8_t max_spec = 0;

  static PacketFormat of(const Source& source);
};

// Reads the packet at [p, end). Never reads past end. `cc_threshold`: the last Trace Info's.
Packet read_packet(const uint8_t* p, const uint8_t* end, const PacketFormat& format, uint32_t cc_threshold);

// Atom packets are one byte each; a table saves the decisions.
constexpr uint32_t make_atoms(unsigned h) {
  const auto give = [](uint32_t count, uint32_t pattern) { return count << 24 | pattern; };
  if (h >= 0xf8) return give(3, h & 7);
  if (h == 0xf6 || h == 0xf7) return give(1, h & 1);
  if (h == 0xf5) return give(5, 0b11110);
  if (h >= 0xdc && h <= 0xdf) {
    constexpr uint32_t four[] = {0b1110, 0b0000, 0b1010, 0b0101};
    return give(4, four[h & 3]);
  }
  if (h >= 0xd8 && h <= 0xdb) return give(2, h & 3);
  if (h >= 0xd5 && h <= 0xd7) {
    constexpr uint32_t five[] = {0, 0b00000, 0b01010, 0b10101};
    return give(5, five[h & 3]);
  }
  if ((h >= 0xc0 && h <= 0xd4) || (h >= 0xe0 && h <= 0xf4)) {
    const uint32_t run = (h & 0x1f) + 3;
    return give(run + 1, ((1U << run) - 1) | ((h & 0x20) == 0 ? 1U << run : 0));
  }
  return 0;
}

inline constexpr auto kAtomPackets = [] {
  std::array<uint32_t, 256> out{};
  for (unsigned h = 0xc0; h < 256; ++h) out[h] = make_atoms(h);
  return out;
}();

// Atoms of the one-byte packet `header`: count in the high byte, pattern below; 0: it is none, or reserved.
inline uint32_t atoms_of(uint8_t header) { return kAtomPackets[header]; }

inline constexpr unsigned kAsyncSize = 12;
// Offset of the next A-Sync (11 zero bytes, 0x80) at or after `from`, or SIZE_MAX.
size_t find_async(std::span<const uint8_t> bytes, size_t from);

}  // namespace asof::arm64
