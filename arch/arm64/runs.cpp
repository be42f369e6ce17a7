#include "arch/arm64/runs.h"

#include <algorithm>
#include <cstring>

namespace asof::arm64 {
namespace {

constexpr unsigned kMaxBlockInsns = 256;  // as the careful walk's blocks

constexpr auto kLengths = [] {
  std::array<uint8_t, kMaxBlockInsns> all{};
  all.fill(4);
  return all;
}();

uint32_t word_at(const uint8_t* p) {
  return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 | static_cast<uint32_t>(p[2]) << 16 |
         static_cast<uint32_t>(p[3]) << 24;
}

RunEnd end_of(Waypoint w) {
  switch (w) {
    case Waypoint::kDirect:
      return RunEnd::kDirect;
    case Waypoint::kIndirect:
      return RunEnd::kIndirect;
    case Waypoint::kSync:
      return RunEnd::kSync;
    case Waypoint::kWait:
      return RunEnd::kWait;
    default:
      return RunEnd::kStop;
  }
}

}  // namespace

CodeMap::CodeMap(const TextStore& text, const RunRules& rules)
    : text_(text), rules_(rules), links_(zeroed_array<Link>(RunTable::kMax)) {}

CodeMap::Slot* CodeMap::page(Space space, Addr page, bool make) {
  const Key key{page, space};
  const std::lock_guard lock(mutex_);
  if (!make) {
    const auto known = pages_.find(key);
    return known == pages_.end() ? nullptr : known->second.get();
  }
  auto& slots = pages_[key];
  if (!slots) slots = zeroed_array<Slot>(kSlots);
  return slots.get();
}

std::pmr::memory_resource& CodeMap::new_memory() {
  constexpr size_t kFirstPiece = size_t{1} << 16;
  const std::lock_guard lock(mutex_);
  return *memory_.emplace_back(std::make_unique<std::pmr::monotonic_buffer_resource>(kFirstPiece));
}

std::shared_ptr<CodeMap> SharedCode::map(const TextStore& text, const RunRules& rules) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(maps_, rules, [](const auto& m) { return m->rules(); });
  return known != maps_.end() ? *known : maps_.emplace_back(std::make_shared<CodeMap>(text, rules));
}

RunCache::RunCache(std::shared_ptr<CodeMap> map)
    : map_(std::move(map)), memory_(map_->new_memory()), writer_(map_->table_) {}

Confidence RunCache::confidence_of(const Block& b) const {
  const RunRules& rules = map_->rules();
  const bool unsure = rules.unrecorded_changes && b.space == kKernelSpace && !rules.complete.contains(b.ip);
  return unsure ? Confidence::kAmbiguous : Confidence::kCertain;
}

// Goes to the cell of `a`. False: what stands there is not known, or depends on the time.
bool RunCache::enter_cell(Space space, Addr a) {
  if (cell_space_ != space || !cell_.range.contains(a)) {
    cell_ = map_->text_.cell(space, a);
    cell_space_ = space;
    version_ = nullptr;
    if (map_->rules().text_at == TextAt::kAsof) {
      if (cell_.stable()) version_ = &cell_.versions[0];
    } else {
      const Time at = map_->rules().text_at == TextAt::kFirst ? kTimeMin : kTimeMax;
      for (const Version& v : cell_.versions) {
        if (v.from <= at && v.until >= at) version_ = &v;
      }
    }
  }
  return version_ != nullptr && version_->bytes != nullptr;
}

// The word at `a`, which may lie across cells. Returns how many bytes of it are known.
size_t RunCache::fetch(Space space, Addr a, uint8_t* out) {
  size_t n = 0;
  while (n < 4 && enter_cell(space, a + n)) {
    const size_t part = std::min<uint64_t>(4 - n, cell_.range.end - (a + n));
    if (part == 0) break;
    std::memcpy(out + n, version_->bytes + (a + n - cell_.range.begin), part);
    n += part;
  }
  return n;
}

// Pages are made only where there is text: a damaged trace may name any address.
bool RunCache::find_page(Page& p, Space space, Addr ip) {
  const Addr page = ip >> CodeMap::kPageBits;
  CodeMap::Slot* slots = map_->page(space, page, false);
  if (slots == nullptr && enter_cell(space, ip)) slots = map_->page(space, page, true);
  if (slots == nullptr) return false;
  p = {page, slots, space};
  return true;
}

