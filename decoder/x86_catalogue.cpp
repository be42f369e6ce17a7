#include "decoder/x86_catalogue.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <vector>

namespace asof {
namespace {

constexpr size_t kEntrySize = 16;  // s32 code, s32 target, s64 key; each relative to its own place
constexpr std::array<uint8_t, 2> kNop2 = {0x66, 0x90};
constexpr std::array<uint8_t, 5> kNop5 = {0x0f, 0x1f, 0x44, 0x00, 0x00};

int32_t signed_at(std::span<const uint8_t> bytes, size_t at) {
  int32_t v = 0;
  std::memcpy(&v, bytes.data() + at, sizeof v);
  return v;
}

// JMP rel8 or rel32; empty: too far for its size.
std::vector<uint8_t> jump(Addr from, Addr to, size_t size) {
  const auto distance = static_cast<int64_t>(to - from - size);
  if (size == 2) {
    if (distance < INT8_MIN || distance > INT8_MAX) return {};
    return {0xeb, static_cast<uint8_t>(distance)};
  }
  if (distance < INT32_MIN || distance > INT32_MAX) return {};
  std::vector<uint8_t> out = {0xe9};
  for (unsigned i = 0; i < 4; ++i) out.push_back(static_cast<uint8_t>(distance >> (8 * i)));
  return out;
}

// The other state of the jump label whose present bytes begin `now`; empty: it is no jump label (init text
// that was freed, a place that holds something else).
std::vector<uint8_t> other_state(std::span<const uint8_t> now, Addr code, Addr target) {
  const auto begins = [&](std::span<const uint8_t> b) {
    return now.size() >= b.size() && std::equal(b.begin(), b.end(), now.begin());
  };
  for (const std::span<const uint8_t> nop :
       {std::span<const uint8_t>(kNop2), std::span<const uint8_t>(kNop5)}) {
    const std::vector<uint8_t> on = jump(code, target, nop.size());
    if (on.empty()) continue;
    if (begins(nop)) return on;
    if (begins(on)) return {nop.begin(), nop.end()};
  }
  return {};
}

bool poked(const std::vector<AddrRange>& pokes, AddrRange range) {
  const auto after = std::upper_bound(pokes.begin(), pokes.end(), range.end,
                                      [](Addr a, const AddrRange& r) { return a < r.begin; });
  // Sites are short: one that overlaps is among the last few that begin before.
  return std::any_of(after - std::min<std::ptrdiff_t>(after - pokes.begin(), 16), after,
                     [range](const AddrRange& r) { return r.overlaps(range); });
}

}  // namespace

void add_x86_catalogue(const KernelText& kernel, const SideBand& side, const std::string& vmlinux,
                       Builder& builder, NoticeBook& notices) {
  if (kernel.start() == nullptr) {
    notices.info("I-TEXT-509", "catalogue",
                 "without a copy of kcore the places that may change are not known");
    return;
  }
  const auto table = find_jump_table(kernel, vmlinux);
  if (!table) {
    notices.info("I-TEXT-509", "catalogue",
                 "the kernel's jump table is neither in the copy of kcore nor in a vmlinux that was given",
                 "give the vmlinux with its symbols: --vmlinux");
    return;
  }
  std::vector<AddrRange> pokes;
  for (const Poke& p : side.pokes)
    pokes.push_back(range_of(p.addr, std::max(p.old_bytes.size(), p.new_bytes.size())));
  std::ranges::sort(pokes, {}, &AddrRange::begin);
  const auto states = std::make_shared<std::deque<std::vector<uint8_t>>>();
  const OriginRef origin = builder.add_origin(
      {.kind = OriginKind::kRaw, .name = "catalogue of jump labels", .id = 0, .build_id = {}});
  Addr last = 0;
  for (size_t at = 0; at + kEntrySize <= table->bytes.size(); at += kEntrySize) {
    const Addr entry = table->begin + at;
    const Addr code = entry + static_cast<uint64_t>(int64_t{signed_at(table->bytes, at)});
    const Addr target = entry + 4 + static_cast<uint64_t>(int64_t{signed_at(table->bytes, at + 4)});
    const auto* piece = kernel.start()->text_at(range_of(code, kNop5.size()));
    if (piece == nullptr || code == last) continue;
    const auto now = piece->bytes.subspan(code - piece->range.begin, kNop5.size());
    std::vector<uint8_t> other = other_state(now, code, target);
    if (other.empty() || poked(pokes, range_of(code, other.size()))) continue;
    last = code;
    states->push_back(std::move(other));
    builder.add_layer({.range = range_of(code, states->back().size()),
                       .bytes = states->back(),
                       .rank = kRankSnapshot,
                       .origin = origin});
  }
  builder.keep(states);
}

}  // namespace asof
