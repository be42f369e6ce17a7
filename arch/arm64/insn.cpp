#include "arch/arm64/insn.h"

#include <array>

#include "arch/arm64/bits.h"

namespace asof::arm64 {
namespace {

constexpr bool match(uint32_t w, uint32_t mask, uint32_t value) { return (w & mask) == value; }

// The field [high:low] as a signed number of `scale`-byte units.
constexpr int64_t offset(uint32_t w, unsigned high, unsigned low, unsigned shift) {
  const unsigned width = high - low + 1;
  return (static_cast<int64_t>(static_cast<uint64_t>(bits(w, high, low)) << (64 - width)) >> (64 - width)) *
         (int64_t{1} << shift);
}

void direct(Insn& i, BranchKind kind, Addr target, uint8_t mode) {
  i.kind = kind;
  i.waypoint = Waypoint::kDirect;
  i.target = mode == kA64 ? target : target & 0xffffffffU;
  i.target_mode = mode;
  i.conditional = kind == BranchKind::kCond;
  i.link = kind == BranchKind::kCall;
}

void indirect(Insn& i, BranchKind kind) {
  i.kind = kind;
  i.waypoint = Waypoint::kIndirect;
  i.link = kind == BranchKind::kCallInd;
}

// ---- A64 ----

bool is_texit(uint32_t w) { return match(w, 0xfffffbff, 0xd6ff03e0); }

// Unconditional branch (register): 1101011 opc op2 op3 Rn op4 (Arm ARM, C4.1). op3 2 and 3 are the forms with pointer
// authentication. Words that are none of these branch nowhere.
void a64_register_branch(uint32_t w, Insn& i) {
  const uint32_t op3 = bits(w, 15, 10), rn = bits(w, 9, 5), op4 = bits(w, 4, 0);
  const bool plain = op3 == 0 && op4 == 0, authenticates = op3 == 2 || op3 == 3;
  const bool no_modifier = plain || (authenticates && op4 == 0x1f);
  if (bits(w, 20, 16) != 0x1f) return;
  bool exists = is_texit(w);
  BranchKind kind = BranchKind::kFarRet;
  switch (bits(w, 24, 21)) {
    case 0:  // BR, BRAAZ, BRABZ
    case 1:  // BLR, BLRAAZ, BLRABZ
      exists = no_modifier;
      kind = bits(w, 21, 21) != 0 ? BranchKind::kCallInd : BranchKind::kJumpInd;
      break;
    case 8:  // BRAA, BRAB
    case 9:  // BLRAA, BLRAB
      exists = authenticates;
      kind = bits(w, 21, 21) != 0 ? BranchKind::kCallInd : BranchKind::kJumpInd;
      break;
    case 2:  // RET, RETAA, RETAB, RETAASPPCR, RETABSPPCR
      exists = plain || (authenticates && rn == 0x1f);
      kind = BranchKind::kRet;
      break;
    case 4:  // ERET, ERETAA, ERETAB
      exists = no_modifier && rn == 0x1f;
      break;
    case 5:  // DRPS
      exists = plain && rn == 0x1f;
      break;
    default:
      break;
  }
  if (!exists) return;
  indirect(i, kind);
  i.exception_return = kind == BranchKind::kFarRet;
}

// CB<cc>, CBB<cc> and CBH<cc> of registers, CB<cc> with an immediate (FEAT_CMPBR): sf 111010 i cc. Conditions 4 and 5
// do not exist. With i bit 14 is 0; without, bits 15 and 14 say the size: 0 that of sf, 2 a byte and 3 a halfword of a
// W register.
bool is_compare_and_branch(uint32_t w) {
  if (!match(w, 0x7e000000, 0x74000000) || match(w, 0x00c00000, 0x00800000)) return false;
  if (bits(w, 24, 24) != 0) return bits(w, 14, 14) == 0;
  const uint32_t size = bits(w, 15, 14);
  return size == 0 || (size != 1 && bits(w, 31, 31) == 0);
}

// The direct branches, by the top eight bits of the word: where the distance is in it. They are decoded
// without branching, as which of them it is no processor foresees.
struct A64Direct {
  BranchKind kind = BranchKind::kNone;
  // Of the distance, in words: so far its highest bit is from the word's, and so far its lowest then from the
  // word's lowest.
  uint8_t left = 0, right = 0;
};
constexpr auto kA64Direct = [] {
  std::array<A64Direct, 256> all{};
  const auto set = [&all](unsigned mask, unsigned value, BranchKind kind, unsigned high, unsigned low) {
    for (unsigned top = 0; top < all.size(); ++top) {
      if ((top & mask) == value)
        all[top] = {kind, static_cast<uint8_t>(31 - high), static_cast<uint8_t>(31 - high + low)};
    }
  };
  set(0xfc, 0x14, BranchKind::kJump, 25, 0);  // B
  set(0xfc, 0x94, BranchKind::kCall, 25, 0);  // BL
  set(0xff, 0x54, BranchKind::kCond, 23, 5);  // B.cond, BC.cond
  set(0x7e, 0x34, BranchKind::kCond, 23, 5);  // CBZ, CBNZ
  set(0x7e, 0x36, BranchKind::kCond, 18, 5);  // TBZ, TBNZ
  return all;
}();

void a64_other(uint32_t w, Addr ip, bool wfx, Insn& i) {
  if (match(w, 0xfe000000, 0xd6000000)) {
    a64_register_branch(w, i);
  } else if (is_compare_and_branch(w)) {
    direct(i, BranchKind::kCond, ip + static_cast<uint64_t>(offset(w, 13, 5, 2)), kA64);
  } else if (match(w, 0xffc0001f, 0x5500001f)) {  // RETAASPPC, RETABSPPC
    indirect(i, BranchKind::kRet);
  } else if (match(w, 0xfffff0ff, 0xd50330df)) {
    i.waypoint = Waypoint::kSync;
  } else if (wfx && (match(w, 0xffffffdf, 0xd503205f) || match(w, 0xffffffc0, 0xd5031000))) {
    i.waypoint = Waypoint::kWait;  // WFE, WFI; WFET, WFIT
  } else if (match(w, 0xffffffe0, 0xd5233060)) {
    i.waypoint = Waypoint::kWait;  // TSTART
  } else if (match(w, 0xffe0001f, 0xd4200000) || (w >> 16) == 0) {
    i.waypoint = Waypoint::kTrap;  // BRK, UDF
  }
}

}  // namespace

bool is_recent_branch(uint32_t w) {
  return is_compare_and_branch(w) || match(w, 0xffc0001f, 0x5500001f) ||  // RETA<k>SPPC
         (match(w, 0xfffffbe0, 0xd65f0be0) && !match(w, 0x1f, 0x1f)) ||   // RETA<k>SPPCR
         is_texit(w);
}

void decode_a64(uint32_t w, Addr ip, bool wfx, Insn& out) {
  out = Insn{};
  out.length = 4;
  const A64Direct& d = kA64Direct[w >> 24];
  if (d.kind == BranchKind::kNone) return a64_other(w, ip, wfx, out);
  const int64_t words = static_cast<int32_t>(w << d.left) >> d.right;
  direct(out, d.kind, ip + 4 * static_cast<uint64_t>(words), kA64);
}

namespace {

// ---- A32 ----

// Writes to the program counter other than B, BL, BLX (immediate).
bool a32_writes_pc(uint32_t w, Insn& i) {
  if (match(w, 0x0ff000d0, 0x01200010)) {  // BX, BLX (register)
    indirect(i, bits(w, 5, 5) != 0   ? BranchKind::kCallInd
                : (w & 0xff) == 0x1e ? BranchKind::kRet
                                     : BranchKind::kJumpInd);
    return true;
  }
  if (match(w, 0x0ff000f0, 0x01200020)) {  // BXJ
    indirect(i, BranchKind::kJumpInd);
    return true;
  }
  if (match(w, 0x0fffffff, 0x0160006e)) {  // ERET
    indirect(i, BranchKind::kFarRet);
    i.exception_return = true;
    return true;
  }
  if (match(w, 0x0e108000, 0x08108000)) {  // LDM with PC
    const bool pop = match(w, 0x0fffa000, 0x08bd8000);
    indirect(i, pop ? BranchKind::kRet : BranchKind::kJumpInd);
    i.exception_return = bits(w, 22, 22) != 0;
    return true;
  }
  if (match(w, 0x0e50f000, 0x0410f000) || match(w, 0x0e50f010, 0x0610f000)) {  // LDR PC
    indirect(i, match(w, 0x0fff0000, 0x049d0000) ? BranchKind::kRet : BranchKind::kJumpInd);
    return true;
  }
  // Data processing with destination PC, but not compares, miscellaneous instructions, multiplies, MSR.
  if (bits(w, 27, 26) != 0 || bits(w, 15, 12) != 0xf) return false;
  const bool immediate = bits(w, 25, 25) != 0;
  const uint32_t opcode = bits(w, 24, 21);
  const bool sets_flags = bits(w, 20, 20) != 0;
  if (!immediate && bits(w, 7, 7) != 0 && bits(w, 4, 4) != 0) return false;  // multiplies, extra loads
  if (opcode >= 8 && opcode <= 11) return false;                             // compares and their space
  const bool move = match(w, 0x0fffffff, 0x01a0f00e);                        // MOV PC, LR
  indirect(i, move ? BranchKind::kRet : sets_flags ? BranchKind::kFarRet : BranchKind::kJumpInd);
  i.exception_return = sets_flags;
  return true;
}

void decode_a32(uint32_t w, Addr ip, bool wfx, Insn& i) {
  i.length = 4;
  const bool never = (w >> 28) == 0xf;
  const Addr pc = ip + 8;
  if (never) {
    if (match(w, 0xfe000000, 0xfa000000)) {  // BLX (immediate)
      direct(i, BranchKind::kCall, pc + static_cast<uint64_t>(offset(w, 23, 0, 2)) + (bits(w, 24, 24) << 1),
             kT32);
    } else if (match(w, 0xfe500000, 0xf8100000)) {  // RFE
      indirect(i, BranchKind::kFarRet);
      i.exception_return = true;
    } else if (match(w, 0xfff000f0, 0xf5700060)) {
      i.waypoint = Waypoint::kSync;
    }
    return;
  }
  const bool conditional = (w >> 28) != 0xe;
  if (match(w, 0x0e000000, 0x0a000000)) {  // B, BL
    const BranchKind kind = bits(w, 24, 24) != 0 ? BranchKind::kCall
                            : conditional        ? BranchKind::kCond
                                                 : BranchKind::kJump;
    direct(i, kind, pc + static_cast<uint64_t>(offset(w, 23, 0, 2)), kA32);
  } else if (a32_writes_pc(w, i)) {
  } else if (match(w, 0x0fff0fff, 0x0e070f95)) {  // CP15ISB
    i.waypoint = Waypoint::kSync;
  } else if (wfx && match(w, 0x0ffffffe, 0x0320f002)) {
    i.waypoint = Waypoint::kWait;
  } else if (match(w, 0xfff000f0, 0xe1200070)) {  // BKPT
    i.waypoint = Waypoint::kTrap;
  }
  i.conditional = i.conditional || conditional;
}

// ---- T32 ----

void decode_t16(uint32_t w, Addr ip, bool wfx, Insn& i) {
  const Addr pc = ip + 4;
  if (match(w, 0xf000, 0xd000) && bits(w, 11, 9) != 7) {  // B<c>
    direct(i, BranchKind::kCond, pc + static_cast<uint64_t>(offset(w, 7, 0, 1)), kT32);
  } else if (match(w, 0xf800, 0xe000)) {  // B
    direct(i, BranchKind::kJump, pc + static_cast<uint64_t>(offset(w, 10, 0, 1)), kT32);
  } else if (match(w, 0xf500, 0xb100)) {  // CBZ, CBNZ
    direct(i, BranchKind::kCond, pc + (bits(w, 9, 9) << 6 | bits(w, 7, 3) << 1), kT32);
  } else if (match(w, 0xff00, 0x4700)) {  // BX, BLX
    indirect(i, bits(w, 7, 7) != 0    ? BranchKind::kCallInd
                : bits(w, 6, 3) == 14 ? BranchKind::kRet
                                      : BranchKind::kJumpInd);
  } else if (match(w, 0xff00, 0xbd00)) {  // POP with PC
    indirect(i, BranchKind::kRet);
  } else if (match(w, 0xfd87, 0x4487)) {  // MOV PC, ADD PC
    indirect(i, w == 0x46f7 ? BranchKind::kRet : BranchKind::kJumpInd);
  } else if (match(w, 0xff00, 0xbf00)) {  // IT and hints
    const uint32_t mask = bits(w, 3, 0);
    if (mask != 0) {
      i.it_block = static_cast<uint8_t>((mask & 1) != 0 ? 4 : (mask & 2) != 0 ? 3 : (mask & 4) != 0 ? 2 : 1);
    } else if (wfx && match(w, 0xffef, 0xbf20)) {
      i.waypoint = Waypoint::kWait;
    }
  } else if (match(w, 0xff00, 0xbe00)) {  // BKPT
    i.waypoint = Waypoint::kTrap;
  }
}

// B T3 and T4, BL, BLX: S, imm10, J1, J2, imm11 in `w` = first halfword << 16 | second.
bool t32_direct(uint32_t w, Addr ip, Insn& i) {
  const Addr pc = ip + 4;
  const uint32_t s = bits(w, 26, 26), j1 = bits(w, 13, 13), j2 = bits(w, 11, 11);
  if (!match(w, 0xf8008000, 0xf0008000)) return false;
  const uint32_t op = bits(w, 14, 14) << 1 | bits(w, 12, 12);
  if (op == 0) {  // conditional
    if (bits(w, 25, 23) == 7) return false;
    const uint32_t imm = s << 19 | j2 << 18 | j1 << 17 | bits(w, 21, 16) << 11 | bits(w, 10, 0);
    direct(i, BranchKind::kCond, pc + static_cast<uint64_t>(offset(imm, 19, 0, 1)), kT32);
    return true;
  }
  const uint32_t i1 = 1 ^ (j1 ^ s), i2 = 1 ^ (j2 ^ s);
  const uint32_t imm = s << 23 | i1 << 22 | i2 << 21 | bits(w, 25, 16) << 11 | bits(w, 10, 0);
  const auto distance = static_cast<uint64_t>(offset(imm, 23, 0, 1));
  if (op == 2 && (w & 1) != 0) {  // loops of Armv8.1-M: WLS, WLSTP forward; LE, LETP back
    const Addr loop = bits(w, 10, 1) << 2 | bits(w, 11, 11) << 1;
    const bool back = bits(w, 31, 16) == 0xf00f || bits(w, 31, 16) == 0xf02f || bits(w, 31, 16) == 0xf01f;
    if (!back && bits(w, 31, 23) != 0x1e0) return false;
    direct(i, BranchKind::kCond, back ? pc - loop : pc + loop, kT32);
    return true;
  }
  if (op == 2) {  // BLX
    direct(i, BranchKind::kCall, (pc & ~3ULL) + distance, kA32);
  } else {
    direct(i, op == 3 ? BranchKind::kCall : BranchKind::kJump, pc + distance, kT32);
  }
  return true;
}

void decode_t32(uint32_t w, Addr ip, bool wfx, Insn& i) {
  if (t32_direct(w, ip, i)) return;
  if (match(w, 0xfff0d000, 0xf3c08000)) {  // BXJ
    indirect(i, BranchKind::kJumpInd);
  } else if (match(w, 0xfff0ffe0, 0xe8d0f000)) {  // TBB, TBH
    indirect(i, BranchKind::kJumpInd);
  } else if (match(w, 0xffd00000, 0xe8100000) || match(w, 0xffd00000, 0xe9900000) ||
             match(w, 0xfff0d000, 0xf3d08000)) {  // RFE; SUBS PC, LR and ERET
    indirect(i, BranchKind::kFarRet);
    i.exception_return = true;
  } else if (match(w, 0xfff0f000, 0xf8d0f000) || match(w, 0xff7ff000, 0xf85ff000) ||
             match(w, 0xfff0f800, 0xf850f800) || match(w, 0xfff0ffc0, 0xf850f000)) {  // LDR PC
    indirect(i, match(w, 0xffffff00, 0xf85dfb00) ? BranchKind::kRet : BranchKind::kJumpInd);
  } else if (match(w, 0xfe508000, 0xe8108000)) {  // LDM with PC
    indirect(i, match(w, 0xffff0000, 0xe8bd0000) ? BranchKind::kRet : BranchKind::kJumpInd);
  } else if (match(w, 0xfffffff0, 0xf3bf8f60) || match(w, 0xffff0fff, 0xee070f95)) {
    i.waypoint = Waypoint::kSync;
  } else if (wfx && match(w, 0xfffffffe, 0xf3af8002)) {
    i.waypoint = Waypoint::kWait;
  }
}

}  // namespace

InsnStatus decode_insn(std::span<const uint8_t> bytes, Addr ip, uint8_t mode, bool wfx, Insn& out) {
  out = Insn{};
  const auto half = [&bytes](size_t at) {
    return static_cast<uint32_t>(bytes[at]) | static_cast<uint32_t>(bytes[at + 1]) << 8;
  };
  if (mode == kT32) {
    if (bytes.size() < 2) return InsnStatus::kTruncated;
    const uint32_t first = half(0);
    if (first < 0xe800) {
      out.length = 2;
      decode_t16(first, ip, wfx, out);
      return InsnStatus::kOk;
    }
    if (bytes.size() < 4) return InsnStatus::kTruncated;
    out.length = 4;
    decode_t32(first << 16 | half(2), ip, wfx, out);
    return InsnStatus::kOk;
  }
  if (bytes.size() < 4) return InsnStatus::kTruncated;
  const uint32_t w = half(0) | half(2) << 16;  // instructions are little-endian whatever the data is
  if (mode == kA64)
    decode_a64(w, ip, wfx, out);
  else
    decode_a32(w, ip, wfx, out);
  return InsnStatus::kOk;
}

}  // namespace asof::arm64