// The block at `ip` and its last instruction; nullptr: there is none that never changes.
const Block* RunCache::read(Space space, Addr ip, Insn& last) {
  std::array<uint8_t, kMaxBlockInsns * 4> copy;
  Addr at = ip;
  last = Insn{};
  if (!enter_cell(space, ip)) return nullptr;
  const AddrRange first = cell_.range;
  const Version& version = *version_;
  uint64_t hash = 0;
  uint16_t count = 0;
  while (count < kMaxBlockInsns && last.waypoint == Waypoint::kNone) {
    const uint8_t* word = copy.data() + 4U * count;
    if (first.contains(at) && first.end - at >= 4)
      word = version.bytes + (at - first.begin);
    else if (fetch(space, at, copy.data() + 4U * count) != 4)
      break;
    if (const uint32_t w = word_at(word); !is_plain_a64(w)) {
      Insn insn;
      decode_insn({word, 4}, at, kA64, map_->rules().wfx, insn);
      if (insn.waypoint == Waypoint::kTrap) break;
      last = insn;
    }
    ++count;
    hash = hash * kHashFactor + at;
    at += 4;
  }
  if (count == 0) return nullptr;
  Block* const b = new (memory_.allocate(sizeof(Block), alignof(Block))) Block;
  b->ip = ip;
  b->target = last.target;
  b->size = 4U * count;
  b->count = count;
  b->kind = last.kind;
  b->mode = kA64;
  b->space = space;
  b->origin = version.origin;
  b->bytes = version.bytes + (ip - first.begin);
  if (at > first.end) {
    const size_t inside = std::min<uint64_t>((first.end - ip) / 4 * 4, b->size);
    std::memcpy(copy.data(), b->bytes, inside);
    auto* const kept = static_cast<uint8_t*>(memory_.allocate(b->size, 1));
    std::memcpy(kept, copy.data(), b->size);
    b->bytes = kept;
  }
  b->lengths = kLengths.data();
  b->hash = hash;
  b->power = kHashPowers[count];
  return b;
}

uint32_t RunCache::make(Space space, Addr ip, CodeMap::Slot& slot) {
  FlowRun* const f = new (memory_.allocate(sizeof(FlowRun), alignof(FlowRun))) FlowRun;
  f->ip = f->end_ip = ip;
  f->space = space;
  Run run;
  Insn last;
  while (run.size < FlowRun::kMaxBlocks && last.waypoint == Waypoint::kNone) {
    const Block* const b = read(space, f->end_ip, last);
    if (b == nullptr || (run.size != 0 && confidence_of(*b) != run.confidence)) break;
    run.confidence = confidence_of(*b);
    run.hash = run.hash * b->power + b->hash;
    run.instructions += b->count;
    if (b->kind != BranchKind::kNone) ++run.branches;
    f->blocks[run.size++] = b;
    f->end_ip = b->end();
    f->end = end_of(last.waypoint);
  }
  f->target = last.target;
  f->may_skip = last.conditional;
  f->link = last.link;
  f->exception_return = last.exception_return;
  if (f->end == RunEnd::kStop) run = Run{};
  const uint32_t fresh = writer_.add(run, f->blocks.data());
  if (fresh == 0) return 0;
  Link& link = map_->links_[fresh];
  link.next[0] = link.next[1] = kUnknown;
  if (f->end == RunEnd::kIndirect && !f->exception_return) {
    if (!map_->rules().return_stack)
      link.next[1] = kIndirect;
    else if (!f->link)
      link.next[1] = kReturn;
  }
  link.instructions = run.instructions;
  uint32_t known = 0;
  // Another thread may have been faster.
  return slot.compare_exchange_strong(known, fresh, std::memory_order_acq_rel) ? fresh : known;
}

// What E leaves on the return stack. False: it is for the careful walk.
bool RunCache::link_push(uint32_t id) {
  const FlowRun& f = run(id);
  if (!f.link || !map_->rules().return_stack) return true;
  const uint32_t back = back_at(f.space, f.end_ip);
  map_->links_[id].push.store(way_to(back), std::memory_order_release);
  return back != 0;
}

bool RunCache::follow(uint32_t id, uint32_t atom) {
  const FlowRun& f = run(id);
  const bool taken = atom != 0 && (f.end == RunEnd::kDirect || f.end == RunEnd::kIndirect);
  if (f.end == RunEnd::kStop || f.end == RunEnd::kSync || f.exception_return) return false;
  if (f.end == RunEnd::kIndirect && !f.link) return false;  // its link has known it from the start
  if ((atom == 0 && !f.may_skip) || (taken && !link_push(id))) return false;
  uint32_t way = kIndirect;
  if (!taken || f.end == RunEnd::kDirect) way = way_to(same_half(f.space, taken ? f.target : f.end_ip));
  if (way == way_to(0)) return false;
  map_->links_[id].next[atom].store(way, std::memory_order_release);
  return true;
}

uint32_t RunCache::back_at(Space space, Addr ip) {
  return ip == map_->rules().hook && ip != 0 ? 0 : same_half(space, ip);
}

}  // namespace asof::arm64
