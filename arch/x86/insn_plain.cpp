// The instructions that most code is made of, recognised by a table: length, and direct branches. Everything
// that is not clearly one of them is left to the library (insn.cpp). Encodings: Intel SDM vol. 2, appendix A,
// "Opcode Map". Tests compare every answer with the library's.
#include <array>
#include <cstring>

#include "arch/x86/insn.h"

namespace asof::x86 {
namespace {

// What follows an opcode. 0: not plain.
enum : uint8_t {
  kPlain = 1,   // nothing
  kModRm = 2,   // ModRM, with SIB and displacement
  kImm8 = 4,    // an immediate byte
  kImmZ = 8,    // 4 bytes, 2 with an operand-size prefix
  kImmV = 16,   // as kImmZ, 8 with REX.W
  kGroup = 32,  // ModRM.reg is part of the opcode: see plain_group
  kMemory = 64  // ModRM must name memory
};
using Table = std::array<uint8_t, 256>;

constexpr void fill(Table& t, unsigned first, unsigned last, uint8_t what) {
  for (unsigned i = first; i <= last; ++i) t[i] = what;
}

constexpr Table kOneByte = [] {
  Table t{};
  for (unsigned row = 0; row < 0x40; row += 8) {  // ADD, OR, ADC, SBB, AND, SUB, XOR, CMP
    fill(t, row, row + 3, kModRm);
    t[row + 4] = kImm8;
    t[row + 5] = kImmZ;
  }
  fill(t, 0x50, 0x5f, kPlain);  // PUSH, POP
  t[0x63] = kModRm;             // MOVSXD
  t[0x68] = kImmZ;
  t[0x69] = kModRm | kImmZ;
  t[0x6a] = kImm8;
  t[0x6b] = kModRm | kImm8;
  t[0x80] = t[0x83] = kModRm | kImm8;
  t[0x81] = kModRm | kImmZ;
  fill(t, 0x84, 0x8b, kModRm);  // TEST, XCHG, MOV
  t[0x8d] = kModRm | kMemory;   // LEA
  fill(t, 0x90, 0x99, kPlain);  // NOP, XCHG, CBW, CWD
  fill(t, 0xa4, 0xa7, kPlain);  // MOVS, CMPS
  t[0xa8] = kImm8;
  t[0xa9] = kImmZ;
  fill(t, 0xaa, 0xaf, kPlain);  // STOS, LODS, SCAS
  fill(t, 0xb0, 0xb7, kImm8);
  fill(t, 0xb8, 0xbf, kImmV);
  t[0xc0] = t[0xc1] = kModRm | kImm8 | kGroup;
  t[0xc6] = kModRm | kImm8 | kGroup;
  t[0xc7] = kModRm | kImmZ | kGroup;
  t[0xc9] = kPlain;                      // LEAVE
  fill(t, 0xd0, 0xd3, kModRm | kGroup);  // shifts
  t[0xf6] = t[0xf7] = kModRm | kGroup;   // TEST, NOT, NEG, MUL, DIV
  t[0xfe] = t[0xff] = kModRm | kGroup;   // INC, DEC, CALL, JMP, PUSH
  return t;
}();

// 0F xx by mandatory prefix: none, 66, F3, F2.
constexpr std::array<Table, 4> kTwoByte = [] {
  std::array<Table, 4> t{};
  Table &np = t[0], &p66 = t[1], &pf3 = t[2], &pf2 = t[3];
  for (Table* x : {&np, &p66}) {
    fill(*x, 0x10, 0x11, kModRm);
    fill(*x, 0x14, 0x15, kModRm);
    (*x)[0x1f] = kModRm;  // NOP
    fill(*x, 0x28, 0x29, kModRm);
    fill(*x, 0x2e, 0x2f, kModRm);
    fill(*x, 0x40, 0x4f, kModRm);  // CMOVcc
    (*x)[0x51] = kModRm;
    fill(*x, 0x54, 0x5f, kModRm);
    (*x)[0xa3] = (*x)[0xab] = (*x)[0xb3] = (*x)[0xbb] = kModRm;  // BT, BTS, BTR, BTC
    (*x)[0xa4] = (*x)[0xac] = kModRm | kImm8;                    // SHLD, SHRD
    (*x)[0xa5] = (*x)[0xad] = kModRm;
    (*x)[0xaf] = kModRm;  // IMUL
    fill(*x, 0xb6, 0xb7, kModRm);
    fill(*x, 0xbc, 0xbf, kModRm);
    (*x)[0xba] = kModRm | kImm8 | kGroup;
    (*x)[0xc6] = kModRm | kImm8;
  }
  np[0x52] = np[0x53] = kModRm;
  fill(np, 0x90, 0x9f, kModRm);  // SETcc
  fill(np, 0xc8, 0xcf, kPlain);  // BSWAP
  fill(p66, 0x60, 0x6f, kModRm);
  p66[0x70] = kModRm | kImm8;
  fill(p66, 0x74, 0x76, kModRm);
  p66[0x7e] = p66[0x7f] = kModRm;
  fill(p66, 0xd1, 0xd6, kModRm);
  fill(p66, 0xd8, 0xe5, kModRm);
  p66[0xe7] = kModRm | kMemory;
  fill(p66, 0xe8, 0xef, kModRm);
  fill(p66, 0xf1, 0xf6, kModRm);
  fill(p66, 0xf8, 0xfe, kModRm);
  for (Table* x : {&pf3, &pf2}) {
    fill(*x, 0x10, 0x11, kModRm);
    (*x)[0x2a] = (*x)[0x2c] = (*x)[0x2d] = (*x)[0x51] = kModRm;
    fill(*x, 0x58, 0x5a, kModRm);
    fill(*x, 0x5c, 0x5f, kModRm);
    (*x)[0x70] = kModRm | kImm8;
  }
  pf3[0x6f] = pf3[0x7e] = pf3[0x7f] = kModRm;
  pf3[0xb8] = pf3[0xbc] = pf3[0xbd] = kModRm;  // POPCNT, TZCNT, LZCNT
  return t;
}();

// The bytes of ModRM, SIB and displacement at p.
unsigned operand_bytes(const uint8_t* p) {
  const unsigned mod = *p >> 6, rm = *p & 7;
  if (mod == 3) return 1;
  unsigned n = 1;
  if (rm == 4) {
    ++n;
    if (mod == 0 && (p[1] & 7) == 5) n += 4;
  } else if (mod == 0 && rm == 5) {
    n += 4;
  }
  return n + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

// Opcodes whose ModRM.reg decides. False: not plain; else `what` follows.
bool plain_group(uint8_t opcode, bool two_bytes, unsigned reg, uint8_t& what) {
  if (two_bytes) return reg >= 4;  // 0F BA
  switch (opcode) {
    case 0xc6:
    case 0xc7:
      return reg == 0;
    case 0xf6:
    case 0xf7:
      if (reg == 0) what |= opcode == 0xf6 ? kImm8 : kImmZ;
      return reg != 1;
    case 0xfe:
      return reg < 2;
    case 0xff:
      return reg < 2 || reg == 6;
    default:
      return reg != 6;
  }
}

// Direct and indirect near branches without a prefix.
bool plain_branch(const uint8_t* p, Addr ip, Insn& out) {
  const auto direct = [&](BranchKind kind, unsigned length, unsigned bytes) {
    int32_t by = (p[length - 1] ^ 0x80) - 0x80;  // with its sign
    if (bytes == 4) std::memcpy(&by, p + length - 4, 4);
    out.length = static_cast<uint8_t>(length);
    out.kind = kind;
    out.target = ip + length + static_cast<Addr>(static_cast<int64_t>(by));
    return true;
  };
  switch (p[0]) {
    case 0xe8:
      return direct(BranchKind::kCall, 5, 4);
    case 0xe9:
      return direct(BranchKind::kJump, 5, 4);
    case 0xeb:
      return direct(BranchKind::kJump, 2, 1);
    case 0xc3:
      out.length = 1;
      out.kind = BranchKind::kRet;
      return true;
    case 0x0f:
      return (p[1] & 0xf0) == 0x80 && direct(BranchKind::kCond, 6, 4);
    case 0xff: {
      const unsigned reg = p[1] >> 3 & 7;
      if (reg != 2 && reg != 4) return false;
      out.length = static_cast<uint8_t>(1 + operand_bytes(p + 1));
      out.kind = reg == 2 ? BranchKind::kCallInd : BranchKind::kJumpInd;
      return true;
    }
    default:
      return (p[0] & 0xf0) == 0x70 && direct(BranchKind::kCond, 2, 1);
  }
}

}  // namespace

bool decode_plain(std::span<const uint8_t, 15> bytes, Addr ip, Insn& out) {
  out = Insn{};
  const uint8_t* const begin = bytes.data();
  const uint8_t* p = begin;
  if (plain_branch(p, ip, out)) return true;
  bool operand_size = false;
  unsigned mandatory = 0;
  if (*p == 0x64 || *p == 0x65 || *p == 0x2e) ++p;  // segment
  if (*p == 0x66) {
    operand_size = true;
    mandatory = 1;
    ++p;
    if (*p == 0x2e) ++p;  // in long NOPs
  } else if (*p == 0xf3 || *p == 0xf2) {
    mandatory = *p == 0xf3 ? 2 : 3;
    ++p;
  }
  const bool wide = (*p & 0xf8) == 0x48;
  if ((*p & 0xf0) == 0x40) ++p;  // REX
  const bool two_bytes = *p == 0x0f;
  if (two_bytes) ++p;
  const uint8_t opcode = *p++;
  uint8_t what = two_bytes ? kTwoByte[mandatory][opcode] : mandatory >= 2 ? uint8_t{0} : kOneByte[opcode];
  if (what == 0) return false;
  if ((what & kModRm) != 0) {
    if ((what & kMemory) != 0 && *p >= 0xc0) return false;
    if ((what & kGroup) != 0 && !plain_group(opcode, two_bytes, *p >> 3 & 7, what)) return false;
    p += operand_bytes(p);
  }
  if ((what & kImm8) != 0) ++p;
  if ((what & kImmV) != 0) p += wide ? 8 : operand_size ? 2 : 4;
  if ((what & kImmZ) != 0) p += operand_size && !wide ? 2 : 4;
  if (p - begin > 15) return false;
  out.length = static_cast<uint8_t>(p - begin);
  return true;
}

}  // namespace asof::x86
