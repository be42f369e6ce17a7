// Lifetimes to layers: every byte of a lifetime is either known from some source or marked unknown.
#include "decoder/bpf_text/bpf_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/kernel_text/code_extent.h"

namespace asof {
namespace {

constexpr uint8_t kFill = 0xcc;  // what the kernel fills unused program memory with

constexpr Addr kPage = 4096;

// Where the direct jump or call of five bytes at `addr` goes.
std::optional<Addr> branch_target(Addr addr, std::span<const uint8_t> insn) {
  if (insn.size() != 5 || (insn[0] != 0xe8 && insn[0] != 0xe9)) return std::nullopt;
  uint32_t distance = 0;
  for (size_t i = 5; i-- > 1;) distance = distance << 8 | insn[i];
  return addr + 5 + static_cast<uint64_t>(int64_t{static_cast<int32_t>(distance)});
}

uint64_t length(const Poke& p) { return std::max(p.old_bytes.size(), p.new_bytes.size()); }

// Memory that was read before the code was written, or after it was freed.
bool is_blank(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; }) ||
         std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == kFill; });
}

}  // namespace

GeneratedText::GeneratedText(const SideBand& side, std::span<const BpfImage> images, const KernelText& kernel,
                             const WatchedTexts& watched, const std::string& where, NoticeBook& notices)
    : side_(side), images_(images), kernel_(kernel), watched_(watched), where_(where), notices_(notices) {
  std::vector<LostRecords> losses = side.lost;
  lifetimes_ = code_lifetimes(announcements(side, images, where, notices, losses), where, notices);
  lost_.emplace(losses);
  index_lifetimes();
  assign_images();
  find_displaced();
  find_doubts();
  for (const WatchedText& seen : watched.texts) {
    if (seen.type == WatchedText::kModule) continue;
    if (auto index = lifetime_at(seen.range.begin, seen.time, 0))
      seen_[*index].push_back(&seen);
    else
      notices.info(
          Code::kWatchedBytesWithoutSymbol, watched.path,
          fmt::format("bytes read at {:#x} belong to no symbol of that time; left out", seen.range.begin));
  }
}

// Pokes that fall into a lifetime, in time order. Those from before the registration (direct tail calls are
// patched while the program is being made) are in every reading of it; those after the unregister belong to
// it until it is displaced.
std::vector<Poke> GeneratedText::pokes_in(const CodeLifetime& lifetime) const {
  auto first = std::lower_bound(pokes_by_addr_.begin(), pokes_by_addr_.end(), lifetime.range.begin,
                                [&](uint32_t i, Addr a) { return side_.pokes[i].addr < a; });
  std::vector<uint32_t> found;
  for (; first != pokes_by_addr_.end() && side_.pokes[*first].addr < lifetime.range.end; ++first) {
    const Poke& poke = side_.pokes[*first];
    if (poke.time >= lifetime.from &&
        poke.time <= std::min(lifetime.displaced, lifetime.soft ? kTimeMax : lifetime.until))
      found.push_back(*first);
  }
  std::sort(found.begin(), found.end());
  std::vector<Poke> out;
  out.reserve(found.size());
  for (uint32_t i : found) out.push_back(side_.pokes[i]);
  return out;
}

OriginRef GeneratedText::snapshot_origin(Builder& builder, const KernelSnapshot& snapshot) {
  auto [it, fresh] = snapshot_origins_.try_emplace(&snapshot, kNoOrigin);
  if (fresh) {
    it->second = builder.add_origin({.kind = snapshot.kind(), .name = snapshot.path(), .build_id = {}});
    builder.keep(snapshot.owner());
  }
  return it->second;
}

// A dispatcher has two halves: the one that is not in use is rewritten, without a record, then its user is
// poked to it (kernel/bpf/dispatcher.c bpf_dispatcher_update(); trampolines before Linux 5.12 likewise).
void GeneratedText::find_rewritten() {
  for (const Poke& p : side_.pokes) {
    const auto before = branch_target(p.addr, p.old_bytes), after = branch_target(p.addr, p.new_bytes);
    if (before && after && *before / kPage == *after / kPage)
      halves_.insert(halves_.end(), {*before, *after});
  }
  std::ranges::sort(halves_);
}

