#include "arch/x86/stable_text.h"

#include <algorithm>
#include <cstring>

#include "arch/walk/block_cache.h"
#include "arch/x86/insn.h"

namespace asof::x86 {

uint32_t BlockTable::Writer::add(const Block& block) {
  if (next_ == end_) {
    const uint32_t piece = table_.pieces_.take();
    if (piece == kPieces) return 0;
    next_ = std::max(1U, piece * kPiece);
    end_ = (piece + 1) * kPiece;
  }
  table_.pieces_[next_ / kPiece][next_ % kPiece] = block;
  return next_++;
}

Slot* SlotPage::find(Addr ip) const {
  Line* line = lines_[ip % kSize / Slot::kLine].load(std::memory_order_acquire);
  for (; line != nullptr; line = line->more.load(std::memory_order_acquire)) {
    for (Slot& slot : line->slots) {
      if (slot.is(ip)) return &slot;
    }
  }
  return nullptr;
}

Slot& SlotPage::add(Addr ip, uint32_t block, Arena& arena) {
  std::atomic<Line*>* link = &lines_[ip % kSize / Slot::kLine];
  for (Line* line = nullptr;; link = &line->more) {
    line = link->load(std::memory_order_acquire);
    if (line == nullptr) {
      Line* const fresh = new (arena.take<Line>(1)) Line;
      if (link->compare_exchange_strong(line, fresh, std::memory_order_acq_rel)) line = fresh;
    }
    for (Slot& slot : line->slots) {
      if (slot.take(ip, block)) return slot;
    }
  }
}

Arena& StableText::new_arena() {
  const std::lock_guard lock(arenas_mutex_);
  return *arenas_.emplace_back(std::make_unique<Arena>());
}

SlotPage& StableText::page(const Key& key) {
  const size_t hash = KeyHash{}(key);
  Shard& shard = shards_[hash >> 32 & (kShards - 1)];
  const std::lock_guard lock(shard.mutex);
  const auto it = shard.pages.find(key, hash);
  if (it != shard.pages.end()) return *it->second;
  return *shard.pages.try_emplace(key, std::make_unique<SlotPage>()).first->second;
}

Slot* StableText::Reader::at(Space space, Addr ip, uint8_t mode) {
  const Addr page = ip / SlotPage::kSize;
  Recent& recent = recent_[page % kRecent];
  if (recent.page != page || recent.space != space || recent.mode != mode || recent.slots == nullptr)
    recent = {page, space, mode, &text_.page({page, space, mode})};
  if (Slot* const known = recent.slots->find(ip)) return known;
  Block fresh;
  fresh.ip = ip;
  fresh.space = space;
  fresh.mode = mode;
  const std::vector<Addr>& hooks = text_.hooks_;
  if (space != kKernelSpace || std::ranges::find(hooks, ip) == hooks.end()) text_.read(fresh, arena_);
  const uint32_t block = blocks_.add(fresh);
  return block == 0 ? nullptr : &recent.slots->add(ip, block, arena_);
}

// What is in a cell whatever the time is; nullptr: nothing, or it depends.
const Version* StableText::only_version(const Cell& cell) const {
  const Version* only = nullptr;
  if (text_at_ == TextAt::kAsof) {
    if (cell.stable()) only = &cell.versions[0];
  } else {
    const Time at = text_at_ == TextAt::kFirst ? kTimeMin : kTimeMax;
    for (const Version& v : cell.versions) {
      if (v.from <= at && v.until >= at) only = &v;
    }
  }
  return only != nullptr && only->bytes != nullptr && !is_poke(only->origin) ? only : nullptr;
}

// Reads instructions up to a branch, the limit, or the end of the cell. One that goes beyond its cell is left
// to the careful walk.
void StableText::read(Block& b, Arena& arena) const {
  const Addr ip = b.ip;
  const Cell cell = text_.cell(b.space, ip);
  const Version* const version = only_version(cell);
  if (version == nullptr) return;
  const std::span<const uint8_t> bytes(version->bytes + (ip - cell.range.begin), cell.range.end - ip);
  std::array<uint8_t, walk::kMaxBlockInsns> lengths;
  Insn last;
  Addr at = ip;
  while (b.count < walk::kMaxBlockInsns && last.kind == BranchKind::kNone) {
    Insn insn;
    const auto rest = bytes.subspan(b.size, std::min<size_t>(15, bytes.size() - b.size));
    if (decode_passable(rest, at, b.mode, insn) != InsnStatus::kOk) break;
    last = insn;
    lengths[b.count++] = last.length;
    b.hash = b.hash * kHashFactor + at;
    b.size += last.length;
    at += last.length;
  }
  if (b.count == 0) return;
  b.kind = last.kind;
  b.target = last.target;
  b.origin = version->origin;
  b.unsure = version->unsure;
  b.bytes = bytes.data();
  uint8_t* const kept = arena.take<uint8_t>(b.count);
  std::copy_n(lengths.begin(), b.count, kept);
  b.lengths = kept;
  b.power = kHashPowers[b.count];
}

}  // namespace asof::x86
