#include "tools/timeline/html_spread.h"

#include <algorithm>
#include <unordered_map>

namespace asof {
namespace {

// The most nanoseconds drawn for one instruction: the trace of a CPU that slept has no time either, and what
// it ran before should not fill its sleep.
constexpr double kMostPerInstruction = 5;
// So that a call of nothing (all its code was elsewhere) is still visible between others.
constexpr double kLeast = 0.1;

// From one time to a later one; any two times are at most this far apart.
uint64_t distance(Time from, Time to) { return static_cast<uint64_t>(to) - static_cast<uint64_t>(from); }

// Something that begins or ends on a track, in the order it happened; `weight`: instructions between it and
// the next one.
struct Moment {
  Time time = 0;
  double weight = 0;
  int32_t cpu = -1;
  uint64_t* position = nullptr;  // to be found; null: nothing
};

class TrackSpread {
 public:
  // `detail`: where straight runs will be added.
  TrackSpread(const Timeline& timeline, size_t first, size_t last, TimeBounds detail, TimelineSpread& out)
      : t_(timeline),
        out_(out),
        detail_(detail),
        next_(first),
        last_(last),
        children_(last - first),
        first_(first) {
    for (size_t i = first; i < last; ++i) index_of_[t_.slices[i].id] = i;
    for (size_t i = first; i < last; ++i) {
      const auto parent = index_of_.find(t_.slices[i].parent);
      if (parent != index_of_.end()) ++children_[parent->second - first];
    }
  }

  // Straight runs show exactly between which instructions calls are.
  void add_block(size_t block) {
    const BlockSlice& b = t_.blocks[block];
    const auto in = index_of_.find(b.in);
    if (in != index_of_.end()) {
      while (next_ <= in->second) open(next_++);
      const auto at = std::find(open_.begin(), open_.end(), in->second);
      if (at != open_.end()) close_to(static_cast<size_t>(at - open_.begin()) + 1);
    } else {
      while (next_ < last_ && t_.slices[next_].begin < b.begin) open(next_++);
    }
    add(b.begin, b.cpu, &out_.blocks[block].begin, static_cast<double>(b.piece.lengths.size()));
    moments_.push_back({moments_.back().time, 0, b.cpu, &out_.blocks[block].end});
  }

  void finish() {
    while (next_ < last_) open(next_++);
    close_to(0);
    place();
  }

 private:
  // Instructions of a slice itself between two calls, when nothing shows where they were.
  double own_weight(size_t slice, Time t) const {
    if (t >= detail_.lo && t <= detail_.hi) return 0;
    const Slice& s = t_.slices[slice];
    return static_cast<double>(s.self_instructions) / (children_[slice - first_] + 1.0);
  }
  void add(Time t, int32_t cpu, uint64_t* position, double weight) {
    if (!moments_.empty()) t = std::max(t, moments_.back().time);
    moments_.push_back({t, weight + kLeast, cpu, position});
  }
  void open(size_t slice) {
    const Slice& s = t_.slices[slice];
    close_to(s.depth);
    cpu_ = s.cpu;
    add(s.begin, cpu_, &out_.slices[slice].begin, own_weight(slice, s.begin));
    open_.push_back(slice);
  }
  void close_to(size_t depth) {
    while (open_.size() > depth) {
      const size_t slice = open_.back();
      open_.pop_back();
      const Time end = t_.slices[slice].end;
      const double weight = open_.empty() ? 0 : own_weight(open_.back(), end);
      add(end, cpu_, &out_.slices[slice].end, weight);
    }
  }

  // Moments of one instant share the time until the next one in the CPU's trace.
  void place() {
    for (size_t i = 0; i < moments_.size();) {
      size_t end = i;
      double total = 0;
      while (end < moments_.size() && moments_[end].time == moments_[i].time) total += moments_[end++].weight;
      const std::vector<Time>& points = out_.points[moments_[end - 1].cpu];
      const auto after = std::upper_bound(points.begin(), points.end(), moments_[i].time);
      // Nor may it extend into what comes next on this track.
      Time until = after == points.end() ? moments_[i].time : *after;
      if (end < moments_.size()) until = std::min(until, moments_[end].time);
      const double room =
          std::min(static_cast<double>(distance(moments_[i].time, until)), total * kMostPerInstruction);
      const uint64_t from = html_position(t_.summary, moments_[i].time);
      double before = 0;
      for (; i < end; ++i) {
        const double share = total > 0 ? before / total : 0;
        if (moments_[i].position != nullptr) {
          *moments_[i].position = from + static_cast<uint64_t>(room * kHtmlUnit * share);
        }
        before += moments_[i].weight;
      }
    }
  }

  const Timeline& t_;
  TimelineSpread& out_;
  TimeBounds detail_;
  size_t next_, last_;
  std::vector<uint32_t> children_;
  size_t first_;
  std::unordered_map<uint64_t, size_t> index_of_;
  std::vector<size_t> open_;
  std::vector<Moment> moments_;
  int32_t cpu_ = -1;
};

void collect_points(const Timeline& t, std::map<int32_t, std::vector<Time>>& points) {
  for (const Slice& s : t.slices) {
    points[s.cpu].push_back(s.begin);
    // A thread may end a call on another CPU.
    if (t.tracks[s.track].kind == TimelineTrack::Kind::kCpu) points[s.cpu].push_back(s.end);
  }
  for (const BlockSlice& b : t.blocks) points[b.cpu].push_back(b.begin);
  for (const RunSlice& r : t.runs) points[r.cpu].insert(points[r.cpu].end(), {r.begin, r.end});
  for (const GapSlice& g : t.gaps) points[g.cpu].insert(points[g.cpu].end(), {g.begin, g.end});
  for (auto& [cpu, times] : points) {
    times.push_back(t.summary.end);
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
  }
}

}  // namespace

uint64_t html_position(const TimelineSummary& summary, Time t) {
  const Time inside = std::clamp(t, summary.begin, std::max(summary.begin, summary.end));
  return std::min(distance(summary.begin, inside), UINT64_MAX / kHtmlUnit) * kHtmlUnit;
}

TimelineSpread::TimelineSpread(const Timeline& t) : slices(t.slices.size()), blocks(t.blocks.size()) {
  collect_points(t, points);
  for (size_t first = 0; first < t.slices.size();) {
    size_t last = first;
    while (last < t.slices.size() && t.slices[last].track == t.slices[first].track) ++last;
    const TimelineTrack& which = t.tracks[t.slices[first].track];
    const bool cpu = which.kind == TimelineTrack::Kind::kCpu;
    std::vector<size_t> detail;
    for (size_t b = 0; b < t.blocks.size(); ++b) {
      // Of threads where the capture is of threads.
      const BlockSlice& block = t.blocks[b];
      if (cpu ? block.cpu == which.cpu : block.cpu < 0 && block.tid == which.tid) detail.push_back(b);
    }
    TimeBounds bounds{kTimeMax, kTimeMin};
    if (!detail.empty()) bounds = {t.blocks[detail.front()].begin, t.blocks[detail.back()].begin};
    TrackSpread track(t, first, last, bounds, *this);
    for (const size_t b : detail) track.add_block(b);
    track.finish();
    first = last;
  }
}

}  // namespace asof