// May generated code of this name in `range` be rewritten without a record while its symbol stays?
bool GeneratedText::is_rewritten(AddrRange range, std::string_view name) const {
  if (name.starts_with("bpf_dispatcher_")) return true;
  if (name.starts_with("bpf_prog_")) return false;
  const auto half = std::ranges::lower_bound(halves_, range.begin);
  return half != halves_.end() && *half < range.end;
}

void GeneratedText::add_text(Builder& builder) {
  find_rewritten();
  for (uint32_t i = 0; i < side_.pokes.size(); ++i) {
    auto next = by_begin_.upper_bound(side_.pokes[i].addr);
    if (next != by_begin_.begin()) pokes_by_addr_.push_back(i);  // cheap and wide: pokes_in() is exact
  }
  std::sort(pokes_by_addr_.begin(), pokes_by_addr_.end(), [&](uint32_t a, uint32_t b) {
    return side_.pokes[a].addr != side_.pokes[b].addr ? side_.pokes[a].addr < side_.pokes[b].addr : a < b;
  });
  if (!watched_.texts.empty()) builder.keep(watched_.owner);
  for (const CodeLifetime& lifetime : lifetimes_) add_lifetime_text(builder, lifetime);
  add_snapshot_symbols(builder);
}

// Everything that has bytes of this lifetime, oldest reading first.
std::vector<GeneratedText::Content> GeneratedText::contents(Builder& builder, const CodeLifetime& lifetime,
                                                            std::span<const Poke> pokes) {
  if (lifetime.image == nullptr || lifetime.image->bytes.empty()) return copies(builder, lifetime);
  const AddrRange range =
      range_of(lifetime.image->address, lifetime.image->bytes.size()).intersect(lifetime.range);
  const auto bytes = lifetime.image->bytes.first(range.size());
  const Time observed = observed_time(pokes, lifetime.loaded, [&](AddrRange r) {
    return range.contains(r) ? bytes.subspan(r.begin - range.begin, r.size()) : std::span<const uint8_t>();
  });
  const OriginRef origin = builder.add_origin(
      {.kind = OriginKind::kBpfImage, .name = lifetime.name, .id = lifetime.bpf_id, .build_id = {}});
  const Content image{range, bytes, observed, origin, true, false};
  for (const Content& copy : copies(builder, lifetime)) compare_image(lifetime, image, copy, pokes);
  return {image};
}

// Did another lifetime of this name begin here before the trace? perf copies kcore in between, and the copy
// may be of either.
bool GeneratedText::shares_copy(const CodeLifetime& lifetime) const {
  const auto same = by_begin_.find(lifetime.range.begin);
  return same != by_begin_.end() && std::ranges::any_of(same->second, [&](size_t i) {
           const CodeLifetime& other = lifetimes_[i];
           return &other != &lifetime && other.name == lifetime.name && other.from <= side_.trace_start;
         });
}

// What was read from memory while this lifetime lasted.
std::vector<GeneratedText::Content> GeneratedText::copies(Builder& builder, const CodeLifetime& lifetime) {
  std::vector<Content> out;
  auto add = [&](const KernelSnapshot* snapshot, bool ours, Time observed) {
    if (!ours || snapshot == nullptr || snapshot->kallsyms() == nullptr ||
        !snapshot->kallsyms()->has(lifetime.range.begin, lifetime.name))
      return;
    const auto pieces = snapshot->generated();
    auto piece = std::lower_bound(pieces.begin(), pieces.end(), lifetime.range.begin,
                                  [](const KernelSnapshot::Piece& p, Addr a) { return p.range.begin < a; });
    if (piece == pieces.end() || piece->range.begin != lifetime.range.begin) return;
    const AddrRange range = piece->range.intersect(lifetime.range);
    const auto bytes = piece->bytes.first(range.size());
    if (!is_blank(bytes))
      out.push_back({.range = range,
                     .bytes = bytes,
                     .observed = observed,
                     .origin = snapshot_origin(builder, *snapshot),
                     .unsure = snapshot == kernel_.start() && shares_copy(lifetime)});
  };
  // A program of the same name may have been there before, so only a lifetime that was open then can be in
  // the first copy.
  add(kernel_.start(), lifetime.from == kTimeMin || lifetime.from <= side_.trace_start, lifetime.from);
  if (auto seen = seen_.find(static_cast<size_t>(&lifetime - lifetimes_.data())); seen != seen_.end()) {
    const OriginRef origin =
        builder.add_origin({.kind = OriginKind::kWatcher, .name = watched_.path, .build_id = {}});
    for (const WatchedText* text : seen->second) {
      const AddrRange range = text->range.intersect(lifetime.range);
      const auto bytes = text->bytes.first(range.size());
      if (!range.empty() && !is_blank(bytes)) out.push_back({range, bytes, text->time, origin, false, false});
    }
  }
  add(kernel_.end(), lifetime.until == kTimeMax, kTimeMax);
  return out;
}

