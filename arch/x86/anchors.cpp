// Anchors: what the traced kernel's own patching code says of time, without a clock (docs/live-text.md 7.1).
//
// perf_event_text_poke() writes the TEXT_POKE record of a poke into the ring of the CPU it runs on. So on a
// CPU's own trace the i-th visit that came back, counted from a sync point whose time is known, is not
// earlier than the i-th record after that time in its ring: records without a visit (the task had entered
// before the sync point, or moved here meanwhile) make the bound lower, never higher. A visit that does not
// come back may have moved to another CPU before it wrote: from there on nothing is counted.
//
// do_sync_core() is what every CPU runs when a poke waits for all of them, at most three times for a record,
// the first time after INT3 was written over the old bytes. So once this CPU has made more visits than the
// records before can account for, the next one's old bytes are over. Its record may still be to come: this
// says nothing of what is not poked.
//
// Both count only where nothing was lost, in recordings without a sign of pokes that nobody recorded (a
// broken chain), and never against the clock: a record that the clock's upper bound excludes ends the
// counting.
#include <algorithm>

#include "arch/x86/flow.h"

namespace asof::x86 {
namespace {

// The last batch before a sync point has finished its rounds of interrupts after this time at the latest.
constexpr Time kBatchEnd = 100'000'000;  // ns
constexpr uint32_t kRoundsAfterRecord = 2, kRoundsOfRecord = 3;

}  // namespace

std::vector<Addr> Flow::hooks(const Config& config, const TextStore& text, const DecodeOptions& options) {
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

const std::vector<Time>& Flow::ring_times(uint32_t ring) {
  const auto [it, fresh] = ring_times_.try_emplace(ring);
  std::vector<Time>& times = it.value();
  if (fresh) {
    for (const PokeRecord& p : text_.pokes()) {
      if (p.source == ring) times.push_back(p.time);
    }
  }
  return times;
}

bool Flow::lost_between(Time after, Time before, std::optional<uint32_t> ring) const {
  return std::ranges::any_of(text_.losses(), [&](const LostRecords& l) {
    return (!ring || l.source == *ring) && l.until > after && l.after < before;
  });
}

void Flow::count_visit(State& s, const Node& node) {
  if (anchor_start_ == kTimeMin) return;
  if (path_in_doubt(s)) {  // it may never have come here
    s.pokes_uncounted = true;
    return;
  }
  if (node.ip == s.poke_return && s.poke_return != 0) leave_poke(s);
  if (node.ip == config_.perf_event_text_poke) enter_poke(s);
  if (node.ip == config_.do_sync_core) visit_sync(s);
}

void Flow::enter_poke(State& s) {
  if (stream_->cpu < 0 || s.pokes_uncounted) return;
  Addr back = 0;
  if (s.poke_return != 0 || s.rets.split() || !s.rets.next_is_sure() || !s.rets.top_if_kept(back)) {
    s.pokes_uncounted = true;
    return;
  }
  s.poke_return = back;
  hook(*cache_, back);  // the fast walk waits for it, too
}

void Flow::leave_poke(State& s) {
  s.poke_return = 0;
  const std::vector<Time>& times = ring_times(static_cast<uint32_t>(stream_->cpu));
  const Time start = saturating_add(anchor_start_, -options_.clock_error);
  const auto first = std::ranges::lower_bound(times, start);
  const auto left = static_cast<uint64_t>(times.end() - first);
  if (s.poke_visits >= left) {
    s.pokes_uncounted = true;
    return;
  }
  const Time record = first[static_cast<std::ptrdiff_t>(s.poke_visits++)];
  if (record > bounds(s).hi || lost_between(start, record, static_cast<uint32_t>(stream_->cpu))) {
    s.pokes_uncounted = true;
    return;
  }
  s.anchor_lo = std::max(s.anchor_lo, record);
}

void Flow::visit_sync(State& s) {
  const auto pokes = text_.pokes();
  const Time start = saturating_add(anchor_start_, -options_.clock_error);
  const auto first = std::ranges::lower_bound(pokes, start, {}, &PokeRecord::time);
  const Time before = saturating_add(start, -kBatchEnd);
  const uint32_t others = first != pokes.begin() && std::prev(first)->time > before ? kRoundsAfterRecord : 0;
  const uint32_t visits = ++s.sync_visits;
  if (visits <= others) return;
  const uint64_t next = (visits - others - 1) / kRoundsOfRecord;
  if (next >= static_cast<uint64_t>(pokes.end() - first)) return;
  const Time record = first[static_cast<std::ptrdiff_t>(next)].time;
  if (record > bounds(s).hi || lost_between(before, record, std::nullopt)) return;
  s.poked_lo = std::max(s.poked_lo, record);
}

}  // namespace asof::x86
