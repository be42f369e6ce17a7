#include "tools/output/coverage.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/pipeline/stream_choice.h"
#include "tools/output/chunk_window.h"
#include "tools/output/diagnostics.h"
#include "tools/output/error_table.h"
#include "tools/output/format.h"
#include "tools/output/ring_start.h"

namespace asof {
namespace {

// Time of the step before an index; kTimeMin where there is none.
Time time_before(const Chunk& chunk, uint32_t step) {
  return step == 0 || step > chunk.steps.size() ? kTimeMin : chunk.steps.time_at(step - 1);
}

}  // namespace

Coverage::Coverage(const Capture& capture, const PipelineOptions& choice)
    : capture_(&capture), streams_(capture.streams.size()), window_(choice.time) {
  move_to(capture, choice);
}

void Coverage::move_to(const Capture& capture, const PipelineOptions& choice) {
  capture_ = &capture;
  chosen_part_ = !choice.cpus.empty() || !choice.tids.empty();
  streams_.resize(capture.streams.size());
  for (size_t i = 0; i < capture.streams.size(); ++i) {
    if (const auto range = chosen_range(capture.streams[i], i, choice))
      chosen_bytes_ += bytes_within(capture.streams[i], *range);
  }
}

uint64_t Coverage::lasted(Time from, Time to) const {
  from = std::max(from, window_.lo);
  to = std::min(to, window_.hi);
  return from < to ? static_cast<uint64_t>(elapsed(from, to)) : 0;
}

void Coverage::close_gap(StreamState& s, Time t) {
  const Time until = std::min(t, std::max(s.gap_until, s.gap_from));
  const uint64_t ns = lasted(s.gap_from, until);
  traced_ += ns;
  lost_ += ns;
  if (ns != 0) cause_of(s.open_cause, s.ring_start).time += ns;
  s.open_cause = Code::kNone;
  s.last = std::max(s.last, until);
}

void Coverage::advance(StreamState& s, Time t) {
  if (t == kTimeMin) return;
  if (s.open_cause != Code::kNone) close_gap(s, t);
  if (s.on && s.seen) traced_ += lasted(s.last, t);
  s.last = s.seen ? std::max(s.last, t) : t;
  s.seen = true;
}

void Coverage::count_gap(const Gap& gap, const Stream& stream) {
  ++gaps_;
  const bool ring_start = is_ring_start(stream, gap);
  if (is_error_code(gap.code) && !ring_start) {
    ++errors_;
    error_causes_.insert(gap.code);
  }
  if (family_of(gap.code) == CodeFamily::kText) text_missing_ = true;
  cause_of(gap.code, ring_start).add(*capture_, stream, gap);
  const uint64_t bytes = gap.end > gap.begin ? gap.end - gap.begin : 0;
  lost_bytes_ += bytes;
  if (gap.code == Code::kTraceBytesMissing && !capture_->blocks)
    missing_bytes_ += bytes - std::min(bytes, bytes_within(stream, {.begin = gap.begin, .end = gap.end}));
}

void Coverage::add_gap(StreamState& s, const Gap& gap, const Stream& stream) {
  if (is_within(gap, window_)) count_gap(gap, stream);
  // Tracing continued without flow, whatever its state was before.
  const bool lo_known = gap.time.lo != kTimeMin;
  if (!s.seen && !lo_known) return;
  if (s.open_cause == Code::kNone)
    s.gap_from = s.seen ? (lo_known ? std::max(s.last, gap.time.lo) : s.last) : gap.time.lo;
  if (s.on && s.seen) traced_ += lasted(s.last, s.gap_from);
  s.last = s.gap_from;
  s.seen = true;
  s.gap_until = gap.time.hi;
  s.open_cause = gap.code;
  s.ring_start = is_ring_start(stream, gap);
  s.on = true;
}

void Coverage::reach(StreamState& s, const Chunk& chunk, const Stream& stream) {
  if (chunk.segment_end <= s.reached) return;
  reached_bytes_ +=
      bytes_within(stream, {.begin = std::max(s.reached, chunk.segment_begin), .end = chunk.segment_end});
  s.reached = chunk.segment_end;
}

void Coverage::add(const Chunk& chunk, uint64_t instructions) {
  if (chunk.stream >= streams_.size()) return;
  StreamState& s = streams_[chunk.stream];
  const Stream& stream = capture_->streams[chunk.stream];
  reach(s, chunk, stream);
  instructions_ += instructions;
  size_t event = 0;
  size_t gap = 0;
  // The step that ends the latest gap: the first one after it, once everything else before that step is done.
  uint32_t resume = UINT32_MAX;
  const auto come_to = [&](uint32_t step) {
    if (resume < step && resume < chunk.steps.size()) advance(s, chunk.steps.time_at(resume));
    // A gap right before `step` continues: what lies before it was counted when it began.
    const bool in_gap = resume != UINT32_MAX && resume >= step;
    if (resume < step) resume = UINT32_MAX;
    if (!in_gap) advance(s, time_before(chunk, step));
  };
  if (s.open_cause != Code::kNone) resume = 0;
  // Decoding began amid the trace.
  const bool begins =
      std::ranges::any_of(chunk.gaps, [](const Gap& g) { return g.step == 0; }) ||
      std::ranges::any_of(chunk.events, [](const Event& e) {
        return e.step == 0 && (e.kind == EventKind::kTraceStart || e.kind == EventKind::kTraceStop);
      });
  if (!s.seen && !begins && !chunk.steps.empty()) advance(s, chunk.steps.time_at(0));
  while (event < chunk.events.size() || gap < chunk.gaps.size()) {
    const bool take_gap = event == chunk.events.size() ||
                          (gap < chunk.gaps.size() && chunk.gaps[gap].step <= chunk.events[event].step);
    if (take_gap) {
      const Gap& g = chunk.gaps[gap++];
      come_to(g.step);
      add_gap(s, g, stream);
      resume = g.step;
      continue;
    }
    const Event& e = chunk.events[event++];
    if (e.kind != EventKind::kTraceStart && e.kind != EventKind::kTraceStop) continue;
    come_to(e.step);
    advance(s, e.time);
    s.on = e.kind == EventKind::kTraceStart;
  }
  come_to(static_cast<uint32_t>(chunk.steps.size()));
  // Nothing may follow a gap at the end.
  if (chunk.steps.empty() && s.open_cause != Code::kNone && s.gap_until != kTimeMax)
    close_gap(s, s.gap_until);
  // The begin of what follows the wanted time: tracing, or a gap, went on until then.
  if (chunk.steps.empty() && chunk.segment_start > window_.hi) advance(s, chunk.segment_start);
}

double Coverage::share(uint64_t lost, uint64_t whole) const {
  if (instructions_ == 0) return 0;
  if (whole == 0) return gaps_ == 0 ? 100 : floored_percent(100, 2);
  const double share = 100 * (1 - static_cast<double>(std::min(lost, whole)) / static_cast<double>(whole));
  // Never rounded up to 100 %: a gap can have no length by the clock, and hold thousands of instructions.
  return gaps_ == 0 && lost == 0 ? 100 : floored_percent(share, 2);
}

std::string Coverage::ring_start_text() const {
  if (ring_starts_.count == 0) return {};
  return fmt::format(
      "{}: {} before the first sync point are not decoded",
      format_plural(ring_starts_.count, "trace begins in the middle, as a ring buffer leaves it",
                    "traces begin in the middle, as ring buffers leave them"),
      format_size(ring_starts_.bytes));
}

double Coverage::time_percent() const { return share(lost_, traced_); }

// A block stream has no trace: `chosen_bytes_` is 0.
double Coverage::bytes_percent() const {
  const uint64_t not_reached = stopped_.empty() ? 0 : chosen_bytes_ - std::min(reached_bytes_, chosen_bytes_);
  // Of a part of the time, the rest of the trace was not to be decoded.
  const bool part = window_ != TimeBounds{} && stopped_.empty() && reached_bytes_ != 0;
  const uint64_t present = part ? std::min(reached_bytes_, chosen_bytes_) : chosen_bytes_;
  return share(lost_bytes_ + not_reached, present + missing_bytes_);
}

bool Coverage::nothing_to_decode() const {
  return instructions_ == 0 && gaps_ == 0 && (stopped_.empty() || (chosen_bytes_ == 0 && !capture_->blocks));
}

// Of a block stream it is not known what was asked for and is not in it.
bool Coverage::nothing_matched() const {
  return window_ != TimeBounds{} || (capture_->blocks ? chosen_part_ : chosen_bytes_ == 0);
}

uint64_t pokes_within(const Capture& capture, const TimeBounds& time) {
  if (!capture.text) return 0;
  return static_cast<uint64_t>(std::ranges::count_if(
      capture.text->pokes(), [&](const auto& poke) { return poke.time >= time.lo && poke.time <= time.hi; }));
}

std::vector<const BpfProgram*> bpf_programs_within(const Capture& capture, const TimeBounds& time) {
  std::vector<const BpfProgram*> out;
  for (const BpfProgram& p : capture.bpf_programs) {
    if (p.loaded <= time.hi && p.unloaded >= time.lo) out.push_back(&p);
  }
  return out;
}

bool without_trace(const Capture& capture) {
  return !capture.blocks && std::all_of(capture.streams.begin(), capture.streams.end(),
                                        [](const Stream& s) { return s.end() == s.begin(); });
}

std::string Coverage::headline() const {
  if (without_trace(*capture_) && instructions_ == 0) return "no trace";
  if (nothing_to_decode() && stopped_.empty())
    return nothing_matched() ? "nothing matched: no trace of what was asked for (--cpu, --time, --tid)"
                             : "nothing to decode: the trace has no instructions";
  // How much trace it would have had is not known.
  const bool endless = std::ranges::any_of(
      capture_->notices, [](const Notice& n) { return n.code == Code::kBlockStreamTruncated; });
  std::string text = endless ? "of a block stream without an end: " : "";
  if (none_selected_ && stopped_.empty()) text += "nothing matched: ";
  if (!stopped_.empty()) {
    text += stopped_ + ": ";
    if (chosen_bytes_ != 0)
      text = fmt::format("{} at {:.2f} % of the trace at most: ", stopped_,
                         100 * static_cast<double>(std::min(reached_bytes_, chosen_bytes_)) /
                             static_cast<double>(chosen_bytes_));
  }
  const std::string gaps = format_plural(gaps_, "gap", "gaps");
  const bool by_time = has_time() && time_percent() <= bytes_percent();
  if (by_time)
    return text +
           fmt::format("decoded {:.2f} % of traced time ({}, {})", percent(), gaps, format_duration(lost_));
  return text + fmt::format("decoded {:.2f} % of trace bytes ({}{}, {})", percent(),
                            has_time() ? fmt::format("{:.2f} % of traced time{}, ", time_percent(),
                                                     stopped_.empty() ? "" : " up to there")
                                       : "",
                            gaps, format_size(lost_bytes_));
}

std::string Coverage::line() const {
  uint64_t errors = errors_;
  std::set<Code> error_causes = error_causes_;
  for (const Notice& n : capture_->notices) {
    if (n.severity != Notice::Severity::kError) continue;
    errors += n.count;
    error_causes.insert(n.code);
  }
  const uint64_t pokes = pokes_within(*capture_, window_),
                 programs = bpf_programs_within(*capture_, window_).size();
  std::string text = fmt::format(
      "{}, {}{}{}, {}, {}, {}", headline(), format_plural(instructions_, "instruction", "instructions"),
      selected_.empty() ? "" : ", ", selected_, format_plural(pokes, "poke", "pokes"),
      format_plural(programs, "BPF program", "BPF programs"), format_plural(errors, "error", "errors"));
  if (errors != 0) text += " in " + format_plural(error_causes.size(), "cause", "causes");
  return text;
}

}  // namespace asof
