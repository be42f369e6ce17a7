#include "decoder/live/settling.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "decoder/aux/aux_queues.h"
#include "decoder/pipeline/stream_choice.h"

namespace asof {
namespace {

// What a sync group and the packets beside it may take (PADs stretch it).
constexpr uint64_t kGroup = 1024;
// Between the time of a sync point and the last instant of the segment before it, with the error of clocks.
constexpr Time kMargin = 2000;  // ns

// Where trace ends that an AUX record up to `until` is about: only then it is known whether any of it is missing.
uint64_t announced_end(const AuxQueue& queue, Time until) {
  uint64_t end = 0;
  for (const AuxRecord* r : queue.records) {
    if (r->id.instant().value_or(kTimeMax) <= until)
      end = std::max(end, r->offset + std::min(r->size, UINT64_MAX - r->offset));
  }
  return end;
}

uint64_t dated_end(const Stream& stream, Time until) {
  uint64_t end = 0;
  for (const StreamPiece& piece : stream.pieces) {
    if (piece.time.hi == kTimeMax || piece.time.hi > until) break;
    end = piece.offset + piece.size();
  }
  return end;
}

std::vector<uint64_t> covered_ends(const Capture& capture, Time until, std::string& waits_for) {
  std::vector<uint64_t> out;
  if (!capture.arm64.sources.empty()) {
    for (const Stream& s : capture.streams) out.push_back(dated_end(s, until));
    return out;
  }
  std::vector<Notice> ignored;
  for (const AuxQueue& queue : collect_queues(*capture.perf, ignored)) {
    if (queue.overlapping) waits_for = "trace is recorded as snapshots, which later ones can repeat";
    out.push_back(announced_end(queue, until));
  }
  if (out.size() != capture.streams.size()) waits_for = "streams are not those of AUX buffers";
  return out;
}

}  // namespace

// One that comes later could have older trace than what was given out, and other streams a new place in the order.
std::string Settling::missing_stream(const Capture& capture) const {
  size_t rings = 0;
  const auto& info = capture.perf->auxtrace_info();
  const uint32_t type = !info || info->priv.empty() ? 0
                        : capture.arm64.sources.empty()
                            ? static_cast<uint32_t>(info->priv[0])
                            : static_cast<uint32_t>(info->priv.size() > 1 ? info->priv[1] >> 32U : 0);
  for (const PerfAttr& attr : capture.perf->attrs()) {
    if (attr.type == type) rings = std::max(rings, attr.ids.size());
  }
  if (capture.streams.empty() || capture.streams.size() < rings)
    return fmt::format("only {} of {} CPUs or threads with a trace event have given trace",
                       capture.streams.size(), rings);
  for (const Stream& s : capture.streams) {
    if (s.cpu >= 0 && s.contexts.empty())
      return fmt::format("nothing says yet which task runs on {}", s.name);
  }
  return {};
}

// Segment k is as it will be when the two after it are there: the flow's end is in the group of the next, whose own
// time bounds its time, and trace is read up to the one after that.
void Settling::scan(const Arch& arch, const Capture& capture, size_t stream, uint64_t covered, Time until) {
  Lane& lane = lanes_[stream];
  const auto source = arch.segments(capture.streams[stream], stream, lane.scan_from);
  auto here = source->next();
  auto next = here ? source->next() : std::nullopt;
  Time reached = lane.settled.empty() ? lane.reached : lane.settled.back().start;
  while (next) {
    auto after = source->next();
    const Time start = std::max(reached, here->start_time);
    const bool all_there =
        after && after->begin <= covered && covered - std::min(covered, next->begin) >= kGroup;
    const bool timed = next->start_time != kTimeMin && next->start_time > start;
    if (!all_there || !timed || saturating_add(next->start_time, kMargin) > until) break;
    lane.settled.push_back({here->begin, start});
    if (++lane.found == kChecked) lane.checked = here->begin;
    reached = start;
    here = std::exchange(next, std::exchange(after, std::nullopt));
  }
  lane.has_open =
      here && here->start_time != kTimeMin && here->begin <= covered && covered - here->begin >= kGroup;
  if (!here) return;
  lane.scan_from = here->begin;
  lane.first_open = {here->begin, std::max(reached, here->start_time)};
}

Settling::Step Settling::step(const Capture& capture) {
  Step out;
  out.options = choice_;
  out.options.ranges.emplace();
  const SettledRecords records = settled_records(capture, file_);
  out.until = records.until;
  out.newest = records.newest;
  out.waits_for = records.waits_for;
  if (out.until == kTimeMin) return out;
  std::string unlike = missing_stream(capture);
  const auto covered = covered_ends(capture, out.until, unlike);
  const auto arch = capture.arch();
  if (!unlike.empty() || !arch) {
    out.waits_for = unlike;
    return out;
  }
  lanes_.resize(capture.streams.size());
  // The first of all that are not settled, in the order of delivery: by start, then by stream.
  std::pair<Time, size_t> first_open{kTimeMax, SIZE_MAX};
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (!chosen_range(capture.streams[i], i, choice_)) continue;
    scan(**arch, capture, i, covered[i], out.until);
    first_open = std::min(first_open, {lanes_[i].open_start(), i});
  }
  out.reached = first_open.first;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    const StreamRange range{i, lane.given, 0};
    out.before.push_back(lane.reached);
    while (!lane.settled.empty() && std::pair(lane.settled.front().start, i) < first_open) {
      lane.reached = lane.settled.front().start;
      lane.last_given.push_back(lane.settled.front().begin);
      if (lane.last_given.size() > kLookedAt) lane.last_given.pop_front();
      lane.settled.pop_front();
      lane.given = lane.settled.empty() ? lane.first_open.begin : lane.settled.front().begin;
    }
    if (lane.given == range.begin) continue;
    out.options.ranges->push_back({i, range.begin, lane.given});
    given_bytes_ += bytes_within(capture.streams[i], out.options.ranges->back());
    out.any = true;
  }
  if (!out.any && out.waits_for.empty() && first_open.second < lanes_.size())
    out.waits_for =
        fmt::format("{} has no later trace that is settled", capture.streams[first_open.second].name);
  return out;
}

void Settling::ends_with(const Capture& capture, size_t stream, std::optional<size_t> segment, Time start) {
  Lane& lane = lanes_.at(stream);
  const uint64_t given = segment ? *segment + 1 : 0;  // segments are numbered by where they begin
  if (given < lane.given) given_bytes_ -= bytes_within(capture.streams[stream], {stream, given, lane.given});
  while (!lane.last_given.empty() && lane.last_given.back() >= given) lane.last_given.pop_back();
  lane.given = given;
  lane.reached = segment ? start : kTimeMin;
  lane.settled.clear();
}

Settling::Step Settling::rest(const Capture& capture) const {
  Step out;
  out.options = choice_;
  out.any = true;
  if (given_bytes_ == 0) return out;
  out.options.ranges.emplace();
  for (size_t i = 0; i < capture.streams.size(); ++i) {
    out.options.ranges->push_back({i, i < lanes_.size() ? lanes_[i].given : 0, UINT64_MAX});
    out.before.push_back(i < lanes_.size() ? lanes_[i].reached : kTimeMin);
  }
  return out;
}

}  // namespace asof
