#include "arch/x86/stable_text.h"

#include <algorithm>
#include <cstring>

#include "arch/x86/insn.h"

namespace asof::x86 {
namespace {

constexpr unsigned kMaxBlockInsns = 256;
constexpr unsigned kAddressBits = 58;  // and above, of a slot; below is the pointer
constexpr uint64_t kPointer = (uint64_t{1} << kAddressBits) - 1;

}  // namespace

void* Arena::take_bytes(size_t bytes, size_t align) {
  size_t at = (used_ + align - 1) / align * align;
  if (chunks_.empty() || at + bytes > kChunk) {  // also for nothing there must be a place
    chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(std::max(bytes, kChunk)));
    at = 0;
  }
  used_ = at + bytes;
  return chunks_.back().get() + at;
}

Place* PlacePage::Slot::at(Addr ip) const {
  const uint64_t bits = bits_.load(std::memory_order_acquire);
  return bits >> kAddressBits == ip % kLine ? reinterpret_cast<Place*>(bits & kPointer) : nullptr;
}

void PlacePage::Slot::fill(Addr ip, Place& place) {
  bits_.store(reinterpret_cast<uintptr_t>(&place) | ip % kLine << kAddressBits, std::memory_order_release);
}

Place* PlacePage::find(Addr ip) const {
  const Line* line = lines_[ip % kSize / kLine].load(std::memory_order_acquire);
  for (; line != nullptr; line = line->more.load(std::memory_order_acquire)) {
    for (const Slot& slot : line->slots) {
      if (Place* const place = slot.at(ip)) return place;
    }
  }
  return nullptr;
}

Place& PlacePage::add(Addr ip, Place& fresh, Arena& arena) {
  const std::lock_guard lock(adding_);
  if (Place* const faster = find(ip)) return *faster;
  std::atomic<Line*>* link = &lines_[ip % kSize / kLine];
  for (Line* line = *link; line != nullptr; line = *link) {
    for (Slot& slot : line->slots) {
      if (slot.set()) continue;
      slot.fill(ip, fresh);
      return fresh;
    }
    link = &line->more;
  }
  Line* const line = new (arena.take<Line>(1)) Line;
  line->slots[0].fill(ip, fresh);
  link->store(line, std::memory_order_release);
  return fresh;
}

Arena& StableText::new_arena() {
  const std::lock_guard lock(arenas_mutex_);
  return *arenas_.emplace_back(std::make_unique<Arena>());
}

PlacePage& StableText::page(const Key& key) {
  const size_t hash = KeyHash{}(key);
  Shard& shard = shards_[hash >> 32 & (kShards - 1)];
  const std::lock_guard lock(shard.mutex);
  const auto it = shard.pages.find(key, hash);
  if (it != shard.pages.end()) return *it->second;
  return *shard.pages.try_emplace(key, std::make_unique<PlacePage>()).first->second;
}

Place& StableText::Reader::at(Space space, Addr ip, uint8_t mode) {
  const Addr page = ip / PlacePage::kSize;
  Recent& recent = recent_[page % kRecent];
  if (recent.page != page || recent.space != space || recent.mode != mode || recent.places == nullptr)
    recent = {page, space, mode, &text_.page({page, space, mode})};
  if (Place* const known = recent.places->find(ip)) return *known;
  Place& fresh = *new (arena_.take<Place>(1)) Place;
  fresh.block.ip = ip;
  fresh.block.space = space;
  fresh.block.mode = mode;
  const std::vector<Addr>& hooks = text_.hooks_;
  if (space != kKernelSpace || std::ranges::find(hooks, ip) == hooks.end()) text_.read(fresh.block, arena_);
  return recent.places->add(ip, fresh, arena_);
}

// What stands in a cell whatever the time is; nullptr: nothing, or it depends.
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
  std::array<uint8_t, kMaxBlockInsns> lengths;
  Insn last;
  Addr at = ip;
  while (b.count < kMaxBlockInsns && last.kind == BranchKind::kNone) {
    Insn insn;
    const auto rest = bytes.subspan(b.size, std::min<size_t>(15, bytes.size() - b.size));
    if (decode_insn(rest, at, b.mode, insn) != InsnStatus::kOk) break;
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
  b.bytes = bytes.data();
  uint8_t* const kept = arena.take<uint8_t>(b.count);
  std::copy_n(lengths.begin(), b.count, kept);
  b.lengths = kept;
  b.power = kHashPowers[b.count];
}

}  // namespace asof::x86
