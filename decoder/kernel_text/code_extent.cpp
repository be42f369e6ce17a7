#include "decoder/kernel_text/code_extent.h"

#include <algorithm>

#include "arch/arm64/insn.h"
#include "arch/x86/insn.h"

namespace asof {
namespace {

struct FoundInsn {
  size_t length = 0;  // 0: no instruction
  bool ends = false;  // the next one does not follow it
  Addr target = 0;    // of a direct branch that is no call
};

FoundInsn x86_at(std::span<const uint8_t> bytes, Addr ip) {
  constexpr uint8_t kInt3 = 0xcc;
  x86::Insn insn;
  if (bytes[0] == kInt3 || x86::decode_insn(bytes, ip, 64, insn) != x86::InsnStatus::kOk) return {};
  const BranchKind k = insn.kind;
  const bool ends = k == BranchKind::kJump || k == BranchKind::kJumpInd || k == BranchKind::kRet ||
                    k == BranchKind::kFarRet || k == BranchKind::kFarJump;
  return {insn.length, ends, k == BranchKind::kJump || k == BranchKind::kCond ? insn.target : 0};
}

FoundInsn arm64_at(std::span<const uint8_t> bytes, Addr ip) {
  arm64::Insn insn;
  if (arm64::decode_insn(bytes, ip, arm64::kA64, false, insn) != arm64::InsnStatus::kOk) return {};
  if (insn.waypoint == arm64::Waypoint::kTrap) return {};
  const BranchKind k = insn.kind;
  const bool direct = insn.waypoint == arm64::Waypoint::kDirect && !insn.link;
  const bool ends = (direct && !insn.conditional) || k == BranchKind::kJumpInd || k == BranchKind::kRet ||
                    insn.exception_return;
  return {insn.length, ends, direct ? insn.target : 0};
}

}  // namespace

size_t code_extent(std::span<const uint8_t> bytes, Addr at, bool arm64) {
  size_t pos = 0, furthest = 0;  // the last instruction that a branch leads to
  while (pos < bytes.size()) {
    const auto rest = bytes.subspan(pos);
    const FoundInsn p = arm64 ? arm64_at(rest, at + pos) : x86_at(rest, at + pos);
    if (p.length == 0) return pos;
    if (p.target > at && p.target - at < bytes.size())
      furthest = std::max(furthest, static_cast<size_t>(p.target - at));
    pos += p.length;
    if (p.ends && pos > furthest) return pos;
  }
  return bytes.size();
}

}  // namespace asof
