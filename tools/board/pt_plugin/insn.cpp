#include "tools/board/pt_plugin/insn.h"

#include <cstring>

namespace asof::pt {

namespace {

struct Prefixes {
  size_t size = 0;
  bool f3 = false, address = false;
  uint8_t rex = 0, segment = 0;
};

Prefixes prefixes(std::span<const uint8_t> b, bool code64) {
  Prefixes p;
  for (; p.size < b.size(); ++p.size) {
    const uint8_t c = b[p.size];
    if (c == 0xf3 || c == 0xf2) {
      p.f3 = c == 0xf3;
    } else if (c == 0x67) {
      p.address = true;
    } else if ((c & 0xe7) == 0x26 || (c & 0xfe) == 0x64) {
      p.segment = c;
    } else if (c != 0x66 && c != 0xf0) {
      break;
    }
  }
  if (code64 && p.size < b.size() && (b[p.size] & 0xf0) == 0x40) p.rex = b[p.size++];
  return p;
}

InsnClass kind(Insn k) { return {k, Flow::kJump, 0, false}; }
InsnClass flow(Flow f) { return {Insn::kBranch, f, 0, false}; }

// After 0x0f.
InsnClass classify_0f(uint8_t op, uint8_t modrm, const Prefixes& p) {
  if ((op & 0xf0) == 0x80) return flow(Flow::kCond);
  switch (op) {
    case 0x05:  // SYSCALL, SYSRET, SYSENTER, SYSEXIT
    case 0x07:
    case 0x34:
    case 0x35:
      return flow(Flow::kFar);
    case 0x01:
      if (modrm == 0xf9) return kind(Insn::kRdtsc);  // RDTSCP
      if (modrm == 0xc9) return kind(Insn::kMwait);
      return kind((modrm >> 3 & 7) == 3 && modrm < 0xc0 ? Insn::kLidt : Insn::kPlain);
    case 0x22:
      if ((modrm >> 3 & 7) != 3 || (p.rex & 4)) return {};
      return {Insn::kMovCr3, Flow::kJump, static_cast<uint8_t>((modrm & 7) | (p.rex & 1) << 3), false};
    case 0xa2:
      return kind(Insn::kCpuid);
    case 0x30:
      return kind(Insn::kWrmsr);
    case 0x31:
      return kind(Insn::kRdtsc);
    case 0x32:
      return kind(Insn::kRdmsr);
    case 0x33:
      return kind(Insn::kRdpmc);
    case 0xae:
      return kind(p.f3 && (modrm >> 3 & 7) == 4 ? Insn::kPtwrite : Insn::kPlain);
    default:
      return {};
  }
}

InsnClass classify_kind(std::span<const uint8_t> b) {
  const Prefixes p = prefixes(b, true);
  const auto at = [&](size_t i) -> uint8_t { return p.size + i < b.size() ? b[p.size + i] : 0; };
  if (p.size >= b.size()) return {};
  const uint8_t op = at(0), next = at(1);
  if (op == 0x0f) return classify_0f(next, at(2), p);
  if ((op & 0xf0) == 0x70 || (op & 0xfc) == 0xe0) return flow(Flow::kCond);  // Jcc, LOOPcc, JrCXZ
  switch (op) {
    case 0xeb:
    case 0xe9:
      return flow(Flow::kJump);
    case 0xe8:
      return flow(Flow::kCall);
    case 0xc2:
    case 0xc3:
      return flow(Flow::kRet);
    case 0xcf:
      return flow(Flow::kIret);
    case 0x9a:  // far CALL, JMP, RET; INT n, INT3, INT1, INTO
    case 0xea:
    case 0xca:
    case 0xcb:
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xf1:
      return flow(Flow::kFar);
    case 0xff:
      switch (next >> 3 & 7) {
        case 2:
          return flow(Flow::kCallIndirect);
        case 4:
          return flow(Flow::kJumpIndirect);
        case 3:
        case 5:
          return flow(Flow::kFar);
        default:
          return {};
      }
    case 0xf4:
      return kind(Insn::kHlt);
    case 0xfa:
    case 0xfb:
    case 0x9d:
      return kind(Insn::kFlags);
    default:
      return {};
  }
}

}  // namespace

InsnClass classify(std::span<const uint8_t> b) {
  InsnClass c = classify_kind(b);
  if (c.kind != Insn::kBranch || (c.flow != Flow::kCond && c.flow != Flow::kJump && c.flow != Flow::kCall))
    return c;
  // The displacement is last: one byte or, after E8, E9 and 0F 8x, four.
  const bool near = b.size() >= 5 &&
                    (b[b.size() - 5] == 0xe8 || b[b.size() - 5] == 0xe9 || (b[b.size() - 5] & 0xf0) == 0x80);
  int32_t displacement = static_cast<int8_t>(b.back());
  if (near) std::memcpy(&displacement, b.data() + b.size() - sizeof displacement, sizeof displacement);
  c.to_itself = displacement == -static_cast<int32_t>(b.size());
  return c;
}

bool awaits(Flow f) { return f != Flow::kJump && f != Flow::kCall; }

std::optional<PtwriteOperand> ptwrite_operand(std::span<const uint8_t> b, bool code64) {
  const Prefixes p = prefixes(b, code64);
  size_t i = p.size + 3;  // after 0x0f, 0xae and ModRM
  if (i > b.size()) return {};
  const uint8_t modrm = b[i - 1], mod = modrm >> 6, rm = modrm & 7;
  PtwriteOperand o;
  o.eight_bytes = p.rex & 8;
  o.base = static_cast<uint8_t>(rm | (p.rex & 1) << 3);
  if (mod == 3) return o;
  o.memory = true;
  o.address32 = code64 ? p.address : true;
  if (!code64 && p.address) return {};  // 16-bit addressing
  if (p.segment == 0x64) o.segment = PtwriteOperand::Segment::kFs;
  if (p.segment == 0x65) o.segment = PtwriteOperand::Segment::kGs;
  bool disp32 = mod == 2;
  if (rm == 4) {
    if (i >= b.size()) return {};
    const uint8_t sib = b[i++];
    o.base = static_cast<uint8_t>((sib & 7) | (p.rex & 1) << 3);
    o.index = static_cast<uint8_t>((sib >> 3 & 7) | (p.rex & 2) << 2);
    o.scale = sib >> 6;
    if (o.index == 4) o.index = PtwriteOperand::kNone;
    if ((sib & 7) == 5 && mod == 0) o.base = PtwriteOperand::kNone, disp32 = true;
  } else if (rm == 5 && mod == 0) {
    o.base = code64 ? PtwriteOperand::kNextIp : PtwriteOperand::kNone;
    disp32 = true;
  }
  if (disp32) {
    int32_t d = 0;
    if (i + sizeof d > b.size()) return {};
    std::memcpy(&d, b.data() + i, sizeof d);
    o.displacement = d;
  } else if (mod == 1) {
    if (i >= b.size()) return {};
    o.displacement = static_cast<int8_t>(b[i]);
  }
  return o;
}

}  // namespace asof::pt
