#include "arch/x86/runs.h"

#include <algorithm>

namespace asof::x86 {
namespace {

// Kernel and user code do not branch to each other; what says so is for the careful walk.
bool leaves_half(const Block& b) {
  const bool kernel = is_kernel_address(b.ip);
  return is_kernel_address(b.end()) != kernel || (b.target != 0 && is_kernel_address(b.target) != kernel);
}

// "call next" reads the program counter; hardware does not record it (SDM, "RET compression").
bool pushes(const Block& b) {
  return b.kind == BranchKind::kCallInd || (b.kind == BranchKind::kCall && b.target != b.end());
}

RunEnd end_of(BranchKind kind, bool returns_are_compressed) {
  switch (kind) {
    case BranchKind::kCond:
      return RunEnd::kCond;
    case BranchKind::kRet:
      return returns_are_compressed ? RunEnd::kRet : RunEnd::kIndirect;
    case BranchKind::kJumpInd:
    case BranchKind::kCallInd:
      return RunEnd::kIndirect;
    default:
      return RunEnd::kStop;
  }
}

// Where a block leads without a decision; 0: nowhere.
Addr straight_on(const Block& b) {
  if (b.kind == BranchKind::kNone) return b.end();
  return b.kind == BranchKind::kJump || b.kind == BranchKind::kCall ? b.target : 0;
}

}  // namespace

Links::Links() : links_(zeroed_array<Link>(RunTable::kMax)) {}

RunSums::RunSums()
    : hashes_(zeroed_array<PathHash>(RunTable::kMax)), branches_(zeroed_array<uint8_t>(RunTable::kMax)) {}

MultiCallEdges::MultiCallEdges() : words_(zeroed_array<Edge>(kWords)) {}

Edge MultiCallEdges::add(Edge next, std::span<const Edge> returns) {
  const auto size = static_cast<uint32_t>(2 + returns.size());
  uint32_t at = used_.load(std::memory_order_relaxed);
  do {
    if (kWords - at < size) return Edge::kNone;
  } while (!used_.compare_exchange_weak(at, at + size, std::memory_order_relaxed));
  words_[at] = next;
  words_[at + 1] = static_cast<Edge>(returns.size());
  std::ranges::copy(returns, words_.get() + at + 2);
  return Edge{at};
}

CodeMap::CodeMap(const TextStore& text, TextAt text_at, std::vector<Addr> hooks, const Rules& rules)
    : text_(text, text_at, std::move(hooks)), rules_(rules) {}

RunCache::RunCache(std::shared_ptr<CodeMap> map)
    : map_(std::move(map)), text_(map_->text_), runs_(map_->table_) {}

RunId RunCache::at(Space space, Addr ip, uint8_t mode) {
  Slot* const slot = text_.at(space, ip, mode);
  if (slot == nullptr) return RunId::kNone;
  const RunId run = slot->run();
  return run != RunId::kNone ? run : make(*slot);
}

// A target that is not in the table. Where there were twice as many as it has places, it becomes larger.
RunId RunCache::new_target(Space space, Addr ip, uint8_t mode) {
  if (++new_targets_ == size_t{2} << kFewTargets) {
    std::vector<Target>(size_t{1} << kMostTargets).swap(targets_);
    target_shift_ = 64 - kMostTargets;
  }
  const RunId run = at(space, ip, mode);
  targets_[target_slot(ip)] = {ip, run, space_mode_key(space, mode)};
  return run;
}

// The run at a slot without one. All slots on its path are found now, so that to follow it costs nothing.
RunId RunCache::make(Slot& first) {
  FlowRun flow;
  Run run;
  std::array<const Block*, kMaxBlocks> blocks;
  std::array<Addr, kMaxCalls> calls;
  const Slot* slot = &first;
  const bool compressed = map_->rules_.returns_are_compressed;
  if (map_->unsure()) run.confidence = Confidence::kAmbiguous;
  while (slot != nullptr && text_.block(*slot).count != 0 && run.size < kMaxBlocks) {
    const Block& b = text_.block(*slot);
    if (b.unsure && !map_->unsure()) break;  // what follows it is not sure either, up to the next address
    if (run.instructions + b.count > Link::kMaxInstructions) break;
    blocks[run.size++] = &b;
    run.hash = run.hash * b.power + b.hash;
    run.instructions += b.count;
    if (b.kind != BranchKind::kNone) ++run.branches;
    if (leaves_half(b)) break;
    if (compressed && pushes(b)) {
      if (flow.call_count == calls.size()) break;
      calls[flow.call_count++] = b.end();
    }
    flow.end = end_of(b.kind, compressed);
    flow.targets = {b.end(), b.target};
    const Addr next = straight_on(b);
    if (next == 0) break;
    slot = text_.at(b.space, next, b.mode);
  }
  flow.calls = take_sites(flow.call_count);
  if (flow.end == RunEnd::kStop || (flow.calls == CallSiteId::kNone && flow.call_count != 0)) {
    flow.end = RunEnd::kStop;
    flow.call_count = 0;
    run = Run{};
  }
  const Block& begin = text_.block(first);
  flow.ip = begin.ip;
  flow.space = begin.space;
  flow.mode = begin.mode;
  for (unsigned i = 0; i < flow.call_count; ++i) new (&map_->site(flow.call(i))) CallSite{calls[i]};
  const Block** const kept = text_.arena().take<const Block*>(run.size);
  std::copy_n(blocks.begin(), run.size, kept);
  const RunId fresh = add_run(run, kept, flow);
  return fresh == RunId::kNone ? fresh : first.set_run(fresh);
}

RunId RunCache::add_run(const Run& run, const Block* const* blocks, const FlowRun& flow) {
  const RunId id = runs_.add(run, blocks);
  if (id == RunId::kNone) return id;
  FlowRun*& piece = map_->runs_[index_of(id) / CodeMap::kPiece];
  if (piece == nullptr) piece = text_.arena().take<FlowRun>(CodeMap::kPiece);
  piece[index_of(id) % CodeMap::kPiece] = flow;
  map_->sums_.set(id, run);
  Link& link = map_->links_.of(id);
  const bool returns = flow.end == RunEnd::kRet && flow.call_count == 0;
  // Nobody else sees it before its slot has it.
  link.next[0].store(Edge::kUnknown, std::memory_order_relaxed);
  link.next[1].store(returns ? Edge::kReturn : Edge::kUnknown, std::memory_order_relaxed);
  link.effect.store(uint64_t{run.instructions} << Link::kCountShift, std::memory_order_relaxed);
  return id;
}

// The first of `n` new call sites, side by side; kNone: there is no room.
CallSiteId RunCache::take_sites(uint32_t n) {
  if (n == 0) return CallSiteId::kNone;
  if (end_site_ - next_site_ < n) {
    const uint32_t piece = map_->site_pieces_.fetch_add(1, std::memory_order_relaxed);
    if (piece >= CodeMap::kSitePieces) {
      map_->site_pieces_.store(CodeMap::kSitePieces, std::memory_order_relaxed);
      return CallSiteId::kNone;
    }
    map_->sites_[piece] = text_.arena().take<CallSite>(CodeMap::kPiece);
    next_site_ = std::max(1U, piece * CodeMap::kPiece);
    end_site_ = (piece + 1) * CodeMap::kPiece;
  }
  const CallSiteId first{next_site_};
  next_site_ += n;
  return first;
}

RunId RunCache::return_run(CallSiteId site, const FlowRun& of) {
  CallSite& call = map_->site(site);
  RunId run = call.run.load(std::memory_order_acquire);
  if (run == RunId::kNone) {
    run = at(of.space, call.ret, of.mode);
    call.run.store(run, std::memory_order_release);
  }
  return run;
}

// What is to be in a link of `run` that leads to `next` and leaves its first `calls` calls on the return
// stack. kUnknown: there is no room for it.
Edge RunCache::link_calls(RunId id, unsigned calls, Edge next) {
  if (calls == 0) return next;
  const FlowRun& from = map_->run(id);
  std::array<Edge, kMaxCalls> edges;
  for (unsigned i = 0; i < calls; ++i) {
    const RunId run = return_run(from.call(i), from);
    if (run == RunId::kNone) return Edge::kUnknown;
    edges[i] = edge_to(run);
  }
  if (calls > 1) next = map_->multi_call_edges_.add(next, std::span(edges).first(calls - 1));
  if (next == Edge::kNone) return Edge::kUnknown;
  const uint64_t count = uint64_t{table()[id].instructions} << Link::kCountShift;
  map_->links_.of(id).effect.store(count | std::to_underlying(edges[calls - 1]), std::memory_order_release);
  return next;
}

bool RunCache::follow_indirect(RunId id) {
  const FlowRun& from = map_->run(id);
  if (from.end != RunEnd::kIndirect) return false;
  Link& link = map_->links_.of(id);
  if (link.next[0].load(std::memory_order_acquire) != Edge::kUnknown) return true;
  const Edge next = link_calls(id, from.call_count, Edge::kIndirect);
  for (std::atomic<Edge>& n : link.next) n.store(next, std::memory_order_release);
  return next != Edge::kUnknown;
}

bool RunCache::follow(RunId id, uint32_t bit) {
  const FlowRun& from = map_->run(id);
  std::atomic<Edge>& next = map_->links_.of(id).next[bit];
  const bool returns = from.end == RunEnd::kRet && bit != 0 && from.call_count != 0;  // to its own call
  if (from.end != RunEnd::kCond && !returns) return false;
  if (next.load(std::memory_order_acquire) != Edge::kUnknown) return true;
  RunId to{};
  if (returns) {
    to = return_run(from.call(from.call_count - 1U), from);
  } else {
    to = at(from.space, from.targets[bit], from.mode);
  }
  if (to == RunId::kNone) return false;
  const Edge edge = link_calls(id, from.call_count - (returns ? 1U : 0U), edge_to(to));
  next.store(edge, std::memory_order_release);
  return edge != Edge::kUnknown;
}

}  // namespace asof::x86
