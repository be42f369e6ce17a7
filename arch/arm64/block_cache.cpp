#include "arch/arm64/block_cache.h"

#include <algorithm>
#include <cstring>

namespace asof::arm64 {
namespace {

constexpr unsigned kMaxBlockBytes = kMaxBlockInsns * 4;
constexpr size_t kMaxVariants = 64;  // at one fetch; of more any may be what runs

// The interval in which `v` alone is possible in `cell`. Versions are sorted by `from` and mostly follow each
// other.
void narrow_alone(const Cell& cell, const Version& v, Time& from, Time& until) {
  for (const Version& w : cell.versions) {
    if (&w == &v) continue;
    const bool earlier = w.from < v.from || (w.from == v.from && &w < &v);
    if (earlier) {
      if (w.until == kTimeMax)
        until = from = kTimeMin;  // never alone
      else
        from = std::max(from, saturating_add(w.until, 1));
    } else {
      until = std::min(until, saturating_add(w.from, -1));
    }
  }
}

// Has every instant of `bounds` a version? Those of a cell are sorted by `from` and by `until`.
bool covered(const Cell& cell, TimeBounds bounds) {
  Time reached = bounds.lo;  // the first instant that may have none
  for (const Version& v : cell.versions) {
    if (!v.possible_in(bounds)) continue;
    if (v.from > reached) return false;
    if (v.until >= bounds.hi) return true;
    reached = v.until + 1;
  }
  return false;
}

}  // namespace

// One attempt to read a block under given choices.
struct BlockCache::Build {
  enum class End : uint8_t { kDone, kNeedChoice, kUnknown, kInvalid };
  static constexpr size_t kMaxInsn = 4;

  uint8_t bytes[kMaxBlockBytes];
  uint8_t lengths[kMaxBlockInsns];
  uint32_t size = 0;
  uint16_t count = 0;
  Insn last;
  bool may_skip = false;
  Cell need;  // kNeedChoice: the changing cell without a chosen version
  OriginRef origin = kNoOrigin;
  bool unsure = false;

  // Copies up to one instruction's bytes from `a` as chosen. Stops in front of unknown bytes or a cell
  // without choice.
  struct Fetch {
    size_t n = 0;
    End stop = End::kDone;
    size_t sure = kMaxInsn;  // bytes in front of the first unsure one
  };

  template <class Chooser>
  Fetch fetch(const TextStore& text, Space space, Addr a, uint8_t* out, Chooser&& choose) {
    Fetch f;
    while (f.n < kMaxInsn) {
      const Addr at = a + f.n;
      if (cell.range.empty() || !cell.range.contains(at)) {  // nearly always the cell of the word before
        cell = text.cell(space, at);
        version = nullptr;
        if (!choose(cell, version)) {
          need = cell;
          cell = Cell{};
          f.stop = End::kNeedChoice;
          return f;
        }
      }
      if (version == nullptr || version->bytes == nullptr) {
        f.stop = End::kUnknown;
        return f;
      }
      const size_t n = std::min<uint64_t>(kMaxInsn - f.n, cell.range.end - at);
      if (n == 0) return f;
      std::memcpy(out + f.n, version->bytes + (at - cell.range.begin), n);
      if (version->unsure) f.sure = std::min(f.sure, f.n);
      if (size == 0 && f.n == 0) origin = version->origin;
      f.n += n;
    }
    return f;
  }

  // Reads instructions until one takes an atom, the limit, or text that is not at hand. The outcome counts
  // only when no instruction was read. A trap is a block of its own: the flow stops in front of it.
  template <class Chooser>
  End run(const TextStore& text, const Node& node, bool wfx, Chooser&& choose) {
    Addr ip = node.ip;
    unsigned it_left = 0;
    if ((ip & (node.mode == kT32 ? 1U : 3U)) != 0) return End::kInvalid;
    while (count < kMaxBlockInsns) {
      uint8_t raw[kMaxInsn];
      const Fetch f = fetch(text, node.space, ip, raw, choose);
      Insn insn;
      if (f.n == 0 || decode_insn({raw, f.n}, ip, node.mode, wfx, insn) == InsnStatus::kTruncated) {
        return f.stop != End::kDone ? f.stop : End::kInvalid;
      }
      if (insn.waypoint == Waypoint::kTrap && count != 0) return End::kDone;
      last = insn;
      unsure = unsure || insn.length > f.sure;
      // What no IT block in sight makes conditional may still stand in one that began before this block.
      may_skip = insn.conditional || it_left != 0 || (node.mode == kT32 && count < 4);
      if (insn.it_block != 0)
        it_left = insn.it_block;
      else if (it_left != 0)
        --it_left;
      std::memcpy(bytes + size, raw, insn.length);
      lengths[count++] = insn.length;
      size += insn.length;
      ip += insn.length;
      if (insn.waypoint != Waypoint::kNone) return End::kDone;
    }
    return End::kDone;
  }

