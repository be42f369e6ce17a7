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
  bool over_limit_ = false;  // more candidates than kMaxCandidates
  bool was_over_limit_ = false;
  Time over_limit_from_ = kTimeMin;
  std::vector<Visible>& out_;
};

// A soft end moves to just before the next layer of the same rank or a higher one begins.
void Sweep::set_ends() {
  std::map<int, Time> next_from;  // by rank: `from` of the earliest layer after those seen
  for (size_t end = layers_.size(); end > 0;) {
    // Layers of equal `from` do not end each other.
    size_t begin = end - 1;
    while (begin > 0 && layers_[begin - 1].layer->from == layers_[end - 1].layer->from) --begin;
    for (size_t i = begin; i < end; ++i) {
      LayerView& v = layers_[i];
      announced_[i] = v.until;
      if (!v.soft) continue;
      Time successor = kTimeMax;
      bool replaced = false;
      for (auto it = next_from.lower_bound(v.layer->rank); it != next_from.end(); ++it) {
        successor = std::min(successor, it->second);
        replaced = true;
      }
      const Time announced = replaced ? std::min(v.until, successor - 1) : v.until;
      announced_[i] = std::max(v.layer->from, announced);
      v.until = replaced ? std::max(v.until, successor - 1) : kTimeMax;
    }
    for (size_t i = begin; i < end; ++i) next_from[layers_[i].layer->rank] = layers_[i].layer->from;
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

// The candidates: all of the highest rank, but a layer of unknown bytes gives way to known ones that are not
// older.
void Sweep::choose() {
  chosen_.clear();
  over_limit_ = false;
  if (live_.empty()) return;
  const std::set<uint32_t>& top = live_.begin()->second;
  if (top.size() > kMaxCandidates) {
    over_limit_ = true;
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
  if (over_limit_ && !was_over_limit_) over_limit_from_ = t;
  if (!over_limit_ && was_over_limit_) out_.push_back({over_limit_from_, t - 1, nullptr, kTimeMax});
  was_over_limit_ = over_limit_;
}

void Sweep::close_all() {
  for (uint32_t i : current_) out_.push_back({open_[i], kTimeMax, layers_[i].layer, announced_[i]});
  if (was_over_limit_) out_.push_back({over_limit_from_, kTimeMax, nullptr, kTimeMax});
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
