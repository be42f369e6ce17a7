// What a second copy of kcore, taken when the recording was over, adds: text the first one does not have,
// changes that were not recorded, and chains of pokes whose end is missing.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <unordered_map>
#include <utility>

#include "decoder/io/address_ranges.h"
#include "decoder/kernel_text/kernel_text.h"
#include "decoder/kernel_text/recorded_probes.h"

namespace asof {
namespace {

// More separate differences than this, or a greater part of all bytes, are not unrecorded changes: the copy
// is of another kernel.
constexpr size_t kMostDifferences = 1U << 16U;
constexpr uint64_t kMostDifferentPart = 4;  // a quarter

std::vector<AddrRange> poked_ranges(const SideBand& side) {
  std::vector<AddrRange> out;
  out.reserve(side.pokes.size());
  for (const Poke& p : side.pokes)
    out.push_back(range_of(p.addr, std::max(p.old_bytes.size(), p.new_bytes.size())));
  return merged_ranges(std::move(out));
}

struct Difference {
  AddrRange range;
  std::span<const uint8_t> first;  // at the start
  std::span<const uint8_t> bytes;  // at the end
};

// Where instructions have one size (`unit`), each that differs is a difference of its own: they may have
// changed at different times.
void compare(AddrRange range, std::span<const uint8_t> a, std::span<const uint8_t> b, size_t unit,
             std::vector<Difference>& out) {
  constexpr size_t kPage = 4096;
  size_t at = 0;
  while (at < a.size() && out.size() <= kMostDifferences) {
    if (a.size() - at > kPage && std::memcmp(&a[at], &b[at], kPage) == 0) {  // nearly all of it
      at += kPage;
      continue;
    }
    const auto [first, unused] = std::mismatch(a.begin() + static_cast<std::ptrdiff_t>(at), a.end(),
                                               b.begin() + static_cast<std::ptrdiff_t>(at));
    auto begin = static_cast<size_t>(first - a.begin());
    size_t end = begin;
    while (end < a.size() && a[end] != b[end]) ++end;
    if (begin < end) {
      begin -= std::min(begin, static_cast<size_t>((range.begin + begin) % unit));
      end = std::min(a.size(), end + static_cast<size_t>((unit - (range.begin + end) % unit) % unit));
    }
    const size_t step = unit == 1 ? end - begin : unit;
    for (size_t part = begin; part < end; part += step) {
      const size_t size = std::min(step, end - part);
      out.push_back(
          {{range.begin + part, range.begin + part + size}, a.subspan(part, size), b.subspan(part, size)});
    }
    at = std::max(end, begin + 1);
  }
}

// The copies may have one address in several pieces: each difference is one all the same.
void take_once(std::vector<Difference>& differences) {
  std::ranges::stable_sort(differences, {},
                           [](const Difference& d) { return std::pair(d.range.begin, d.range.end); });
  const auto same = [](const Difference& a, const Difference& b) {
    return a.range == b.range && std::ranges::equal(a.first, b.first) && std::ranges::equal(a.bytes, b.bytes);
  };
  differences.erase(std::unique(differences.begin(), differences.end(), same), differences.end());
}

// arm64: one of the two has the breakpoint of a kprobe (arch/arm64/include/asm/brk-imm.h).
bool is_probe(const Difference& d) {
  constexpr std::array<uint8_t, 4> kBreakpoint{0x80, 0x00, 0x20, 0xd4};
  return std::ranges::equal(d.first, kBreakpoint) != std::ranges::equal(d.bytes, kBreakpoint);
}

struct Comparison {
  std::vector<Difference> differences;
  uint64_t compared = 0, different = 0;  // bytes
  bool other_kernel() const {
    return differences.size() > kMostDifferences || different > compared / kMostDifferentPart;
  }
};

// Never-poked bytes that the two copies have differently.
Comparison compare_texts(const KernelSnapshot& start, const KernelSnapshot& end, const SideBand& side) {
  constexpr uint16_t kAarch64 = 183;  // EM_AARCH64
  const size_t unit = end.machine() == kAarch64 ? 4 : 1;
  const std::vector<AddrRange> poked = poked_ranges(side);
  Comparison out;
  for (const KernelSnapshot::Piece& piece : end.text()) {
    for (const KernelSnapshot::Piece& first : start.text()) {
      const AddrRange both = first.range.intersect(piece.range);
      if (both.empty()) continue;
      each_uncovered(both, poked, [&](AddrRange range) {
        out.compared += range.size();
        compare(range, first.bytes.subspan(range.begin - first.range.begin, range.size()),
                piece.bytes.subspan(range.begin - piece.range.begin, range.size()), unit, out.differences);
      });
    }
  }
  for (const Difference& d : out.differences) out.different += d.range.size();
  take_once(out.differences);
  return out;
}

}  // namespace

void KernelText::add_end(Builder& builder, const PerfData& data) {
  const Comparison comparison = start_ ? compare_texts(*start_, *end_, side_) : Comparison();
  if (comparison.other_kernel()) {
    notices_.error(Code::kOtherKernelAtEnd, end_->path(),
                   "too many bytes differ from the first copy: this is of another kernel; not used");
    end_.reset();
    return;
  }
  builder.keep(end_->owner());
  const OriginRef origin =
      builder.add_origin({.kind = OriginKind::kKcoreEnd, .name = end_->path(), .build_id = {}});
  std::vector<AddrRange> known;
  if (start_) {
    for (const auto& piece : start_->text()) known.push_back(piece.range);
  }
  known = merged_ranges(std::move(known));
  for (const KernelSnapshot::Piece& piece : end_->text()) {
    each_uncovered(piece.range, known, [&](AddrRange range) {
      builder.add_layer({.range = range,
                         .bytes = piece.bytes.subspan(range.begin - piece.range.begin, range.size()),
                         .observed = kTimeMax,
                         .rank = kRankFallback,
                         .origin = origin,
                         .unsure = piece.name != "kernel" || end_->forced()});
      // The time of a module's load is not known: until the copy was made anything else may have been there.
      if (piece.name == "kernel") return;
      note_module();
      builder.add_layer(
          {.range = range, .bytes = {}, .from = kTimeMin + 1, .until = end_time_ - 1, .rank = kRankFallback});
    });
  }
  // Changed at some instant in between: both are possible all the time. An origin for each keeps neighbours
  // apart.
  const bool maybe_probe = std::ranges::any_of(comparison.differences, is_probe);
  const std::set<Addr> probes = maybe_probe ? recorded_probes(data) : std::set<Addr>();
  for (const Difference& difference : comparison.differences) {
    note_difference(difference.range, is_probe(difference) && probes.contains(difference.range.begin));
    builder.add_layer({.range = difference.range,
                       .bytes = difference.bytes,
                       .observed = kTimeMax,
                       .rank = kRankSnapshot,
                       .origin = builder.add_origin({.kind = OriginKind::kKcoreEnd,
                                                     .name = end_->path(),
                                                     .id = difference.range.begin,
                                                     .build_id = {}})});
  }
  add_end_of_chains(builder);
}

// `probe`: a kprobe whose hits are in the recording was there at one of the two times.
void KernelText::note_difference(AddrRange range, bool probe) {
  if (probe) {
    notices_.info(Code::kSnapshotCaughtBreakpoint, end_->path(),
                  fmt::format("at {:#x} one copy has the breakpoint of a kprobe that was recorded, the other "
                              "one what it replaces",
                              range.begin));
    return;
  }
  notices_.error(
      Code::kUnrecordedChange, end_->path(),
      fmt::format("{} bytes at {:#x} differ from the first copy and no record says when they changed",
                  range.size(), range.begin));
}

// Where the last poke of a site left other bytes than the end copy has, a later one is missing. What the copy shows
// breaks the chain like a poke that found it. Where records were lost and the bytes agree, it ends the doubt.
void KernelText::add_end_of_chains(Builder& builder) {
  constexpr size_t kLongestSite = 64;  // installs are longer; what they fill is no kernel or module text
  struct Byte {
    uint8_t value = 0;
    const Poke* poke = nullptr;
  };
  const OriginRef origin =
      builder.add_origin({.kind = OriginKind::kKcoreEnd, .name = end_->path(), .build_id = {}});
  std::unordered_map<Addr, Byte> last;
  for (const Poke& poke : side_.pokes) {
    if (poke.old_bytes.empty() || poke.new_bytes.size() > kLongestSite) continue;
    for (size_t i = 0; i < poke.new_bytes.size(); ++i) last[poke.addr + i] = {poke.new_bytes[i], &poke};
  }
  for (const Poke& poke : side_.pokes) {
    if (poke.old_bytes.empty() || poke.new_bytes.empty() || poke.new_bytes.size() > kLongestSite) continue;
    const AddrRange range = range_of(poke.addr, poke.new_bytes.size());
    bool is_last = true;
    for (Addr at = range.begin; at < range.end; ++at) is_last = is_last && last[at].poke == &poke;
    const KernelSnapshot::Piece* piece = is_last ? end_->text_at(range) : nullptr;
    if (piece == nullptr) continue;
    const auto bytes = piece->bytes.subspan(range.begin - piece->range.begin, range.size());
    const bool agrees = std::equal(bytes.begin(), bytes.end(), poke.new_bytes.begin());
    if (agrees && side_.lost.empty()) continue;
    if (!agrees) {
      notices_.error(Code::kLastChangeMissing, end_->path(),
                     fmt::format("{} bytes at {:#x} are not what the last TEXT_POKE record there (offset "
                                 "{:#x}) says: a later record is missing",
                                 range.size(), range.begin, poke.file_offset),
                     {}, Error::kNoOffset, poke.time);
    }
    builder.add_poke({.addr = poke.addr,
                      .time = end_time_,
                      .old_bytes = bytes,
                      .new_bytes = bytes,
                      .source = poke.source,
                      .file_offset = poke.file_offset,
                      .observed_in = origin});
  }
}

}  // namespace asof
