#include "tools/tables/call_totals.h"

#include <algorithm>
#include <utility>

#include "decoder/calls/flow_ops.h"
#include "textstore/check.h"
#include "textstore/time.h"
#include "tools/output/output.h"

namespace asof {
namespace {

constexpr Time kMillisecond = 1'000'000;

bool known(Time t) { return t != kTimeMin && t != kTimeMax; }
Time millisecond_of(Time t) { return known(t) ? t / kMillisecond * kMillisecond : kTimeMin; }

}  // namespace

size_t CallTotals::KeyHash::operator()(const Key& k) const {
  uint64_t h = static_cast<uint64_t>(k.time) * kHashFactor;
  for (const uint32_t part : {static_cast<uint32_t>(k.cpu), k.function, k.version, k.caller})
    h = (h ^ h >> 32U ^ part) * kHashFactor;
  return h >> 16U;
}

CallTotals::Total& CallTotals::Total::operator+=(const Total& o) {
  calls += o.calls;
  self_instructions += o.self_instructions;
  instructions += o.instructions;
  timed += o.timed;
  ns += o.ns;
  return *this;
}

void CallTotals::Called::add(const Key& key, const Total& total) {
  // Calls in a row are often of the same function.
  if (!entries.empty() && entries.back().key == key) {
    entries.back().total += total;
    return;
  }
  entries.push_back({key, total});
  if (entries.size() < next_merge) return;
  merge_totals(entries, &Entry::key);
  next_merge = std::max<size_t>(64, 2 * entries.size());
}

void CallTotals::add(Called&& called, uint32_t caller) {
  for (Entry& e : called.entries) {
    e.key.caller = caller;
    totals_[e.key] += e.total;
  }
}

void CallTotals::track(const TimelineTrack& t) {
  ASOF_CHECK(t.id == tracks_.size());
  tracks_.push_back(t);
}

const TimelineTrack* CallTotals::cpu_track(uint32_t id) const {
  return id < tracks_.size() && tracks_[id].kind == TimelineTrack::Kind::kCpu ? &tracks_[id] : nullptr;
}

void CallTotals::function(const TimelineFunction& f) {
  ASOF_CHECK(f.id == functions_.size());
  functions_.push_back(f);
  called_.push_back(false);
}

void CallTotals::slice(const Slice& s) {
  called_[s.function] = true;
  if (cpu_track(s.track) == nullptr) return;
  if (const auto called = open_.find(s.id); called != open_.end()) {
    add(std::move(called.value()), s.function);
    open_.erase(called);
  }
  const Key key{millisecond_of(s.begin), s.cpu, s.function, s.version};
  Total total{1, s.self_instructions, s.instructions};
  if (known(s.begin) && known(s.end)) {
    total.timed = 1;
    total.ns = static_cast<uint64_t>(elapsed(s.begin, s.end));
  }
  if (s.parent == 0) {
    totals_[key] += total;
  } else {
    open_[s.parent].add(key, total);
  }
}

bool CallTotals::stopped() const { return interrupted(); }

bool CallTotals::takes_sum(uint32_t track, Time begin, Time end) const {
  if (cpu_track(track) == nullptr) return true;
  return known(begin) && known(end) && millisecond_of(begin) == millisecond_of(end);
}

void CallTotals::sum(const CallSums& sums, uint32_t track, uint64_t parent) {
  const std::vector<SumNode>& nodes = sums.span.sums;
  for (const SumNode& n : nodes) called_[sums.of.functions[n.key]] = true;
  const TimelineTrack* cpu = cpu_track(track);
  if (cpu == nullptr) return;
  // What ran before each node, so that the difference of two is what ran in a tree.
  std::vector<std::pair<uint64_t, uint64_t>> before{{0, 0}};
  for (const SumNode& n : nodes)
    before.emplace_back(before.back().first + n.instructions, before.back().second + n.time);
  struct Caller {
    uint32_t function;
    size_t end;  // of what it called
  };
  std::vector<Caller> callers;
  for (size_t i = 0; i < nodes.size(); ++i) {
    while (!callers.empty() && callers.back().end == i) callers.pop_back();
    const SumNode& n = nodes[i];
    Key key{millisecond_of(sums.begin), cpu->cpu, sums.of.functions[n.key], sums.of.keys[n.key].version};
    const auto &first = before[i], &last = before[i + n.size];
    const Total total{n.calls, n.instructions, last.first - first.first, n.calls, last.second - first.second};
    if (callers.empty()) {
      open_[parent].add(key, total);
    } else {
      key.caller = callers.back().function;
      totals_[key] += total;
    }
    if (n.size > 1) callers.push_back({sums.of.functions[n.key], i + n.size});
  }
}

void CallTotals::tell(SqliteSink& to) const {
  for (const TimelineTrack& t : tracks_) to.track(t);
  for (const TimelineFunction& f : functions_) {
    to.function(f);
    if (called_[f.id]) to.called(f.id);
  }
}

const CallTotals::Totals& CallTotals::totals() {
  for (auto at = open_.begin(); at != open_.end(); ++at) add(std::move(at.value()), kNoCaller);
  open_.clear();
  return totals_;
}

}  // namespace asof
