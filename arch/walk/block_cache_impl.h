// Definitions of BlockCache, for the one source file of each machine that instantiates them.
#pragma once
#include <algorithm>
#include <cstring>

#include "arch/walk/block_cache.h"

namespace asof::walk {

inline constexpr size_t kMaxVariants = 64;   // at one fetch; of more any may be what runs
inline constexpr uint32_t kMaxBuilds = 256;  // attempts for one fetch; of more any may be what runs

// The interval in which `v`, one of `cell`, alone is possible there. Of the others the next ones reach nearest to it.
inline void narrow_alone(const Cell& cell, const Version& v, Time& from, Time& until) {
  const auto index = static_cast<size_t>(&v - cell.versions.data());
  if (index + 1 < cell.versions.size())
    until = std::min(until, saturating_add(cell.versions[index + 1].from, -1));
  if (index == 0) return;
  const Version& before = cell.versions[index - 1];
  if (before.until == kTimeMax)
    until = from = kTimeMin;  // never alone
  else
    from = std::max(from, saturating_add(before.until, 1));
}

// Has every instant of `bounds` a version?
inline bool covered(const Cell& cell, TimeBounds bounds) {
  Time reached = bounds.lo;  // the first instant that may have none
  for (const Version& v : cell.possible_in(bounds)) {
    if (v.from > reached) return false;
    if (v.until >= bounds.hi) return true;
    reached = v.until + 1;
  }
  return false;
}

// One attempt to read a block under given choices.
template <class Isa>
struct BlockCache<Isa>::Build {
  static constexpr size_t kMaxInsn = Isa::kMaxInsn;
  enum class End : uint8_t { kDone, kNeedChoice, kUnknown, kInvalid };

