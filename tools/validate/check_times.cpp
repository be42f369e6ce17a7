// Validation: do the trace and the records share one clock. Three independent questions:
//  * The kernel writes an AUX record when it hands over trace, so what lies in that piece was made before it,
//    and after the record before (arch/x86/events/intel/pt.c, kernel/events/ring_buffer.c).
//  * A CPU that is traced in the kernel is seen to write a record of a context switch or of a change of text
//    (FlowObserver); the record's time must be that of the call.
//  * Where trace and text disagree: would they agree if the clock were moved (find_clock_shift)?
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "arch/arm64/reference.h"
#include "tools/output/format.h"
#include "tools/validate/validation.h"

namespace asof {
namespace {

constexpr Time kAuxSlack = 5'000;   // ns: of clocks, and of the code around the record
constexpr Time kSlack = 20'000;     // ns between a call and the record it writes, or a loss of the CPU there
constexpr uint64_t kOverwrite = 2;  // PERF_AUX_FLAG_OVERWRITE: snapshots
constexpr size_t kEnoughVisits = 8;

// The piece of the AUX stream that each segment begins in gives bounds for its first time.
struct AuxBounds {
  uint64_t checked = 0, outside = 0;
  Time worst = 0;  // how far outside; negative: trace earlier than it can be
  std::string first;

  void look(const Stream& stream, const Segment& segment, TimeBounds bounds, Time slack) {
    if (bounds.lo == kTimeMin && bounds.hi == kTimeMax) return;
    ++checked;
    const Time t = segment.start_time;
    const TimeBounds wide = widen(bounds, slack);
    if (t >= wide.lo && t <= wide.hi) return;
    ++outside;
    const Time by = std::max(elapsed(t > wide.hi ? bounds.hi : bounds.lo, t), -kTimeMax);
    if (std::abs(by) > std::abs(worst)) worst = by;
    if (first.empty())
      first = fmt::format("{} trace offset {:#x}: its time is {}, its AUX records allow {}", stream.name,
                          segment.begin, format_time(t), format_interval(bounds.lo, bounds.hi));
  }
};

// By the stream's CPU or thread, in order of offset; empty when offsets are not those of one ring.
std::vector<AuxRecord> aux_records(const Capture& capture, const Stream& stream) {
  std::vector<AuxRecord> out;
  if (!capture.perf || !capture.arm64.sources.empty()) return out;
  for (const AuxRecord& r : capture.perf->aux_records()) {
    if (stream.cpu >= 0 ? r.id.cpu != stream.cpu : r.id.tid != stream.tid) continue;
    if ((r.flags & kOverwrite) != 0) return {};
    if (r.id.time && *r.id.time != kTimeMin) out.push_back(r);
  }
  std::ranges::stable_sort(out, {}, &AuxRecord::offset);
  return out;
}

TimeBounds bounds_of(const Stream& stream, std::span<const AuxRecord> records, uint64_t at) {
  if (records.empty()) {  // CoreSight: the reader has given each piece its bounds
    const auto after = std::ranges::upper_bound(stream.pieces, at, {}, &StreamPiece::offset);
    return after == stream.pieces.begin() ? TimeBounds{} : std::prev(after)->time;
  }
  const auto after = std::ranges::upper_bound(records, at, {}, &AuxRecord::offset);
  if (after == records.begin()) return {};
  const auto record = std::prev(after);
  if (at - record->offset >= record->size) return {};
  TimeBounds b{stream.bounds.lo, *record->id.time};
  if (record != records.begin()) b.lo = std::max(b.lo, *std::prev(record)->id.time);
  return b;
}

// Trace that is read from start to end need not stay in memory.
class Passing {
 public:
  explicit Passing(const Stream& stream) : stream_(stream), held_(stream.begin()) {}
  void reach(uint64_t at) {
    constexpr uint64_t kHeld = 8 << 20;
    if (at < held_ + kHeld) return;
    stream_.forget(held_, at);
    held_ = at;
  }

