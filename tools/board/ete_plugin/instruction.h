// What the trace unit and the plugin have to know of an A64 instruction: Arm DDI 0487, C4.1 "A64 instruction set
// encoding". Independent of the decoder's own tables (arch/arm64/insn.cpp), so that an error of one shows.
#pragma once
#include <cstdint>

namespace asof::ete {

enum class Kind : uint8_t {
  kStraight,
  kConditional,  // B.cond, BC.cond, CBZ, TBZ
  kDirect,       // B
  kCall,         // BL
  kIndirect,     // BR
  kIndirectCall,
  kReturn,
  kExceptionReturn,
  kIsb,
  kSystemCall,  // SVC, HVC, SMC: the exception's return address is the next instruction
  kBreakpoint,  // BRK
  kTsbCsync,
  kReadSystem,   // MRS of a register that the plugin answers
  kWriteSystem,  // MSR likewise
};

// D4.4.1 "AArch64 instructions", Tables D4-6 to D4-8: what makes P0 elements; ISB does, WFI and WFE do not (WFXMODE is 0).
constexpr bool is_p0(Kind k) { return k >= Kind::kConditional && k <= Kind::kIsb; }

// op0, op1, CRn, CRm and op2 of a system register, as in an MRS or MSR.
constexpr uint32_t system_register(unsigned op0, unsigned op1, unsigned crn, unsigned crm, unsigned op2) {
  return op0 << 14 | op1 << 11 | crn << 7 | crm << 3 | op2;
}
constexpr uint32_t system_register_of(uint32_t word) { return word >> 5 & 0xffff; }

constexpr Kind branch_kind(uint32_t w) {
  if ((w & 0xfc000000) == 0x14000000) return Kind::kDirect;
  if ((w & 0xfc000000) == 0x94000000) return Kind::kCall;
  if ((w & 0xff000000) == 0x54000000 || (w & 0x7e000000) == 0x34000000 || (w & 0x7e000000) == 0x36000000)
    return Kind::kConditional;
  // Unconditional branch (register): opc in 24:21, op2 11111; op3 0 is the plain form, 2 and 3 authenticate.
  if ((w & 0xfe1f0000) == 0xd61f0000) {
    switch (w >> 21 & 15) {
      case 0:
      case 8:
        return Kind::kIndirect;
      case 1:
      case 9:
        return Kind::kIndirectCall;
      case 2:
        return Kind::kReturn;
      case 4:
        return Kind::kExceptionReturn;
      default:
        break;
    }
  }
  return Kind::kStraight;
}

// Without the system registers, which depend on what the plugin answers (registers.h).
constexpr Kind kind_of(uint32_t w) {
  if (const Kind k = branch_kind(w); k != Kind::kStraight) return k;
  if ((w & 0xfffff0ff) == 0xd50330df) return Kind::kIsb;
  if ((w & 0xffe0001c) == 0xd4000000 && (w & 3) != 0) return Kind::kSystemCall;
  if ((w & 0xffe0001f) == 0xd4200000) return Kind::kBreakpoint;
  if (w == 0xd503225f) return Kind::kTsbCsync;
  return Kind::kStraight;
}

}  // namespace asof::ete
