#include "textstore/layer_stack.h"

#include <algorithm>
#include <map>
#include <set>

namespace asof {
namespace {

// One sweep over time. Layers are named by their index in order of `from`.
class Sweep {
 public:
  Sweep(std::span<const LayerView> layers, std::vector<Visible>& out)
      : layers_(layers.begin(), layers.end()), open_(layers.size()), announced_(layers.size()), out_(out) {
    std::ranges::sort(layers_, {}, [](const LayerView& v) { return v.layer->from; });
    set_ends();
  }

  void run();

 private:
  struct Edge {
    Time time;
    bool begin;
    uint32_t index;
  };

  void set_ends();
  std::vector<Edge> edges() const;
  void apply(const Edge& edge);
  void choose();
  void switch_at(Time t);
  void close_all();

  std::vector<LayerView> layers_;
  std::vector<Time> open_;  // since when a layer of current_ is a candidate
  std::vector<Time> announced_;
  std::map<int, std::set<uint32_t>, std::greater<>> live_;
  std::vector<uint32_t> current_, chosen_;
  bool crowded_ = false;  // more candidates than kMaxCandidates
  bool was_crowded_ = false;
  Time crowded_from_ = kTimeMin;
  std::vector<Visible>& out_;
};

// A soft end moves to just before the next claim: a later layer of the same rank or a higher one.
void Sweep::set_ends() {
  std::map<int, Time> next_claim;  // by rank: `from` of the earliest layer behind those seen
  for (size_t end = layers_.size(); end > 0;) {
    // Layers of equal `from` do not claim from each other.
    size_t begin = end - 1;
    while (begin > 0 && layers_[begin - 1].layer->from == layers_[end - 1].layer->from) --begin;
    for (size_t i = begin; i < end; ++i) {
      LayerView& v = layers_[i];
      announced_[i] = v.until;
      if (!v.soft) continue;
      Time claim = kTimeMax;
      bool claimed = false;
      for (auto it = next_claim.lower_bound(v.layer->rank); it != next_claim.end(); ++it) {
        claim = std::min(claim, it->second);
        claimed = true;
      }
      const Time told = claimed ? std::min(v.until, claim - 1) : v.until;
      announced_[i] = std::max(v.layer->from, told);
      v.until = claimed ? std::max(v.until, claim - 1) : kTimeMax;
    }
    for (size_t i = begin; i < end; ++i) next_claim[layers_[i].layer->rank] = layers_[i].layer->from;
    end = begin;
  }
}

std::vector<Sweep::Edge> Sweep::edges() const {
  std::vector<Edge> edges;
  for (uint32_t i = 0; i < layers_.size(); ++i) {
    const Time from = layers_[i].layer->from;
    if (layers_[i].until < from) continue;
    edges.push_back({from, true, i});
    if (layers_[i].until != kTimeMax) edges.push_back({layers_[i].until + 1, false, i});
  }
  std::ranges::sort(edges, {}, &Edge::time);
  return edges;
}

void Sweep::apply(const Edge& edge) {
  const int rank = layers_[edge.index].layer->rank;
  if (edge.begin) {
    live_[rank].insert(edge.index);
    return;
  }
  const auto it = live_.find(rank);
  it->second.erase(edge.index);
  if (it->second.empty()) live_.erase(it);
}

// The candidates: all of the highest rank, but an unknown claim gives way to known bytes that are not older.
void Sweep::choose() {
  chosen_.clear();
  crowded_ = false;
  if (live_.empty()) return;
  const std::set<uint32_t>& top = live_.begin()->second;
  if (top.size() > kMaxCandidates) {
    crowded_ = true;
    return;
  }
  bool any_known = false;
  Time known_from = kTimeMin;
  for (uint32_t i : top) {
    if (layers_[i].layer->bytes.empty()) continue;
    any_known = true;
    known_from = std::max(known_from, layers_[i].layer->from);
  }
  for (uint32_t i : top) {
    const Layer& l = *layers_[i].layer;
    if (!l.bytes.empty() || !any_known || l.from > known_from) chosen_.push_back(i);
  }
}

void Sweep::switch_at(Time t) {
  for (uint32_t i : current_) {
    if (!std::ranges::binary_search(chosen_, i))
      out_.push_back({open_[i], t - 1, layers_[i].layer, announced_[i]});
  }
  for (uint32_t i : chosen_) {
    if (!std::ranges::binary_search(current_, i)) open_[i] = t;
  }
  current_.swap(chosen_);
  if (crowded_ && !was_crowded_) crowded_from_ = t;
  if (!crowded_ && was_crowded_) out_.push_back({crowded_from_, t - 1, nullptr, kTimeMax});
  was_crowded_ = crowded_;
}

void Sweep::close_all() {
  for (uint32_t i : current_) out_.push_back({open_[i], kTimeMax, layers_[i].layer, announced_[i]});
  if (was_crowded_) out_.push_back({crowded_from_, kTimeMax, nullptr, kTimeMax});
}

void Sweep::run() {
  const std::vector<Edge> all = edges();
  for (size_t i = 0; i < all.size();) {
    const Time t = all[i].time;
    for (; i < all.size() && all[i].time == t; ++i) apply(all[i]);
    choose();
    switch_at(t);
  }
  close_all();
  std::ranges::sort(out_, {}, &Visible::from);
}

}  // namespace

void resolve_layers(std::span<const LayerView> layers, std::vector<Visible>& out) {
  out.clear();
  if (layers.empty()) return;
  if (layers.size() == 1) {
    const LayerView& v = layers[0];
    const Time until = v.soft ? kTimeMax : v.until;
    if (v.layer->from <= until)
      out.push_back({v.layer->from, until, v.layer, std::max(v.layer->from, v.until)});
    return;
  }
  Sweep(layers, out).run();
}

}  // namespace asof