 private:
  const Stream& stream_;
  uint64_t held_;
};

// `shift`: ns added to the trace's times.
AuxBounds look_at_aux(const Capture& capture, Time slack, Time shift = 0) {
  AuxBounds found;
  const auto arch = capture.arch();
  if (!arch || !capture.perf) return found;
  for (size_t i = 0; i < capture.streams.size(); ++i) {
    const Stream& stream = capture.streams[i];
    const std::vector<AuxRecord> records = aux_records(capture, stream);
    const auto segments = (*arch)->segments(stream, i, 0);
    Passing passing(stream);
    while (auto segment = segments->next()) {
      passing.reach(segment->begin);
      if (segment->start_time == kTimeMin) continue;
      segment->start_time = saturating_add(segment->start_time, shift);
      found.look(stream, *segment, bounds_of(stream, records, segment->begin), slack);
    }
  }
  return found;
}

// Times of records of one kind, by CPU.
using RecordTimes = std::unordered_map<int32_t, std::vector<Time>>;

RecordTimes record_times(const ValidationInput& in, Anchor anchor) {
  RecordTimes out;
  if (anchor == Anchor::kSwitch) {
    for (const auto& [cpu, switches] : in.health.side.switches) {
      for (const SwitchFact& s : switches) {
        if (!s.trace_start && s.time != kTimeMin) out[cpu].push_back(s.time);
      }
    }
  } else {
    for (const Poke& p : in.health.side.pokes) out[static_cast<int32_t>(p.source)].push_back(p.time);
  }
  for (auto& [cpu, times] : out) std::ranges::sort(times);
  return out;
}

Time distance_to(const std::vector<Time>& times, TimeBounds visit) {
  const auto after = std::ranges::lower_bound(times, visit.lo);
  Time best = kTimeMax;
  if (after != times.end()) best = *after <= visit.hi ? 0 : elapsed(visit.hi, *after);
  if (after != times.begin()) best = std::min(best, elapsed(*std::prev(after), visit.lo));
  return best;
}

// The distance from visit to record that most pairs have in common.
std::optional<Time> common_distance(const std::vector<AnchorVisit>& visits, const RecordTimes& records) {
  constexpr Time kBin = 20'000;
  constexpr size_t kSample = 512;
  constexpr long kNeighbours = 256;
  std::unordered_map<Time, uint64_t> bins;
  const size_t every = std::max<size_t>(1, visits.size() / kSample);
  uint64_t looked = 0;
  for (size_t i = 0; i < visits.size(); i += every) {
    const auto times = records.find(visits[i].cpu);
    if (times == records.end()) continue;
    ++looked;
    const auto& t = times->second;
    const long at = std::ranges::lower_bound(t, visits[i].time.lo) - t.begin();
    const long end = std::min(at + kNeighbours, static_cast<long>(t.size()));
    Time last = kTimeMin;
    for (long k = std::max(0L, at - kNeighbours); k < end; ++k) {
      const Time bin = (t[static_cast<size_t>(k)] - visits[i].time.lo) / kBin;
      if (bin != last) ++bins[bin];
      last = bin;
    }
  }
  const auto most = std::ranges::max_element(bins, {}, [](const auto& b) { return b.second; });
  if (most == bins.end() || most->second * 3 < looked) return std::nullopt;
  return most->first * kBin;
}

// Whether visits and records agree; nothing when there are too few.
std::optional<Check> ask_anchor(const ValidationInput& in, Anchor anchor, std::string_view what) {
  std::vector<AnchorVisit> visits;
  const RecordTimes records = record_times(in, anchor);
  for (const AnchorVisit& v : in.flow.visits) {
    if (v.anchor == anchor && records.contains(v.cpu)) visits.push_back(v);
  }
  if (visits.size() < kEnoughVisits) return std::nullopt;
  Check c{.topic = "clock"};
  const Time slack = kSlack + in.capture.arm64.time_error;
  uint64_t near = 0;
  for (const AnchorVisit& v : visits) {
    const bool fits = distance_to(records.at(v.cpu), widen(v.time, in.options.decode.clock_error)) <= slack;
    near += fits ? 1 : 0;
    if (!fits && c.places.size() < Check::kMaxPlaces)
      c.places.push_back(fmt::format("cpu {} {}: no record within {}", v.cpu, format_time(v.time.lo),
                                     format_duration(static_cast<uint64_t>(slack))));
  }
  // Some may be of another recording that runs on the machine and has rings of its own.
  c.result = near * 2 >= visits.size() ? Check::Result::kPass : Check::Result::kFail;
  c.answer = fmt::format("of {} {} records that the trace shows, {} have one at that time",
                         format_plural(visits.size(), "write of", "writes of"), what, format_count(near));
  if (c.result == Check::Result::kPass) {
    c.places.clear();
  } else if (const auto by = common_distance(visits, records); by && *by != 0) {
    c.answer +=
        fmt::format(": the trace's clock is {} {} the records'",
                    format_duration(static_cast<uint64_t>(std::abs(*by))), *by > 0 ? "behind" : "ahead of");
  }
  return c;
}

std::vector<Check> ask_anchors(const ValidationInput& in) {
  std::vector<Check> out;
  const auto& counts = in.capture.record_counts;
  if (counts.contains(14) || counts.contains(15)) {
    if (auto c = ask_anchor(in, Anchor::kSwitch, "context switch")) out.push_back(std::move(*c));
  }
  if (auto c = ask_anchor(in, Anchor::kTextPoke, "change of text")) out.push_back(std::move(*c));
  return out;
}

// Collects the output of a decoder, for its disagreements alone.
class GapCounter final : public ChunkSink {
 public:
  void take(Chunk&& chunk) override {
    gaps += static_cast<uint64_t>(std::ranges::count_if(
        chunk.gaps, [](const Gap& g) { return family_of(g.code) == CodeFamily::kFlow; }));
  }
  uint64_t gaps = 0;
};

// With the clock moved by `shift`: are the segments that had disagreements free of them?
bool agrees_at(const ValidationInput& in, Time shift) {
  constexpr size_t kMostSegments = 8;
  const Capture& c = in.capture;
  std::unique_ptr<Arch> arch;
  if (c.arm64.sources.empty()) {
    x86::Config config = c.x86;
    config.time->zero += static_cast<uint64_t>(shift);
    arch = x86::make_arch(config);
  } else {
    arm64::Config config = c.arm64;
    config.time->zero += static_cast<uint64_t>(shift);
    arch = arm64::make_arch(config);
  }
  GapCounter counter;
  const auto decoder = arch->decoder(c.streams, *c.text, in.options.decode);
  std::vector<std::pair<size_t, size_t>> wanted = in.flow.disagreements;
  std::ranges::sort(wanted);
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  if (wanted.size() > kMostSegments) wanted.resize(kMostSegments);
  for (size_t i = 0; i < wanted.size();) {
    const size_t stream = wanted[i].first;
    const auto segments = arch->segments(c.streams[stream], stream, 0);
    Passing passing(c.streams[stream]);
    while (const auto segment = segments->next()) {
      passing.reach(segment->begin);
      if (i == wanted.size() || wanted[i].first != stream) break;
      if (segment->index != wanted[i].second) continue;
      decoder->decode(*segment, counter);
      if (counter.gaps != 0) return false;
      ++i;
    }
    while (i < wanted.size() && wanted[i].first == stream) ++i;  // those that there are not
  }
  return true;
}

}  // namespace

void check_times(const ValidationInput& in, std::vector<Check>& out) {
  const Capture& c = in.capture;
  if (!c.perf) return;
  for (const Notice& n : c.notices) {
    if (n.code == Code::kClockContradicts || n.code == Code::kMtcContradicts)
      out.push_back({Check::Result::kFail, "clock", n.reason, {}});
  }
  if (!c.x86.time && !c.arm64.time) {
    out.push_back(
        {Check::Result::kNote, "clock", "nothing relates the trace's clock to that of the records", {}});
    return;
  }
  const AuxBounds aux = look_at_aux(c, kAuxSlack + c.arm64.time_error);
  if (aux.checked != 0) {
    Check check{.topic = "clock"};
    check.result = aux.outside == 0 ? Check::Result::kPass : Check::Result::kFail;
    check.answer = fmt::format("of {}, {} lie outside the times their AUX records allow",
                               format_plural(aux.checked, "sync point", "sync points"),
                               aux.outside == 0 ? "none" : format_count(aux.outside));
    if (aux.outside != 0) {
      check.answer += fmt::format(": the trace's clock is {} or more {} the records'",
                                  format_duration(static_cast<uint64_t>(std::abs(aux.worst))),
                                  aux.worst > 0 ? "ahead of" : "behind");
      check.places.push_back(aux.first);
    }
    out.push_back(std::move(check));
  }
  for (Check& check : ask_anchors(in)) out.push_back(std::move(check));
}

std::string find_clock_shift(const ValidationInput& in) {
  constexpr Time kFurthest = 10'000'000'000;
  const Capture& c = in.capture;
  if (in.flow.disagreements.empty() || (c.arm64.sources.empty() ? !c.x86.time : !c.arm64.time)) return {};
  if (!c.arm64.sources.empty() && arm64::needs_reference(c.arm64.sources[0].protocol)) return {};
  // A clock that other evidence confirms is not moved.
  const std::vector<Check> anchors = ask_anchors(in);
  if (std::ranges::any_of(anchors, [](const Check& a) { return a.result == Check::Result::kPass; }))
    return {};
  for (Time by = 1000; by < kFurthest; by += by / 12) {
    for (const Time shift : {by, -by}) {
      if (look_at_aux(c, kAuxSlack + c.arm64.time_error, shift).outside != 0 || !agrees_at(in, shift))
        continue;
      return fmt::format("none is left if the trace's clock is moved by {}{}: it is probably that much {}",
                         shift < 0 ? "-" : "+", format_duration(static_cast<uint64_t>(by)),
                         shift < 0 ? "ahead" : "behind");
    }
  }
  return {};
}

}  // namespace asof