  uint8_t bytes[kMaxBlockInsns * kMaxInsn];
  uint8_t lengths[kMaxBlockInsns];
  uint32_t size = 0;
  uint16_t count = 0;
  typename Isa::Insn last;
  typename Isa::Ending ending;
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
  Fetch fetch(const TextStore& text, const Isa& isa, Space space, Addr a, uint8_t* out, Chooser&& choose) {
    Fetch f;
    while (f.n < kMaxInsn) {
      const Addr at = a + f.n;
      if (cell.range.empty() || !cell.range.contains(at)) {  // nearly always the cell of the one before
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
      if (size == 0 && f.n == 0) {
        origin = version->origin;
        if (isa.starts_inside(text, *version, at)) {
          f.stop = End::kInvalid;
          return f;
        }
      }
      f.n += n;
    }
    return f;
  }

  void add(const uint8_t* raw, const typename Isa::Insn& insn, uint8_t mode) {
    ending.add(insn, count, mode);
    last = insn;
    std::memcpy(bytes + size, raw, insn.length);
    lengths[count++] = insn.length;
    size += insn.length;
  }

  // Reads instructions until a branch, the limit, or text that is not at hand. The outcome counts only when
  // no instruction was read.
  template <class Chooser>
  End run(const TextStore& text, const Isa& isa, const Node& node, Chooser&& choose) {
    if (!Isa::can_start(node.ip, node.mode)) return End::kInvalid;
    while (count < kMaxBlockInsns) {
      uint8_t raw[kMaxInsn];
      const Addr ip = node.ip + size;
      const Fetch f = fetch(text, isa, node.space, ip, raw, choose);
      if (f.stop == End::kInvalid) return f.stop;
      using Status = typename Isa::InsnStatus;
      typename Isa::Insn insn;
      const Status status = f.n == 0 ? Status::kTruncated : isa.decode({raw, f.n}, ip, node.mode, insn);
      if (status == Status::kTruncated && f.stop != End::kDone) return f.stop;
      if (status != Status::kOk) return End::kInvalid;
      if (count != 0 && Isa::stands_alone(insn)) return End::kDone;
      unsure = unsure || insn.length > f.sure;
      add(raw, insn, node.mode);
      if (Isa::ends_block(insn)) return End::kDone;
    }
    return End::kDone;
  }

 private:
  Cell cell;
  const Version* version = nullptr;
};

// --text-at first, last: one state of the text, as at the beginning or the end of time.
template <class Isa>
bool BlockCache<Isa>::fixed_choice(const Cell& cell, const Version*& version) const {
  version = nullptr;
  const Time at = text_at_ == TextAt::kFirst ? kTimeMin : kTimeMax;
  for (const Version& v : cell.versions) {
    if (v.from <= at && v.until >= at) version = &v;
  }
  return true;
}

template <class Isa>
Node<Isa>* BlockCache<Isa>::make_node(Space space, Addr ip, uint8_t mode) {
  Node& node = node_pool_.emplace_back();
  node.ip = ip;
  node.space = space;
  node.mode = mode;
  nodes_[Key{ip, space, mode}] = &node;
  if (Variant* const stable = isa_.stable_block(node, arena_)) {
    node.state = TextState::kStable;
    node.only = stable;
    return &node;
  }
  Build build;
  const auto choose = [this](const Cell& cell, const Version*& v) {
    if (text_at_ != TextAt::kAsof) return fixed_choice(cell, v);
    if (cell.versions.empty()) return true;  // a hole: unknown for all time
    v = &cell.versions[0];
    return cell.stable();
  };
  const auto end = build.run(text_, isa_, node, choose);
  if (build.count != 0) {
    node.state = TextState::kStable;
    node.only = intern(node, build, {});
  } else if (end == Build::End::kNeedChoice) {
    node.state = TextState::kVersioned;
  } else {
    node.state = end == Build::End::kUnknown ? TextState::kUnknown : TextState::kInvalid;
  }
  isa_.made(node);
  return &node;
}

template <class Isa>
void BlockCache<Isa>::candidates(Node& node, TimeBounds bounds, Candidates<Isa>& out) {
  out.known.clear();
  out.unknown = out.missing = false;
  out.work = 0;
  out.builds = 0;
  std::vector<Choice> chosen;
  enumerate(node, bounds, chosen, out);
}

// Depth first over the changing cells that the first instruction touches: one branch per version possible in
// bounds, of which there is an instant at which all of them are.
template <class Isa>
void BlockCache<Isa>::enumerate(Node& node, TimeBounds bounds, std::vector<Choice>& chosen,
                                Candidates<Isa>& out) {
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
  const auto end = build.run(text_, isa_, node, choose);
  ++out.builds;
  out.work += 1 + build.count;
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
  for (const Version& v : need.possible_in(bounds)) {
    if (out.known.size() >= kMaxVariants || out.builds >= kMaxBuilds) {
      out.unknown = true;
      break;
    }
    chosen.push_back({need, &v});
    enumerate(node, {std::max(v.from, bounds.lo), std::min(v.until, bounds.hi)}, chosen, out);
    chosen.pop_back();
  }
}

template <class Isa>
Variant<Isa>* BlockCache<Isa>::synthetic(Node& node, std::span<const uint8_t> bytes, OriginRef origin) {
  Build build;
  build.unsure = true;
  build.origin = origin;
  typename Isa::Insn insn;
  if (isa_.decode(bytes, node.ip, node.mode, insn) != Isa::InsnStatus::kOk) return nullptr;
  build.add(bytes.data(), insn, node.mode);
  return intern(node, build, {});
}

// The variant with exactly these bytes and origin; made when it is new.
template <class Isa>
Variant<Isa>* BlockCache<Isa>::intern(Node& node, Build& build, const std::vector<Choice>& chosen) {
  Time from = kTimeMin, until = kTimeMax, alone_from = kTimeMin, alone_until = kTimeMax;
  for (const Choice& c : chosen) {
    from = std::max(from, c.version->from);
    until = std::min(until, c.version->until);
    narrow_alone(c.cell, *c.version, alone_from, alone_until);
  }
  // There may be as many as the text has versions.
  auto at = std::ranges::lower_bound(node.variants, from, {}, [](const Variant* v) { return v->block.from; });
  for (; at != node.variants.end() && (*at)->block.from == from; ++at) {
    Variant* const v = *at;
    if (v->block.until == until && v->block.size == build.size && v->block.origin == build.origin &&
        v->block.unsure == build.unsure && std::memcmp(v->block.bytes, build.bytes, build.size) == 0) {
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
  build.ending.set(v, build.last);
  if (node.state != TextState::kStable) node.variants.insert(at, &v);
  return &v;
}

template <class Isa>
const uint8_t* BlockCache<Isa>::store_bytes(const uint8_t* p, size_t n) {
  auto* const out = arena_.take<uint8_t>(n);
  std::memcpy(out, p, n);
  return out;
}

}  // namespace asof::walk