 private:
  Cell cell;
  const Version* version = nullptr;
};

// --text-at first, last: one state of the text, as at the beginning or the end of time.
bool BlockCache::fixed_choice(const Cell& cell, const Version*& version) const {
  version = nullptr;
  const Time at = text_at_ == TextAt::kFirst ? kTimeMin : kTimeMax;
  for (const Version& v : cell.versions) {
    if (v.from <= at && v.until >= at) version = &v;
  }
  return true;
}

Node* BlockCache::make_node(Space space, Addr ip, uint8_t mode) {
  Node& node = node_pool_.emplace_back();
  node.ip = ip;
  node.space = space;
  node.mode = mode;
  nodes_[Key{ip, space, mode}] = &node;
  if (read_stable(node)) return &node;

  Build build;
  const auto choose = [this](const Cell& cell, const Version*& v) {
    if (text_at_ != TextAt::kAsof) return fixed_choice(cell, v);
    if (cell.versions.empty()) return true;  // a hole: unknown for all time
    v = &cell.versions[0];
    return cell.stable();
  };
  const Build::End end = build.run(text_, node, wfx_, choose);
  if (build.count != 0) {
    node.state = TextState::kStable;
    node.only = intern(node, build, {});
  } else if (end == Build::End::kNeedChoice) {
    node.state = TextState::kVersioned;
  } else {
    node.state = end == Build::End::kUnknown ? TextState::kUnknown : TextState::kInvalid;
  }
  return &node;
}

// Nearly always. False: the block has to be put together.
bool BlockCache::read_stable(Node& node) {
  if (node.mode != kA64 || (node.ip & 3) != 0 || !stable_.contains(node.space, node.ip)) return false;
  Insn last;
  Variant& v = *new (arena_.take<Variant>(1)) Variant;
  if (!stable_.read(node.space, node.ip, arena_, v.block, last)) return false;
  v.waypoint = last.waypoint;
  v.may_skip = last.conditional;
  v.link = last.link;
  v.exception_return = last.exception_return;
  node.state = TextState::kStable;
  node.only = &v;
  return true;
}

void BlockCache::candidates(Node& node, TimeBounds bounds, Candidates& out) {
  out.known.clear();
  out.unknown = out.missing = false;
  std::vector<Choice> chosen;
  enumerate(node, bounds, chosen, out);
}

// Depth first over the changing cells that the first instruction touches: one branch per version possible in
// bounds, of which there is an instant at which all of them are.
void BlockCache::enumerate(Node& node, TimeBounds bounds, std::vector<Choice>& chosen, Candidates& out) {
  Build build;
  const auto choose = [&chosen](const Cell& cell, const Version*& v) {
    if (cell.versions.empty()) return true;
    v = &cell.versions[0];
    if (cell.stable()) return true;
    for (const Choice& c : chosen) {
      if (c.cell.range == cell.range) {
        v = c.version;
        return true;
      }
    }
    return false;
  };
  const Build::End end = build.run(text_, node, wfx_, choose);
  if (build.count != 0) {
    Variant* v = intern(node, build, chosen);
    if (std::ranges::find(out.known, v) == out.known.end()) out.known.push_back(v);
    return;
  }
  if (end != Build::End::kNeedChoice) {
    out.unknown = true;
    out.missing = out.missing || end != Build::End::kInvalid;
    return;
  }
  const Cell need = build.need;
  // Where a part of the time has no version, something that nobody announced may have run there then.
  if (!covered(need, bounds)) out.unknown = out.missing = true;
  for (const Version& v : need.versions) {
    if (!v.possible_in(bounds)) continue;
    if (out.known.size() >= kMaxVariants) {
      out.unknown = true;
      break;
    }
    chosen.push_back({need, &v});
    enumerate(node, {std::max(v.from, bounds.lo), std::min(v.until, bounds.hi)}, chosen, out);
    chosen.pop_back();
  }
}

Variant* BlockCache::synthetic(Node& node, std::span<const uint8_t> bytes, OriginRef origin) {
  Build build;
  build.unsure = true;
  build.origin = origin;
  if (decode_insn(bytes, node.ip, node.mode, wfx_, build.last) != InsnStatus::kOk) return nullptr;
  std::memcpy(build.bytes, bytes.data(), build.last.length);
  build.size = build.lengths[0] = build.last.length;
  build.count = 1;
  return intern(node, build, {});
}

// The variant with exactly these bytes and origin; made when it is new.
Variant* BlockCache::intern(Node& node, Build& build, const std::vector<Choice>& chosen) {
  Time from = kTimeMin, until = kTimeMax, alone_from = kTimeMin, alone_until = kTimeMax;
  for (const Choice& c : chosen) {
    from = std::max(from, c.version->from);
    until = std::min(until, c.version->until);
    narrow_alone(c.cell, *c.version, alone_from, alone_until);
  }
  for (Variant* v : node.variants) {
    if (v->block.from == from && v->block.until == until && v->block.size == build.size &&
        v->block.origin == build.origin && v->block.unsure == build.unsure &&
        std::memcmp(v->block.bytes, build.bytes, build.size) == 0) {
      return v;
    }
  }
  Variant& v = *new (arena_.take<Variant>(1)) Variant;
  Block& b = v.block;
  b.ip = node.ip;
  b.space = node.space;
  b.mode = node.mode;
  b.size = build.size;
  b.count = build.count;
  b.kind = build.last.kind;
  b.target = build.last.target;
  b.origin = build.origin;
  b.unsure = build.unsure;
  b.from = from;
  b.until = until;
  b.bytes = store_bytes(build.bytes, build.size);
  b.lengths = store_bytes(build.lengths, build.count);
  Addr ip = b.ip;
  for (unsigned i = 0; i < b.count; ++i) {
    b.hash = b.hash * kHashFactor + ip;
    b.power *= kHashFactor;
    ip += b.lengths[i];
  }
  v.alone_from = std::max(alone_from, from);
  v.alone_until = std::min(alone_until, until);
  v.waypoint = build.last.waypoint;
  v.may_skip = build.may_skip;
  v.link = build.last.link;
  v.exception_return = build.last.exception_return;
  v.target_mode = build.last.target_mode;
  if (node.state != TextState::kStable) node.variants.push_back(&v);
  return &v;
}

const uint8_t* BlockCache::store_bytes(const uint8_t* p, size_t n) {
  auto* const out = arena_.take<uint8_t>(n);
  std::memcpy(out, p, n);
  return out;
}

}  // namespace asof::arm64
