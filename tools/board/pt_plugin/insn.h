// What the trace unit and the emulator's shortcomings need to know of an instruction. One classifier serves 64-bit
// and 32-bit code: where the encodings differ (0x40 to 0x4f), the instruction is none of these in either mode.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "tools/board/pt_plugin/unit.h"

namespace asof::pt {

enum class Insn : uint8_t {
  kPlain,
  kBranch,  // a Flow
  kMovCr3,
  kCpuid,
  kRdtsc,
  kRdpmc,
  kRdmsr,
  kWrmsr,
  kPtwrite,
  kHlt,
  kMwait,
  kLidt,
  kFlags,  // STI, CLI, POPF: may change RFLAGS.IF
};

struct InsnClass {
  Insn kind = Insn::kPlain;
  Flow flow = Flow::kJump;
  uint8_t reg = 0;         // source of MOV to CR3
  bool to_itself = false;  // a direct branch whose target is its own address
};

InsnClass classify(std::span<const uint8_t> bytes);

// Does the outcome of this branch need a packet?
bool awaits(Flow flow);

// The operand of PTWRITE: a register or memory at segment + base + index * scale + displacement.
struct PtwriteOperand {
  static constexpr uint8_t kNone = 0xff, kNextIp = 0xfe;
  enum class Segment : uint8_t { kNone, kFs, kGs };
  bool memory = false, eight_bytes = false, address32 = false;
  uint8_t base = kNone, index = kNone,
          scale = 0;  // registers as the machine numbers them; `base` if not memory
  Segment segment = Segment::kNone;
  int64_t displacement = 0;
};

std::optional<PtwriteOperand> ptwrite_operand(std::span<const uint8_t> bytes, bool code64);

}  // namespace asof::pt