// Memory must equal the image, except where pokes changed it. If not, the image is of another program, or
// damaged.
void GeneratedText::compare_image(const CodeLifetime& lifetime, const Content& image, const Content& copy,
                                  std::span<const Poke> pokes) {
  const AddrRange both = image.range.intersect(copy.range);
  for (Addr a = both.begin; a < both.end; ++a) {
    const uint8_t here = image.bytes[a - image.range.begin], there = copy.bytes[a - copy.range.begin];
    if (here == there || std::ranges::any_of(pokes, [a](const Poke& p) {
          return range_of(p.addr, std::max(p.old_bytes.size(), p.new_bytes.size())).contains(a);
        }))
      continue;
    notices_.error(Code::kBpfImageMismatch, where_,
                   fmt::format("BPF program id {} ({}): its image has {:02x} at {:#x}, memory had {:02x}",
                               lifetime.bpf_id, lifetime.name, here, a, there));
    return;
  }
}

// Readings of one lifetime at several times. Equal ones are one; between two that differ (dispatchers are
// rewritten silently) both are possible.
void GeneratedText::add_versions(Builder& builder, const CodeLifetime& lifetime, std::span<const Poke> pokes,
                                 const std::vector<Content>& contents) {
  auto same = [&](const Content& a, const Content& b) {
    for (size_t i = 0; i < std::min(a.bytes.size(), b.bytes.size()); ++i) {
      if (a.bytes[i] == b.bytes[i]) continue;
      const Addr at = lifetime.range.begin + i;
      if (std::none_of(pokes.begin(), pokes.end(),
                       [&](const Poke& p) { return range_of(p.addr, length(p)).contains(at); }))
        return false;
    }
    return true;
  };
  std::vector<Content> distinct;
  for (const Content& content : contents) {
    if (distinct.empty() || !same(distinct.back(), content)) distinct.push_back(content);
  }
  for (size_t i = 0; i < distinct.size(); ++i) {
    const bool last = i + 1 == distinct.size();
    Layer layer{.range = distinct[i].range,
                .bytes = distinct[i].bytes,
                .rank = kRankEpoch,
                .origin = distinct[i].origin,
                .unsure = distinct[i].unsure || is_rewritten(lifetime.range, lifetime.name)};
    layer.from = i == 0 ? lifetime.from : std::max(lifetime.from, distinct[i - 1].observed);
    layer.until = last ? lifetime.until : std::min(distinct[i + 1].observed, lifetime.until);
    layer.soft_until = last && lifetime.soft;
    layer.observed = distinct[i].observed;
    if (layer.from <= layer.until) builder.add_layer(layer);
    if (i == 0 && distinct[i].range.end < lifetime.range.end) {
      builder.add_layer({.range = {distinct[i].range.end, lifetime.range.end},
                         .bytes = {},
                         .from = lifetime.from,
                         .until = lifetime.until,
                         .soft_until = lifetime.soft,
                         .rank = kRankEpoch,
                         .origin = distinct[i].origin});
    }
  }
}

bool GeneratedText::is_arm64() const {
  constexpr uint16_t kAarch64 = 183;  // EM_AARCH64
  const KernelSnapshot* copy = kernel_.start() != nullptr ? kernel_.start() : kernel_.end();
  return copy != nullptr && copy->machine() == kAarch64;
}

// A lifetime whose record has no exact length, cut to its own code.
CodeLifetime GeneratedText::without_neighbours(const CodeLifetime& lifetime,
                                               std::vector<Content>& contents) const {
  CodeLifetime out = lifetime;
  if (lifetime.exact || is_rewritten(lifetime.range, lifetime.name)) return out;
  size_t most = 0;
  for (Content& c : contents) {
    const size_t size = code_extent(c.bytes, c.range.begin, is_arm64());
    c.range.end = c.range.begin + size;
    c.bytes = c.bytes.first(size);
    most = std::max(most, size);
  }
  out.range.end = out.range.begin + most;
  return out;
}

