// make_timeline(): slices kept, folded and put in order.
//
// Folding: when there are too many slices, the shortest half is removed; a slice is never longer than the one
// around it, nor has it more instructions, so whole subtrees are removed, and each is counted where it was.
#include <tsl/robin_map.h>

#include <algorithm>
#include <tuple>

#include "decoder/calls/block_limit.h"
#include "decoder/calls/timeline.h"
#include "textstore/time.h"

namespace asof {
namespace {

class Keeper final : public TimelineSink {
 public:
  Keeper(Timeline& out, const TimelineLimits& limits) : out_(out), limits_(limits) {}

  BlockLimit& blocks() { return blocks_; }

  void track(const TimelineTrack& t) override { out_.tracks.push_back(t); }
  void function(const TimelineFunction& f) override { out_.functions.push_back(f); }
  void run(const RunSlice& r) override { out_.runs.push_back(r); }
  void gap(const GapSlice& g) override { out_.gaps.push_back(g); }
  void poke(const PokeSlice& p) override { out_.pokes.push_back(p); }
  void lifetime(const LifetimeSlice& l) override { out_.lifetimes.push_back(l); }
  void counter(const CounterPoint& p) override { out_.counters.push_back(p); }
  void event(const EventMark& e) override {
    if (out_.events.size() < limits_.events) {
      out_.events.push_back(e);
    } else {
      ++out_.events_left_out;
    }
  }
  void block(const BlockSlice& b) override;
  void slice(const Slice& s) override;
  // Order and depths.
  void finish();

 private:
  using Size = std::pair<Time, uint64_t>;  // duration, instructions
  static Size size_of(const Slice& s) { return {elapsed(s.begin, s.end), s.instructions}; }
  void fold();
  void fold_one(const Slice& s);
  void order();
  bool around(const Slice& parent, const Slice& s) const;

  Timeline& out_;
  const TimelineLimits limits_;
  BlockLimit blocks_;
  Size least_{0, 0};
  tsl::robin_map<uint64_t, uint64_t> folded_;  // slices folded below one that has not arrived yet
};

void Keeper::block(const BlockSlice& b) {
  if (out_.blocks.size() >= limits_.blocks) {
    ++out_.blocks_left_out;
    blocks_.full = true;
    return;
  }
  out_.blocks.push_back(b);
}

void Keeper::fold_one(const Slice& s) {
  uint64_t n = 1;
  if (const auto below = folded_.find(s.id); below != folded_.end()) {
    n += below->second;
    folded_.erase(below);
  }
  folded_[s.parent] += n;
  ++out_.folded;
}

void Keeper::slice(const Slice& s) {
  if (size_of(s) < least_) return fold_one(s);
  out_.slices.push_back(s);
  if (limits_.slices != 0 && out_.slices.size() > limits_.slices) fold();
}

void Keeper::fold() {
  std::vector<Size> sizes;
  sizes.reserve(out_.slices.size());
  for (const Slice& s : out_.slices) sizes.push_back(size_of(s));
  const auto middle = sizes.begin() + static_cast<long>(sizes.size() / 2);
  std::ranges::nth_element(sizes, middle);
  least_ = std::max(*middle, Size{least_.first, least_.second + 1});
  size_t kept = 0;
  for (Slice& s : out_.slices) {  // children first: what is folded below a slice is known before the slice
    if (size_of(s) < least_) {
      fold_one(s);
    } else {
      out_.slices[kept++] = s;
    }
  }
  out_.slices.resize(kept);
}

bool Keeper::around(const Slice& parent, const Slice& s) const {
  return parent.track == s.track && parent.begin <= s.begin && parent.end >= s.end;
}

// Children come before their parents, and siblings in order, so the list read backwards is the tree.
void Keeper::order() {
  auto& slices = out_.slices;
  tsl::robin_map<uint64_t, size_t> at;
  at.reserve(slices.size());
  for (size_t i = 0; i < slices.size(); ++i) at[slices[i].id] = i;
  std::vector<uint32_t> level(slices.size());
  std::vector<size_t> parent(slices.size(), SIZE_MAX);
  for (size_t i = slices.size(); i-- > 0;) {
    const auto p = at.find(slices[i].parent);
    if (p == at.end() || p->second <= i || !around(slices[p->second], slices[i])) continue;
    parent[i] = p->second;
    level[i] = level[p->second] + 1;
  }
  // Siblings, by track and beginning; their original order decides where times are equal.
  std::vector<size_t> order(slices.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return std::tie(slices[a].track, slices[a].begin) < std::tie(slices[b].track, slices[b].begin);
  });
  std::vector<size_t> first(slices.size() + 1, SIZE_MAX), next(slices.size(), SIZE_MAX);
  size_t& roots = first.back();
  for (size_t i = order.size(); i-- > 0;) {
    size_t& head = parent[order[i]] == SIZE_MAX ? roots : first[parent[order[i]]];
    next[order[i]] = head;
    head = order[i];
  }
  std::vector<Slice> sorted;
  sorted.reserve(slices.size());
  for (size_t i = roots; i != SIZE_MAX;) {
    slices[i].depth = level[i];
    if (parent[i] == SIZE_MAX) slices[i].parent = 0;
    sorted.push_back(slices[i]);
    if (first[i] != SIZE_MAX) {
      i = first[i];
      continue;
    }
    while (i != SIZE_MAX && next[i] == SIZE_MAX) i = parent[i];
    if (i != SIZE_MAX) i = next[i];
  }
  slices = std::move(sorted);
}

void Keeper::finish() {
  out_.blocks_left_out += blocks_.left_out;
  for (Slice& s : out_.slices) {
    if (const auto f = folded_.find(s.id); f != folded_.end()) s.folded = f->second;
  }
  out_.folded_below = least_.first;
  out_.folded_below_instructions = least_.second;
  order();
  std::ranges::stable_sort(out_.gaps, {}, [](const GapSlice& g) { return std::pair(g.stream, g.begin); });
  std::ranges::stable_sort(out_.tracks, {}, &TimelineTrack::id);
}

}  // namespace

Result<Timeline> make_timeline(const Capture& capture, const TimelineOptions& options,
                               const TimelineLimits& limits,
                               const std::function<void(const PipelineProgress&)>& progress) {
  Timeline timeline;
  Keeper keeper(timeline, limits);
  const auto summary = run_timeline_limited(capture, options, keeper, keeper.blocks(), progress);
  if (!summary) return std::unexpected(summary.error());
  timeline.summary = *summary;
  keeper.finish();
  return timeline;
}

std::string Timeline::slice_name(const Slice& s) const {
  return versioned_name(functions[s.function], s.version);
}

}  // namespace asof
