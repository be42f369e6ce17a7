// What control flow needs of one x86 instruction: length, kind, target. Zydis decides (a table of ours says
// what it would say of common instructions); Capstone never does (it mis-decodes current instructions). Kinds
// follow Intel SDM vol. 3 "Intel Processor Trace", table of COFI types.
#pragma once
#include <cstdint>
#include <span>

#include "arch/arch.h"

namespace asof::x86 {

struct Insn {
  uint8_t length = 0;
  BranchKind kind = BranchKind::kNone;
  Addr target = 0;          // of direct branches
  bool writes_cr3 = false;  // MOV to CR3: a TIP.PGD may bind here under CR3 filtering
  bool vm_entry = false;    // VMLAUNCH, VMRESUME
  bool wrmsr = false;       // may switch tracing off; its kind is kPaging, so that a block ends here
  bool undefined = false;   // UD0, UD1, UD2: never passed, #UD is raised at it (SDM vol. 2)
};

enum class InsnStatus : uint8_t { kOk, kTruncated, kInvalid };

// Decodes the instruction at `ip` from `bytes` (at most 15 are looked at) in `mode` (16, 32, 64).
// kTruncated: more bytes are needed. Thread-safe.
InsnStatus decode_insn(std::span<const uint8_t> bytes, Addr ip, uint8_t mode, Insn& out);
// decode_insn() of what the flow can pass: UD0, UD1 and UD2 are kInvalid, too. Only a FUP tells that one was reached.
InsnStatus decode_passable(std::span<const uint8_t> bytes, Addr ip, uint8_t mode, Insn& out);
// decode_insn(), always by the library: decode_insn() asks it about what is not plain only.
InsnStatus decode_insn_fully(std::span<const uint8_t> bytes, Addr ip, uint8_t mode, Insn& out);
// Instructions of 64-bit code recognised by a table, which most are. False: ask the library. Thread-safe.
bool decode_plain(std::span<const uint8_t, 15> bytes, Addr ip, Insn& out);

}  // namespace asof::x86
