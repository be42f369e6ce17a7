// Block: instructions in a row, and Step: one execution of one.
#pragma once
#include <cstdint>

#include "textstore/address.h"
#include "textstore/origin.h"
#include "textstore/time.h"

namespace asof {

// How a block ends. Field names of perf's branch types where they exist.
enum class BranchKind : uint8_t {
  kNone,     // straight on: the block was cut (length, change of text, page end)
  kCond,     // conditional, direct
  kJump,     // unconditional, direct
  kCall,     // direct
  kJumpInd,  // indirect
  kCallInd,  // indirect
  kRet,
  kFarCall,  // SYSCALL, SYSENTER, INT n, VMCALL, far CALL
  kFarRet,   // SYSRET, SYSEXIT, IRET, VMRESUME, far RET
  kFarJump,
  kPtwrite,  // not a branch; ends the block because a packet may bind to it
  kPaging,   // MOV CR3, VMPTRLD: likewise
};

// kPtwrite and kPaging only end a block.
constexpr bool is_branch(BranchKind kind) {
  return kind != BranchKind::kNone && kind != BranchKind::kPtwrite && kind != BranchKind::kPaging;
}

// A straight run of instructions, decoded once per version of its text. Immutable; lives as long as its
// SegmentDecoder. Ends after the first branch.
struct Block {
  Addr ip = 0;
  Addr target = 0;     // of a direct branch
  uint32_t size = 0;   // bytes
  uint16_t count = 0;  // instructions, at least 1
  BranchKind kind = BranchKind::kNone;
  uint8_t mode = 64;    // 16, 32 or 64: code size the instructions were decoded for
  bool unsure = false;  // some of the bytes may have changed unseen (Version::unsure): kAmbiguous at best
  Space space = kKernelSpace;
  OriginRef origin = kNoOrigin;
  Time from = kTimeMin;  // the bytes' validity, both ends included
  Time until = kTimeMax;
  const uint8_t* bytes = nullptr;    // size of them
  const uint8_t* lengths = nullptr;  // count of them
  uint64_t hash = 0;                 // sum over i of ip_i * K^(count-1-i), K = kHashFactor
  uint64_t power = 1;                // K^count

  Addr end() const { return ip + size; }
};

// h = h * K + ip over every instruction in order, modulo 2^64.
inline constexpr uint64_t kHashFactor = 0x9E3779B97F4A7C15ULL;

// How sure it is that these bytes ran (docs/live-text.md): kCertain: one version was possible. kProved:
// several were, the trace contradicts all others. kEquivalent: several, and they join again without a
// difference. kAmbiguous: several are left, the likeliest was taken; or the recording leaves open whether the
// bytes were changed.
enum class Confidence : uint8_t { kCertain, kProved, kEquivalent, kAmbiguous, kContradiction };

// One executed (part of a) block.
struct Step {
  static constexpr uint8_t kTaken = 1;        // the conditional branch at its end was taken
  static constexpr uint8_t kAfterGap = 2;     // something before it is missing (gap, trace start)
  static constexpr uint8_t kAsyncEntry = 4;   // entered by an interrupt or exception
  static constexpr uint8_t kTransaction = 8;  // inside a TSX transaction

  const Block* block = nullptr;
  Time time = kTimeMin;  // of the last timing packet read for it, no bound; kTimeMin: unknown
  uint32_t count = 0;  // instructions executed from the block's start; less than block->count when cut short
  Confidence confidence = Confidence::kCertain;
  uint8_t flags = 0;
  uint16_t reserved = 0;
};

// All of the block ran, so the instruction at its end did.
inline bool is_complete(const Step& step) { return step.count == step.block->count; }

// The branch at the block's end was executed and went to its target.
inline bool took_branch(const Step& step) {
  return is_complete(step) && is_branch(step.block->kind) &&
         (step.block->kind != BranchKind::kCond || (step.flags & Step::kTaken) != 0);
}

}  // namespace asof
