#include "arch/x86/stable_text.h"

#include <algorithm>
#include <cstring>

#include "arch/x86/insn.h"

namespace asof::x86 {
namespace {

constexpr unsigned kMaxBlockInsns = 256;

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

Arena& StableText::new_arena() {
  const std::lock_guard lock(arenas_mutex_);
  return *arenas_.emplace_back(std::make_unique<Arena>());
}

Place& StableText::at(Space space, Addr ip, uint8_t mode, Arena& arena) {
  const Key key{ip, space, mode};
  const size_t hash = KeyHash{}(key);
  Shard& shard = shards_[hash >> 32 & (kShards - 1)];
  {
    const std::lock_guard lock(shard.mutex);
    const auto it = shard.places.find(key, hash);
    if (it != shard.places.end()) return *it->second;
  }
  Place* const fresh = new (arena.take<Place>(1)) Place;
  fresh->block.ip = ip;
  fresh->block.space = space;
  fresh->block.mode = mode;
  if (space != kKernelSpace || std::ranges::find(hooks_, ip) == hooks_.end())
    read(space, ip, mode, fresh->block, arena);
  const std::lock_guard lock(shard.mutex);
  return *shard.places.try_emplace(key, fresh).first->second;  // another thread may have been faster
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
void StableText::read(Space space, Addr ip, uint8_t mode, Block& b, Arena& arena) const {
  const Cell cell = text_.cell(space, ip);
  const Version* const version = only_version(cell);
  if (version == nullptr) return;
  const std::span<const uint8_t> bytes(version->bytes + (ip - cell.range.begin), cell.range.end - ip);
  std::array<uint8_t, kMaxBlockInsns> lengths;
  Insn last;
  Addr at = ip;
  while (b.count < kMaxBlockInsns && last.kind == BranchKind::kNone) {
    Insn insn;
    const auto rest = bytes.subspan(b.size, std::min<size_t>(15, bytes.size() - b.size));
    if (decode_insn(rest, at, mode, insn) != InsnStatus::kOk) break;
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
