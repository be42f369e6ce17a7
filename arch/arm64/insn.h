// What control flow needs of one A64, A32 or T32 instruction: length, kind, target, and whether the trace
// unit makes a P0 element of it (Arm IHI 0064, "Instruction categories"; encodings: Arm DDI 0487 C4 and F2 to
// F4).
#pragma once
#include <cstdint>
#include <span>

#include "arch/arch.h"

namespace asof::arm64 {

// Instruction sets as Block::mode has them.
inline constexpr uint8_t kA64 = 64, kA32 = 32, kT32 = 16;

// What an instruction is to the trace. All but kNone and kTrap take an atom.
enum class Waypoint : uint8_t {
  kNone,
  kDirect,
  kIndirect,
  kSync,  // ISB
  kWait,  // WFI, WFE where they count as branches; TSTART
  kTrap,  // BRK, UDF: never passed, an exception is taken at it
};

struct Insn {
  uint8_t length = 0;
  BranchKind kind = BranchKind::kNone;
  Waypoint waypoint = Waypoint::kNone;
  bool conditional = false;
  bool link = false;
  bool exception_return = false;
  uint8_t target_mode = 0;  // of kDirect
  uint8_t it_block = 0;     // T32 IT: instructions it makes conditional
  Addr target = 0;          // of kDirect
};

enum class InsnStatus : uint8_t { kOk, kTruncated };

// True: surely neither a waypoint nor a branch. All of those are in the group of branches, exceptions and
// system instructions (Arm DDI 0487, C4.1), or are UDF.
constexpr bool is_plain_a64(uint32_t w) { return (w >> 26 & 7) != 5 && (w >> 16) != 0; }

// Decodes the instruction at `ip`. `wfx`: WFI and WFE take atoms (TRCIDR2.WFXMODE). Thread-safe.
InsnStatus decode_insn(std::span<const uint8_t> bytes, Addr ip, uint8_t mode, bool wfx, Insn& out);

// The same of the A64 instruction `w`.
void decode_a64(uint32_t w, Addr ip, bool wfx, Insn& out);

// True: an A64 branch of an extension of 2023 and later (FEAT_CMPBR, FEAT_PAuth_LR, FEAT_TEV), which OpenCSD
// 1.3.3 takes for no branch or for another.
bool is_recent_branch(uint32_t w);

}  // namespace asof::arm64