void GeneratedText::add_lifetime_text(Builder& builder, const CodeLifetime& lifetime) {
  if (lifetime.from > lifetime.until || lifetime.range.empty()) return;
  const std::vector<Poke> pokes = pokes_in(lifetime);
  std::vector<Content> found = contents(builder, lifetime, pokes);
  if (found.empty()) {
    const OriginRef origin = builder.add_origin(
        {.kind = OriginKind::kUnknown, .name = lifetime.name, .id = lifetime.bpf_id, .build_id = {}});
    builder.add_layer({.range = lifetime.range,
                       .bytes = {},
                       .from = lifetime.from,
                       .until = lifetime.until,
                       .soft_until = lifetime.soft,
                       .rank = kRankEpoch,
                       .origin = origin});
    if (lifetime.type == KsymbolFact::kBpf && lifetime.bpf_id == 0) {
      notices_.error(Code::kCodeWithoutBytes, where_,
                     fmt::format("{} at {:#x} was announced without bytes: its code is unknown",
                                 lifetime.name, lifetime.range.begin),
                     "a second copy of kcore (--kcore-end) or a watcher's bytes (--ksym-text) can have it",
                     Error::kNoOffset, lifetime.from);
    }
    return;
  }
  const CodeLifetime known = without_neighbours(lifetime, found);
  add_versions(builder, known, pokes, found);
  add_doubt(builder, known);
}

// Generated code that kallsyms lists and no record mentions: it existed before the recording, or its record
// is lost.
void GeneratedText::add_snapshot_symbols(Builder& builder) {
  auto has_lifetime = [&](const KernelSnapshot::Piece& piece) {
    auto same = by_begin_.find(piece.range.begin);
    return same != by_begin_.end() && std::any_of(same->second.begin(), same->second.end(),
                                                  [&](size_t i) { return lifetimes_[i].name == piece.name; });
  };
  auto add = [&](const KernelSnapshot* snapshot, int rank, Time observed) {
    if (snapshot == nullptr) return;
    for (const KernelSnapshot::Piece& piece : snapshot->generated()) {
      if (has_lifetime(piece) || is_blank(piece.bytes)) continue;
      // Pages of kprobes and ftrace's trampolines belong to nothing else; nor do dispatchers.
      const bool rewritten = is_rewritten(piece.range, piece.name);
      const bool alone = rewritten || !piece.name.starts_with("bpf_");
      const auto bytes =
          alone ? piece.bytes : piece.bytes.first(code_extent(piece.bytes, piece.range.begin, is_arm64()));
      const AddrRange range = range_of(piece.range.begin, bytes.size());
      builder.add_layer({.range = range,
                         .bytes = bytes,
                         .observed = observed,
                         .rank = rank,
                         .origin = snapshot_origin(builder, *snapshot),
                         .unsure = rewritten});
      add_doubt(builder, range, rank, snapshot == kernel_.end());
    }
  };
  add(kernel_.start(), kRankSnapshot, kTimeMin);
  add(kernel_.end(), kRankFallback, kTimeMax);
}

void GeneratedText::add_symbols(SymbolTable& symbols) const {
  for (const CodeLifetime& lifetime : lifetimes_) {
    const Time until = lifetime.until == kTimeMax || !lifetime.soft ? lifetime.until : lifetime.displaced;
    symbols.add({.range = lifetime.range,
                 .from = lifetime.from,
                 .until = until,
                 .name = lifetime.name,
                 .dso = lifetime.type == KsymbolFact::kOutOfLine ? "[ool]" : lifetime.name,
                 .rank = 2});
  }
  auto add = [&](const KernelSnapshot* snapshot, int rank) {
    if (snapshot == nullptr || snapshot->kallsyms() == nullptr) return;
    for (const KernelSnapshot::Piece& piece : snapshot->generated()) {
      symbols.add({.range = piece.range,
                   .name = std::string(piece.name),
                   .dso = "[" + std::string(piece.name) + "]",
                   .rank = rank});
    }
  };
  add(kernel_.start(), 1);
  add(kernel_.end(), 0);
}

}  // namespace asof
