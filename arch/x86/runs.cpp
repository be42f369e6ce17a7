#include "arch/x86/runs.h"

#include <algorithm>
#include <bit>
#include <new>

namespace asof::x86 {
namespace {

constexpr uint32_t kWindowMask = (1U << (Path::kBits + 1)) - 1;

// Kernel and user code do not branch to each other; what says so is for the careful walk.
bool leaves_half(const Block& b) {
  const bool kernel = is_kernel_address(b.ip);
  return is_kernel_address(b.end()) != kernel || (b.target != 0 && is_kernel_address(b.target) != kernel);
}

// "call next" reads the program counter; hardware does not record it (SDM, "RET compression").
bool pushes(const Block& b) {
  return b.kind == BranchKind::kCallInd || (b.kind == BranchKind::kCall && b.target != b.end());
}

RunEnd end_of(BranchKind kind) {
  switch (kind) {
    case BranchKind::kCond:
      return RunEnd::kCond;
    case BranchKind::kRet:
      return RunEnd::kRet;
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

CodeMap::CodeMap(const TextStore& text, TextAt text_at, std::vector<Addr> hooks)
    : text_(text, text_at, std::move(hooks)),
      paths_(static_cast<Path*>(std::calloc(kPathSlots, sizeof(Path)))) {
  if (!paths_) throw std::bad_alloc();
}

bool CodeMap::find(uint32_t tag, Path& out) {
  const size_t first = slot_of(tag);
  for (unsigned i = 0; i < kProbes; ++i) {
    Path& slot = paths_[(first + i) % kPathSlots];
    const uint32_t there = std::atomic_ref(slot.tag).load(std::memory_order_acquire);
    if (there == tag) {
      out = slot;
      return true;
    }
    if (there == 0) return false;
  }
  return false;
}

void CodeMap::add(const Path& path) {
  const std::lock_guard lock(paths_mutex_);
  const size_t first = slot_of(path.tag);
  for (unsigned i = 0; i < kProbes; ++i) {
    Path& slot = paths_[(first + i) % kPathSlots];
    const std::atomic_ref tag(slot.tag);
    if (tag.load(std::memory_order_relaxed) != 0) continue;
    slot.code = path.code;
    slot.next = path.next;
    slot.used = path.used;
    slot.returns = path.returns;
    slot.call_count = path.call_count;
    slot.calls = path.calls;
    tag.store(path.tag, std::memory_order_release);
    return;
  }
}

RunCache::RunCache(std::shared_ptr<CodeMap> map)
    : map_(std::move(map)), arena_(map_->text_.new_arena()), runs_(map_->table_), paths_(map_->table_) {}

uint32_t RunCache::at(Space space, Addr ip, uint8_t mode) {
  Place& place = map_->text_.at(space, ip, mode, arena_);
  const uint32_t run = place.run.load(std::memory_order_acquire);
  return run != 0 ? run : make(place);
}

// The run at a place without one. All places on its way are found now, so that to follow it costs nothing.
uint32_t RunCache::make(Place& first) {
  FlowRun flow;
  Run run;
  std::array<const Block*, kMaxBlocks> blocks;
  std::array<Addr, Path::kMaxCalls> calls;
  Place* place = &first;
  while (place->block.count != 0 && run.size < kMaxBlocks) {
    const Block& b = place->block;
    blocks[run.size++] = &b;
    run.hash = run.hash * b.power + b.hash;
    run.instructions += b.count;
    if (b.kind != BranchKind::kNone) ++run.branches;
    if (leaves_half(b)) break;
    if (pushes(b)) {
      if (flow.call_count == calls.size()) break;
      calls[flow.call_count++] = b.end();
    }
    flow.end = end_of(b.kind);
    const Addr next = straight_on(b);
    if (next == 0) break;
    place = &map_->text_.at(b.space, next, b.mode, arena_);
  }
  flow.calls = take_sites(flow.call_count);
  if (flow.end == RunEnd::kStop || (flow.calls == 0 && flow.call_count != 0)) {
    flow.end = RunEnd::kStop;
    flow.call_count = 0;
    run = Run{};
  }
  flow.ip = first.block.ip;
  flow.space = first.block.space;
  flow.mode = first.block.mode;
  for (unsigned i = 0; i < flow.call_count; ++i) {
    CallSite& site = map_->site(flow.calls + i);
    site.ret = calls[i];
    site.space = flow.mode == 64 ? flow.space : kNoSpace;
  }
  const Block** const kept = arena_.take<const Block*>(run.size);
  std::copy_n(blocks.begin(), run.size, kept);
  const uint32_t fresh = add_run(run, kept, flow);
  if (fresh == 0) return 0;
  uint32_t known = 0;
  // Another thread may have been faster.
  return first.run.compare_exchange_strong(known, fresh, std::memory_order_acq_rel) ? fresh : known;
}

uint32_t RunCache::add_run(const Run& run, const Block* const* blocks, const FlowRun& flow) {
  const uint32_t id = runs_.add(run, blocks);
  if (id == 0) return 0;
  auto& piece = map_->runs_[id / CodeMap::kPiece];
  if (!piece) piece = std::make_unique<FlowRun[]>(CodeMap::kPiece);
  FlowRun& out = piece[id % CodeMap::kPiece];
  out.calls = flow.calls;
  out.call_count = flow.call_count;
  out.end = flow.end;
  out.mode = flow.mode;
  out.space = flow.space;
  out.ip = flow.ip;
  return id;
}

// Index of the first of `n` new call sites, side by side; 0: there is no room.
uint32_t RunCache::take_sites(uint32_t n) {
  if (n == 0) return 0;
  if (end_site_ - next_site_ < n) {
    const uint32_t piece = map_->site_pieces_.fetch_add(1, std::memory_order_relaxed);
    if (piece >= CodeMap::kSitePieces) {
      map_->site_pieces_.store(CodeMap::kSitePieces, std::memory_order_relaxed);
      return 0;
    }
    map_->sites_[piece] = std::make_unique<CallSite[]>(CodeMap::kPiece);
    next_site_ = std::max(1U, piece * CodeMap::kPiece);
    end_site_ = (piece + 1) * CodeMap::kPiece;
  }
  const uint32_t first = next_site_;
  next_site_ += n;
  return first;
}

// Where run `id` leads on a TNT bit; remembers it.
uint32_t RunCache::follow(uint32_t id, uint32_t bit) {
  FlowRun& from = map_->run(id);
  uint32_t next = from.next[bit].load(std::memory_order_acquire);
  if (next != 0) return next;
  const Block& b = *table().blocks(id)[table()[id].size - 1];
  next = at(b.space, bit != 0 ? b.target : b.end(), b.mode);
  from.next[bit].store(next, std::memory_order_release);
  return next;
}

const Path* RunCache::find_hot(HotSet& set, uint32_t tag, uint8_t& seen) {
  size_t i = 1;
  while (i < set.size() && set[i].tag != tag) ++i;
  Path path;
  if (i < set.size()) {
    path = set[i];
  } else if (seen < kWarm) {
    ++seen;
    return nullptr;
  } else {
    path = find_path(tag);
    --i;
  }
  for (; i > 0; --i) set[i] = set[i - 1];
  set[0] = path;
  return &set[0];
}

Path RunCache::find_path(uint32_t tag) {
  Path path;
  if (!map_->find(tag, path)) {
    path = make_path(tag);
    map_->add(path);
  }
  return path;
}

Path RunCache::make_path(uint32_t tag) {
  const uint32_t window = tag & kWindowMask;
  const auto bits = static_cast<unsigned>(std::bit_width(window)) - 1;
  std::array<uint32_t, Path::kBits> codes;
  Path path;
  path.tag = tag;
  Run sum;
  unsigned calls = 0;
  uint32_t at = tag >> (Path::kBits + 1);
  while (sum.size < bits && path.returns == 0) {
    const uint32_t bit = window >> (bits - 1 - sum.size) & 1;
    const FlowRun& r = map_->run(at);
    const bool returns = r.end == RunEnd::kRet && bit != 0;
    if ((r.end != RunEnd::kCond && !returns) || calls + r.call_count > Path::kMaxCalls) break;
    const uint32_t next = returns ? 0 : follow(at, bit);
    if (next == 0 && !returns) break;
    const Run& run = table()[at];
    sum.hash = sum.hash * hash_power(run.instructions) + run.hash;
    sum.instructions += run.instructions;
    sum.branches = static_cast<uint16_t>(sum.branches + run.branches);
    calls += r.call_count;
    codes[sum.size++] = at << 1 | bit;
    path.returns = returns;
    at = next;
  }
  if (sum.size > 1 && sum.size < bits) {  // the rest of the bits makes no difference
    path = find_path(tag >> (Path::kBits + 1) << (Path::kBits + 1) | window >> (bits - sum.size));
    path.tag = tag;
    return path;
  }
  path.used = sum.size & 15;
  path.next = at;
  path.call_count = calls & 31;
  if (sum.size == 0) return path;
  if (sum.size > 1) path.calls = copy_sites(codes, sum.size, calls) & (Path::kMaxSite - 1);
  const bool fits = sum.size > 1 && (calls == 0 || path.calls != 0);
  if (fits) {
    uint32_t* const kept = arena_.take<uint32_t>(sum.size);
    std::copy_n(codes.begin(), sum.size, kept);
    const uint32_t id = paths_.add_path(sum, kept);
    path.code = id << 1 | 1;
    if (id != 0) return path;
  }
  path = step(codes[0] >> 1, codes[0] & 1);  // one run, or no room for more
  path.tag = tag;
  return path;
}

Path RunCache::step(uint32_t run, uint32_t bit) {
  const FlowRun& r = map_->run(run);
  Path path;
  const bool returns = r.end == RunEnd::kRet && bit != 0;
  if (r.end != RunEnd::kCond && !returns) return path;
  path.next = returns ? 0 : follow(run, bit);
  if (path.next == 0 && !returns) return path;
  path.code = run << 1 | bit;
  path.used = 1;
  path.returns = returns;
  path.call_count = r.call_count & 31;
  path.calls = r.calls & (Path::kMaxSite - 1);
  return path;
}

// The call sites of a path's runs side by side: index of the first; 0: none, or no room.
uint32_t RunCache::copy_sites(std::span<const uint32_t> codes, unsigned runs, unsigned calls) {
  const uint32_t first = take_sites(calls);
  if (first == 0) return 0;
  uint32_t to = first;
  for (const uint32_t code : codes.first(runs)) {
    const FlowRun& r = map_->run(code >> 1);
    for (uint32_t i = 0; i < r.call_count; ++i, ++to) {
      const CallSite& from = map_->site(r.calls + i);
      CallSite& copy = map_->site(to);
      copy.ret = from.ret;
      copy.space = from.space;
      copy.run.store(from.run.load(std::memory_order_acquire), std::memory_order_relaxed);
    }
  }
  return first;
}

}  // namespace asof::x86
