#include "arch/arm64/runs.h"

#include <algorithm>
#include <array>

namespace asof::arm64 {
namespace {

constexpr auto kEnds = [] {
  std::array<RunEnd, static_cast<size_t>(Waypoint::kTrap) + 1> ends{};
  ends[static_cast<size_t>(Waypoint::kDirect)] = RunEnd::kDirect;
  ends[static_cast<size_t>(Waypoint::kIndirect)] = RunEnd::kIndirect;
  ends[static_cast<size_t>(Waypoint::kSync)] = RunEnd::kSync;
  ends[static_cast<size_t>(Waypoint::kWait)] = RunEnd::kWait;
  return ends;
}();

RunEnd end_of(const Insn& last) {
  return last.exception_return ? RunEnd::kExceptionReturn : kEnds[static_cast<size_t>(last.waypoint)];
}

}  // namespace

CodeMap::CodeMap(const TextStore& text, const RunRules& rules)
    : text_(text), rules_(rules), links_(zeroed_array<Link>(RunTable::kMax)) {}

CodeMap::Slot* CodeMap::page(Space space, Addr page, bool make) {
  const Key key{page, space};
  const std::lock_guard lock(mutex_);
  if (const auto known = pages_.find(key); known != pages_.end()) return known->second;
  if (!make) return nullptr;
  Slot* const slots = slots_.take<Slot>(kSlots);
  std::uninitialized_value_construct_n(slots, kSlots);
  pages_.try_emplace(key, slots);
  return slots;
}

Arena& CodeMap::new_arena() {
  const std::lock_guard lock(mutex_);
  return *arenas_.emplace_back(std::make_unique<Arena>());
}

std::shared_ptr<CodeMap> SharedCode::map(const TextStore& text, const RunRules& rules) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(maps_, rules, [](const auto& m) { return m->rules(); });
  return known != maps_.end() ? *known : maps_.emplace_back(std::make_shared<CodeMap>(text, rules));
}

RunCache::RunCache(std::shared_ptr<CodeMap> map)
    : map_(std::move(map)),
      arena_(map_->new_arena()),
      writer_(map_->table_),
      text_(map_->text_, map_->rules().text_at, map_->rules().wfx) {}

inline void RunCache::add(Run& run, const Block& b) const {
  if (map_->rules().is_unsure(b.space)) run.confidence = Confidence::kAmbiguous;
  run.hash = run.hash * b.power + b.hash;
  run.instructions += b.count;
  run.branches = static_cast<uint16_t>(run.branches + (b.kind != BranchKind::kNone ? 1 : 0));
  ++run.size;
}

// Is the block for the careful walk, because it alone is in doubt?
bool RunCache::stops_at(const Block& b) const {
  return !map_->rules().is_unsure(b.space) && map_->rules().is_unsure(b);
}

// Pages are made only where there is text: a damaged trace may name any address.
bool RunCache::find_page(Page& p, Space space, Addr ip) {
  const Addr page = ip >> CodeMap::kPageBits;
  CodeMap::Slot* const slots = map_->page(space, page, text_.contains(space, ip));
  if (slots == nullptr) return false;
  p = {page, slots, space};
  return true;
}

RunId RunCache::make(Space space, Addr ip, CodeMap::Slot& slot) {
  Made* made = arena_.take<Made>(1);
  Run run;
  Insn last;
  const bool read = text_.read(space, ip, arena_, made->block, last);
  if (read && stops_at(made->block)) {
    last = Insn{};
  } else if (read) {
    made->blocks[0] = &made->block;
    add(run, made->block);
    if (last.waypoint == Waypoint::kNone) [[unlikely]]
      made = make_long(made->block, run, last);
  }
  const RunEnd end = end_of(last);
  if (end == RunEnd::kStop) run = Run{};
  made->flow = {.ip = ip,
                .space = space,
                .end = end,
                .size = run.size,
                .may_skip = last.conditional,
                .link = last.link};
  const RunId fresh = writer_.add(run, made->blocks.data());
  if (fresh == RunId::kNone) return fresh;
  const Edge indirect = !map_->rules().return_stack ? Edge::kIndirect
                        : last.link                 ? Edge::kUnknown
                                                    : Edge::kReturn;
  Link& link = map_->links_[index_of(fresh)];
  link.next[0].store(Edge::kUnknown, std::memory_order_relaxed);
  link.next[1].store(end == RunEnd::kIndirect ? indirect : Edge::kUnknown, std::memory_order_relaxed);
  link.instructions.store(run.instructions, std::memory_order_relaxed);
  RunId known{};
  // Another thread may have been faster.
  return slot.compare_exchange_strong(known, fresh, std::memory_order_acq_rel) ? fresh : known;
}

// A run whose first block does not end in a waypoint.
RunCache::Made* RunCache::make_long(const Block& first, Run& run, Insn& last) {
  auto* const made = reinterpret_cast<Made*>(arena_.take<LongMade>(1));
  const Block** const blocks = made->blocks.data();
  blocks[0] = &first;
  while (last.waypoint == Waypoint::kNone && run.size < kMaxBlocks) {
    auto* const b = arena_.take<Block>(1);
    const Block& before = *blocks[run.size - 1];
    if (!text_.read(before.space, before.end(), arena_, *b, last) || stops_at(*b)) {
      last = Insn{};
      break;
    }
    blocks[run.size] = b;
    add(run, *b);
  }
  return made;
}

// What E leaves on the return stack. False: it is for the careful walk.
bool RunCache::link_push(RunId id) {
  const FlowRun& f = run(id);
  if (!map_->rules().return_stack || !f.link) return true;
  const RunId back = back_at(f.space, f.end_ip());
  map_->links_[index_of(id)].push.store(back != RunId::kNone ? edge_to(back) : Edge::kNone,
                                        std::memory_order_release);
  return back != RunId::kNone;
}

Edge RunCache::follow(RunId id, uint32_t atom) {
  const FlowRun& f = run(id);
  Edge edge = Edge::kIndirect;
  if (f.end == RunEnd::kDirect || f.end == RunEnd::kWait) [[likely]] {
    if (atom == 0 ? !f.may_skip : !link_push(id)) return Edge::kUnknown;
    const Addr fall_through = f.end_ip(), target = f.end == RunEnd::kDirect ? f.target() : fall_through;
    const RunId to = same_half(f.space, atom == 0 ? fall_through : target);
    if (to == RunId::kNone) return Edge::kUnknown;
    edge = edge_to(to);
  } else if (f.end != RunEnd::kIndirect || !f.link || atom == 0 || !link_push(id)) {
    return Edge::kUnknown;  // of others with kIndirect the link has known it from the start
  }
  map_->links_[index_of(id)].next[atom].store(edge, std::memory_order_release);
  return edge;
}

RunId RunCache::back_at(Space space, Addr ip) {
  return ip == map_->rules().hook && ip != 0 ? RunId::kNone : same_half(space, ip);
}

}  // namespace asof::arm64
