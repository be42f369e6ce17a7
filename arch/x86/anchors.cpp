#include "arch/x86/anchors.h"

#include <algorithm>

#include "arch/x86/state.h"

namespace asof::x86 {
namespace {

// The last batch before a sync point has finished its rounds of interrupts after this time at the latest.
constexpr Time kBatchEnd = 100'000'000;  // ns
constexpr uint32_t kRoundsAfterRecord = 2, kRoundsOfRecord = 3;

}  // namespace

std::vector<Addr> Anchors::hooks(const Config& config, const TextStore& text, const DecodeOptions& options) {
  const auto unrecorded = [](const TextNotice& n) {
    return n.kind == TextNotice::Kind::kChainBreak || n.kind == TextNotice::Kind::kBaselineMismatch;
  };
  if (options.text_at != TextAt::kAsof || std::ranges::any_of(text.notices(), unrecorded)) return {};
  std::vector<Addr> out;
  for (const Addr a : {config.perf_event_text_poke, config.do_sync_core}) {
    if (a != 0) out.push_back(a);
  }
  return out;
}

const std::vector<Time>& Anchors::ring_times(uint32_t ring) {
  const auto [it, fresh] = ring_times_.try_emplace(ring);
  std::vector<Time>& times = it.value();
  if (fresh) {
    for (const PokeRecord& p : text_.pokes()) {
      if (p.source == ring) times.push_back(p.time);
    }
  }
  return times;
}

bool Anchors::lost_between(Time after, Time before, std::optional<uint32_t> ring) const {
  return std::ranges::any_of(text_.losses(), [&](const LostRecords& l) {
    return (!ring || l.source == *ring || l.source == kAnyRing) && l.until > after && l.after < before;
  });
}

Addr Anchors::visit(Visits& v, Addr ip, const Returns& returns, Time latest) {
  if (ip == v.poke_return && v.poke_return != 0) leave_poke(v, latest);
  if (ip == config_.do_sync_core) visit_sync(v, latest);
  return ip == config_.perf_event_text_poke ? enter_poke(v, returns) : 0;
}

Addr Anchors::enter_poke(Visits& v, const Returns& returns) const {
  if (cpu_ < 0 || v.pokes_uncounted) return 0;
  Addr back = 0;
  if (v.poke_return != 0 || returns.split() || !returns.next_is_sure() || !returns.top_if_kept(back)) {
    v.pokes_uncounted = true;
    return 0;
  }
  v.poke_return = back;
  return back;
}

void Anchors::leave_poke(Visits& v, Time latest) {
  v.poke_return = 0;
  const auto ring = static_cast<uint32_t>(cpu_);
  const std::vector<Time>& times = ring_times(ring);
  const Time start = saturating_add(start_, -clock_error_);
  const auto first = std::ranges::lower_bound(times, start);
  const auto left = static_cast<uint64_t>(times.end() - first);
  if (v.pokes >= left) {
    v.pokes_uncounted = true;
    return;
  }
  const Time record = first[static_cast<std::ptrdiff_t>(v.pokes++)];
  if (record > latest || lost_between(start, record, ring)) {
    v.pokes_uncounted = true;
    return;
  }
  v.lo = std::max(v.lo, record);
}

void Anchors::visit_sync(Visits& v, Time latest) const {
  const auto pokes = text_.pokes();
  const Time start = saturating_add(start_, -clock_error_);
  const auto first = std::ranges::lower_bound(pokes, start, {}, &PokeRecord::time);
  const Time before = saturating_add(start, -kBatchEnd);
  const uint32_t others = first != pokes.begin() && std::prev(first)->time > before ? kRoundsAfterRecord : 0;
  const uint32_t visits = ++v.syncs;
  if (visits <= others) return;
  const uint64_t next = (visits - others - 1) / kRoundsOfRecord;
  if (next >= static_cast<uint64_t>(pokes.end() - first)) return;
  const Time record = first[static_cast<std::ptrdiff_t>(next)].time;
  if (record > latest || lost_between(before, record, std::nullopt)) return;
  v.poked_lo = std::max(v.poked_lo, record);
}

}  // namespace asof::x86
