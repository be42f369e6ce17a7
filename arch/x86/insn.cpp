#include "arch/x86/insn.h"

#include <Zydis/Zydis.h>

#include <algorithm>

namespace asof::x86 {
namespace {

struct Decoders {
  ZydisDecoder d64, d32, d16;
  Decoders() {
    ZydisDecoderInit(&d64, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    ZydisDecoderInit(&d32, ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32);
    ZydisDecoderInit(&d16, ZYDIS_MACHINE_MODE_LEGACY_16, ZYDIS_STACK_WIDTH_16);
  }
};

const ZydisDecoder& decoder_for(uint8_t mode) {
  static const Decoders decoders;
  return mode == 64 ? decoders.d64 : mode == 32 ? decoders.d32 : decoders.d16;
}

bool is_relative(const ZydisDecodedInstruction& z) {
  return z.raw.imm[0].size != 0 && z.raw.imm[0].is_relative;
}

// jump, call: near direct, near indirect, or far.
BranchKind near_or_far(const ZydisDecodedInstruction& z, BranchKind direct, BranchKind indirect,
                       BranchKind far) {
  if (z.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR) return far;
  return is_relative(z) ? direct : indirect;
}

BranchKind classify(const ZydisDecodedInstruction& z) {
  switch (z.mnemonic) {
    case ZYDIS_MNEMONIC_JMP:
      return near_or_far(z, BranchKind::kJump, BranchKind::kJumpInd, BranchKind::kFarJump);
    case ZYDIS_MNEMONIC_CALL:
      return near_or_far(z, BranchKind::kCall, BranchKind::kCallInd, BranchKind::kFarCall);
    case ZYDIS_MNEMONIC_RET:
      return z.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR ? BranchKind::kFarRet : BranchKind::kRet;
    case ZYDIS_MNEMONIC_SYSCALL:
    case ZYDIS_MNEMONIC_SYSENTER:
    case ZYDIS_MNEMONIC_INT:
    case ZYDIS_MNEMONIC_INT1:
    case ZYDIS_MNEMONIC_INT3:
    case ZYDIS_MNEMONIC_INTO:
    case ZYDIS_MNEMONIC_VMCALL:
      return BranchKind::kFarCall;
    case ZYDIS_MNEMONIC_SYSRET:
    case ZYDIS_MNEMONIC_SYSEXIT:
    case ZYDIS_MNEMONIC_IRET:
    case ZYDIS_MNEMONIC_IRETD:
    case ZYDIS_MNEMONIC_IRETQ:
    case ZYDIS_MNEMONIC_UIRET:
    case ZYDIS_MNEMONIC_VMLAUNCH:
    case ZYDIS_MNEMONIC_VMRESUME:
    case ZYDIS_MNEMONIC_RSM:
      return BranchKind::kFarRet;
    case ZYDIS_MNEMONIC_PTWRITE:
      return BranchKind::kPtwrite;
    case ZYDIS_MNEMONIC_XBEGIN:
    case ZYDIS_MNEMONIC_XEND:
      // Conditional branches to the library, but they have no TNT bit: an abort is an asynchronous event.
      return BranchKind::kNone;
    default:
      return z.meta.category == ZYDIS_CATEGORY_COND_BR ? BranchKind::kCond : BranchKind::kNone;
  }
}

Addr relative_target(const ZydisDecodedInstruction& z, Addr ip, uint8_t mode) {
  const Addr next = ip + z.length;
  Addr target = next + static_cast<Addr>(z.raw.imm[0].value.s);
  if (mode == 64) return target;
  target &= 0xffffffffU;
  // With a 16-bit operand size the instruction pointer is cut to 16 bits (SDM vol. 2, JMP).
  return z.operand_width == 16 ? target & 0xffffU : target;
}

// ERETS and ERETU (FRED) are newer than the decoder library: F2/F3 0F 01 CA.
bool is_fred_return(std::span<const uint8_t> b, uint8_t mode) {
  return mode == 64 && b.size() >= 4 && (b[0] == 0xf2 || b[0] == 0xf3) && b[1] == 0x0f && b[2] == 0x01 &&
         b[3] == 0xca;
}

}  // namespace

InsnStatus decode_insn(std::span<const uint8_t> bytes, Addr ip, uint8_t mode, Insn& out) {
  if (mode == 64 && bytes.size() >= 15 && decode_plain(bytes.first<15>(), ip, out)) return InsnStatus::kOk;
  return decode_insn_fully(bytes, ip, mode, out);
}

InsnStatus decode_passable(std::span<const uint8_t> bytes, Addr ip, uint8_t mode, Insn& out) {
  const InsnStatus status = decode_insn(bytes, ip, mode, out);
  return out.undefined ? InsnStatus::kInvalid : status;
}

InsnStatus decode_insn_fully(std::span<const uint8_t> bytes, Addr ip, uint8_t mode, Insn& out) {
  out = Insn{};
  if (bytes.empty()) return InsnStatus::kTruncated;  // the library calls that an invalid argument
  if (is_fred_return(bytes, mode)) {
    out.length = 4;
    out.kind = BranchKind::kFarRet;
    return InsnStatus::kOk;
  }
  ZydisDecodedInstruction z;
  ZydisDecoderContext context;
  const ZyanStatus status = ZydisDecoderDecodeInstruction(&decoder_for(mode), &context, bytes.data(),
                                                          std::min<size_t>(bytes.size(), 15), &z);
  if (!ZYAN_SUCCESS(status)) {
    return status == ZYDIS_STATUS_NO_MORE_DATA && bytes.size() < 15 ? InsnStatus::kTruncated
                                                                    : InsnStatus::kInvalid;
  }
  out.length = z.length;
  out.kind = classify(z);
  switch (out.kind) {
    case BranchKind::kCond:
    case BranchKind::kJump:
    case BranchKind::kCall:
      out.target = relative_target(z, ip, mode);
      break;
    case BranchKind::kFarRet:
      out.vm_entry = z.mnemonic == ZYDIS_MNEMONIC_VMLAUNCH || z.mnemonic == ZYDIS_MNEMONIC_VMRESUME;
      break;
    case BranchKind::kNone:
      // 0F 22 /3: MOV CR3, r. ModRM.reg alone decides; REX.R would make it CR11, which does not exist.
      out.writes_cr3 = z.opcode_map == ZYDIS_OPCODE_MAP_0F && z.opcode == 0x22 && z.raw.modrm.reg == 3;
      out.wrmsr = z.mnemonic == ZYDIS_MNEMONIC_WRMSR;
      out.undefined = z.mnemonic == ZYDIS_MNEMONIC_UD0 || z.mnemonic == ZYDIS_MNEMONIC_UD1 ||
                      z.mnemonic == ZYDIS_MNEMONIC_UD2;
      if (out.writes_cr3 || out.wrmsr) out.kind = BranchKind::kPaging;
      break;
    default:
      break;
  }
  return InsnStatus::kOk;
}

}  // namespace asof::x86
