#include "tools/timeline/perfetto_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/output/format.h"
#include "tools/timeline/timeline_outputs.h"

namespace asof {
namespace {

constexpr size_t kMostRows = 64;  // tracks of windows of changes

}  // namespace

void PerfettoText::write(const std::map<int32_t, uint64_t>& groups, uint64_t instructions_left_out) {
  groups_ = groups;
  if (t_.summary.clock == TimelineSummary::Clock::kInstructions) {
    // Perfetto knows no unit but time.
    out_.event(out_.track(0, "unit", -2), t_.summary.begin, PerfettoPackets::kInstant,
               "no time in this capture: 1 ns stands for 1 instruction", "unit");
  }
  const uint64_t group = out_.track(0, "Text", -1);
  pokes(group);
  snapshots(group);
  lifetimes(group);
  counters(group);
  left_out(instructions_left_out);
}

void PerfettoText::annotate_poke(const PokeSlice& p) {
  out_.note("poke", uint64_t{p.index} + 1);
  out_.note_address("address", p.address);
  out_.note("symbol", p.symbol);
  out_.note("kind", std::string(mechanism_name(p.mechanism)));
  out_.note("bytes", poke_bytes(c_, p));
  out_.note("breakpoint visits", p.breakpoints);
  for (const PokeVisit& v : p.visits) {
    if (v.last_old != kTimeMin)
      out_.note(fmt::format("cpu {} last old", v.cpu), PerfettoPackets::stamp(v.last_old));
    if (v.first_new != kTimeMax)
      out_.note(fmt::format("cpu {} first new", v.cpu), PerfettoPackets::stamp(v.first_new));
  }
}

// On each CPU an instant for its last old and its first new text, and a flow from the one over the change to
// the other, in the order of their times.
void PerfettoText::visit(const PokeSlice& p, const PokeVisit& v) {
  if (!groups_.contains(v.cpu)) return;
  const uint64_t flow = ++flows_;
  out_.flow(flow);
  const auto mark = [&](Time t, std::string_view which) { marks_.push_back({v.cpu, t, &p, flow, which}); };
  if (v.last_old != kTimeMin) mark(v.last_old, "last old");
  if (v.first_new != kTimeMax) mark(v.first_new, "first new");
}
void PerfettoText::visits() {
  std::ranges::stable_sort(marks_, {}, [](const Mark& m) { return std::pair(m.cpu, m.time); });
  std::map<int32_t, uint64_t> tracks;
  for (const Mark& m : marks_) {
    uint64_t& uuid = tracks[m.cpu];
    if (uuid == 0) uuid = out_.track(groups_.at(m.cpu), fmt::format("CPU {} text", m.cpu), 4);
    out_.note("poke", uint64_t{m.poke->index} + 1);
    out_.note_address("address", m.poke->address);
    out_.note("change", poke_title(*m.poke));
    out_.flow(m.flow);
    out_.event(uuid, m.time, PerfettoPackets::kInstant, fmt::format("{}: {}", m.which, m.poke->symbol),
               "poke visit");
  }
}

void PerfettoText::pokes(uint64_t group) {
  if (t_.pokes.empty()) return;
  const uint64_t uuid = out_.track(group, "pokes", 0);
  std::vector<const PokeSlice*> windows;
  for (const PokeSlice& p : t_.pokes) {
    annotate_poke(p);
    for (const PokeVisit& v : p.visits) visit(p, v);
    out_.event(uuid, p.time, PerfettoPackets::kInstant, poke_title(p), "poke");
    if (p.end > p.begin) windows.push_back(&p);
  }
  visits();
  poke_windows(group, uuid, std::move(windows));
}

void PerfettoText::poke_windows(uint64_t group, uint64_t uuid, std::vector<const PokeSlice*> windows) {
  // Windows overlap without nesting: as many tracks as are open at one time.
  std::ranges::stable_sort(windows, {}, &PokeSlice::begin);
  std::vector<std::pair<Time, uint64_t>> rows;
  uint64_t left_out = 0;
  for (const PokeSlice* p : windows) {
    auto row = std::ranges::find_if(rows, [&](const auto& r) { return r.first <= p->begin; });
    if (row == rows.end()) {
      if (rows.size() >= kMostRows) {
        ++left_out;
        continue;
      }
      rows.emplace_back(0, out_.track(group, fmt::format("poke windows {}", rows.size() + 1), 1));
      row = rows.end() - 1;
    }
    row->first = p->end;
    annotate_poke(*p);
    out_.whole(row->second, p->begin, p->end, p->symbol.empty() ? poke_title(*p) : p->symbol, "poke window");
  }
  if (left_out != 0) {
    out_.event(
        uuid, t_.summary.begin, PerfettoPackets::kInstant,
        fmt::format("{} windows of changes are not shown: more than {} at one time", left_out, kMostRows),
        "folded");
  }
}

// Drawn as far as they are in the timeline; what they are beyond it is in their args.
void PerfettoText::annotate_lifetime(const LifetimeSlice& lifetime) {
  out_.note_address("address", lifetime.range.begin);
  out_.note("size", lifetime.range.size());
  uint32_t flags = 0;
  if (lifetime.begin < t_.summary.begin) flags |= Slice::kClippedBegin;
  if (lifetime.end > t_.summary.end) flags |= Slice::kClippedEnd;
  if (flags != 0) out_.note("flags", slice_flag_names(flags));
  const auto time = [&](std::string_view key, Time t) {
    if (t != kTimeMin && t != kTimeMax) out_.note(key, int64_t{t});
  };
  time("not before", lifetime.begin);
  time("not after", lifetime.end);
  if (lifetime.seen.lo <= lifetime.seen.hi) {
    time("seen from", lifetime.seen.lo);
    time("seen until", lifetime.seen.hi);
  }
}

// Instants, as far as they are known: the copy of a recording's start was made before the trace began.
void PerfettoText::snapshots(uint64_t group) {
  uint64_t uuid = 0;
  for (const LifetimeSlice& lifetime : t_.lifetimes) {
    if (lifetime.kind != LifetimeSlice::Kind::kSnapshot) continue;
    if (uuid == 0) uuid = out_.track(group, "snapshots", 1);
    annotate_lifetime(lifetime);
    const Time t = lifetime.begin == kTimeMin ? lifetime.end : lifetime.begin;
    out_.event(uuid, std::clamp(t, t_.summary.begin, t_.summary.end), PerfettoPackets::kInstant,
               lifetime.name, "snapshot");
  }
}

void PerfettoText::lifetimes(uint64_t group) {
  for (const LifetimeSlice& lifetime : t_.lifetimes) {
    if (lifetime.kind == LifetimeSlice::Kind::kSnapshot) continue;
    const std::string kind(lifetime_kind_name(lifetime.kind));
    std::string name = lifetime.name;
    if (lifetime.kind == LifetimeSlice::Kind::kBpf)
      name = fmt::format("{} (id {})", lifetime.name, lifetime.bpf_id);
    const uint64_t uuid = out_.track(group, fmt::format("{} {} {:x}", kind, name, lifetime.range.begin), 2);
    annotate_lifetime(lifetime);
    if (lifetime.bpf_id != 0) {
      out_.note("bpf id", uint64_t{lifetime.bpf_id});
      out_.note("bpf tag", lifetime.bpf_tag);
    }
    out_.whole(uuid, std::clamp(lifetime.begin, t_.summary.begin, t_.summary.end),
               std::clamp(lifetime.end, t_.summary.begin, t_.summary.end), lifetime.name, kind);
  }
}

void PerfettoText::counters(uint64_t group) {
  std::map<std::pair<CounterPoint::Kind, int32_t>, uint64_t> tracks;
  for (const CounterPoint& p : t_.counters) {
    auto& uuid = tracks[{p.kind, p.cpu}];
    if (uuid == 0) {
      switch (p.kind) {
        case CounterPoint::Kind::kTextVersion:
          uuid = out_.track(group, "text version", 3, "changes");
          break;
        case CounterPoint::Kind::kInstructions:
          uuid = out_.track(group, fmt::format("instructions/us CPU {}", p.cpu), 4, "1/us");
          break;
        case CounterPoint::Kind::kCoverage:
          uuid = out_.track(group, fmt::format("decode coverage CPU {}", p.cpu), 5, "%");
          break;
      }
    }
    // A trace ends with its last event: what was the last to run must not seem to go on.
    out_.counter(uuid, std::min(p.time, t_.summary.end), p.value);
  }
}

void PerfettoText::left_out(uint64_t instructions) {
  if (t_.folded == 0 && t_.blocks_left_out == 0 && instructions == 0) return;
  const uint64_t uuid = out_.track(0, "folded", 2);
  const auto note_left_out = [&](uint64_t n, std::string_view what) {
    if (n != 0)
      out_.event(uuid, t_.summary.begin, PerfettoPackets::kInstant, fmt::format("{} {}", n, what), "folded");
  };
  note_left_out(t_.blocks_left_out, "straight runs were left out: too many");
  note_left_out(instructions, "instructions have no slices of their own, only their runs: too many");
  if (t_.folded == 0) return;
  out_.note("folded slices", t_.folded);
  out_.note("kept slices", uint64_t{t_.slices.size()});
  out_.note("shorter than", timeline_length(t_.summary, t_.folded_below));
  out_.event(uuid, t_.summary.begin, PerfettoPackets::kInstant,
             fmt::format("folded {} slices shorter than {}", t_.folded,
                         timeline_length(t_.summary, t_.folded_below)),
             "folded");
}

}  // namespace asof
