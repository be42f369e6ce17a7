#include "arch/x86/runs.h"

#include <algorithm>

namespace asof::x86 {

RunCache::RunCache(BlockCache& blocks) : blocks_(blocks), hot_(1), ip_(1), node_(1), calls_(1) {
  table_.add(Run{}, nullptr);  // id 0 means "none"
}

uint32_t RunCache::follow(uint32_t id, uint32_t bit) {
  const Block& b = *table_.blocks(id)[table_[id].size - 1];
  const Addr ip = bit != 0 ? b.target : b.end();
  const uint32_t next = at(b.space, ip, b.mode);
  hot_[id].next[bit] = next;
  return next;
}

void RunCache::forget() {
  for (HotRun& hot : hot_) hot.end = RunEnd::kStop;
  for (CallSite& call : calls_) call.run = 0;
  for (Node* node : node_) {
    if (node != nullptr) node->run = 0;
  }
}

uint32_t RunCache::make(Node& first) {
  HotRun hot;
  Run run;
  const Block* const* stored = nullptr;
  std::vector<const Block*>& blocks = made_blocks_;
  std::vector<CallSite>& calls = made_calls_;
  blocks.clear();
  calls.clear();
  for (Node* n = &first; n->state == TextState::kStable && blocks.size() < kMaxBlocks;) {
    const Block& b = n->only->block;
    blocks.push_back(&b);
    run.hash = run.hash * b.power + b.hash;
    run.instructions += b.count;
    if (b.kind != BranchKind::kNone) ++run.branches;
    // Kernel and user code do not branch to each other; what says so is for the careful walk.
    if (is_kernel_address(b.end()) != is_kernel_address(b.ip) ||
        (b.target != 0 && is_kernel_address(b.target) != is_kernel_address(b.ip))) {
      break;
    }
    const bool calls_next = b.kind == BranchKind::kCall && b.target == b.end();  // reads the program counter
    if ((b.kind == BranchKind::kCall && !calls_next) || b.kind == BranchKind::kCallInd)
      calls.push_back({b.end(), 0});
    Addr next = 0;
    switch (b.kind) {
      case BranchKind::kCond:
        hot.end = RunEnd::kCond;
        break;
      case BranchKind::kRet:
        hot.end = RunEnd::kRet;
        break;
      case BranchKind::kJumpInd:
      case BranchKind::kCallInd:
        hot.end = RunEnd::kIndirect;
        break;
      case BranchKind::kNone:
        next = b.end();
        break;
      case BranchKind::kJump:
      case BranchKind::kCall:
        next = b.target;
        break;
      default:
        break;
    }
    if (next == 0) break;
    n = blocks_.node(b.space, next, b.mode);
  }
  if (table_.full()) hot.end = RunEnd::kStop;  // the rest of the text is left to the careful walk
  if (hot.end != RunEnd::kStop) {
    run.size = static_cast<uint16_t>(blocks.size());
    stored = store(blocks);
    hot.calls = static_cast<uint32_t>(calls_.size());
    hot.call_count = static_cast<uint8_t>(calls.size());
    calls_.insert(calls_.end(), calls.begin(), calls.end());
  } else {
    run = Run{};
  }
  first.run = static_cast<uint32_t>(hot_.size());
  if (!table_.full()) table_.add(run, stored);
  hot_.push_back(hot);
  ip_.push_back(first.ip);
  node_.push_back(&first);
  return first.run;
}

const Block* const* RunCache::store(const std::vector<const Block*>& blocks) {
  if (arena_left_ < blocks.size()) {
    arena_.push_back(std::make_unique<const Block*[]>(kArenaChunk));
    arena_left_ = kArenaChunk;
  }
  const Block** const out = arena_.back().get() + (kArenaChunk - arena_left_);
  std::ranges::copy(blocks, out);
  arena_left_ -= blocks.size();
  return out;
}

}  // namespace asof::x86
