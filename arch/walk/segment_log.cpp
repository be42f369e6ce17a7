#include "arch/walk/segment_log.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace asof::walk {
namespace {

bool names_address(const Event& e) {
  return e.kind == EventKind::kTraceStart || e.kind == EventKind::kAsync ||
         ((e.kind == EventKind::kPsb || e.kind == EventKind::kOverflow) && e.ip != 0);
}

}  // namespace

void SegmentLog::start_log(const Segment& segment, ChunkSink& sink) {
  segment_ = &segment;
  sink_ = &sink;
  chunk_ = sink.spare();
  gap_.reset();
  distrusted_.clear();
  doubted_ = 0;
  verified_steps_ = marked_steps_ = 0;
  next_flags_ = segment.before ? Step::kAfterGap : uint8_t{0};
  end_doubt();
  if (segment.before) chunk_.gaps.push_back(*segment.before);
}

void SegmentLog::add_event(EventKind kind, Time time, Addr ip, uint64_t a, uint64_t b, uint64_t offset) {
  Event e;
  e.kind = kind;
  e.step = static_cast<uint32_t>(chunk_.steps.size());
  e.time = time;
  e.ip = ip;
  e.a = a;
  e.b = b;
  e.offset = segment_->begin + offset;
  chunk_.events.push_back(e);
}

Gap* SegmentLog::new_gap(Code code, Addr ip, Time lo) {
  next_flags_ |= Step::kAfterGap;
  end_doubt();
  if (gap_) return nullptr;
  doubt_unconfirmed();
  const uint32_t step = static_cast<uint32_t>(chunk_.steps.size());
  if (!chunk_.gaps.empty() && chunk_.gaps.back().step == step && chunk_.gaps.back().code == code) {
    gap_ = std::move(chunk_.gaps.back());
    chunk_.gaps.pop_back();
    return nullptr;
  }
  Gap& g = gap_.emplace();
  g.step = step;
  for (auto e = chunk_.events.rbegin(); e != chunk_.events.rend() && e->step == step; ++e) ++g.after;
  g.code = code;
  g.ip = ip;
  g.time.lo = lo;
  return &g;
}

bool SegmentLog::close_gap(Addr resume_ip, uint64_t end, Time hi) {
  if (!gap_) return false;
  gap_->end = std::max(gap_->begin, segment_->begin + end);
  gap_->resume_ip = resume_ip;
  gap_->time.hi = hi;
  if (gap_->time.lo > gap_->time.hi) gap_->time.lo = gap_->time.hi;
  chunk_.gaps.push_back(std::move(*gap_));
  gap_.reset();
  return true;
}

void SegmentLog::doubt_unconfirmed() {
  for (size_t i = verified_steps_; i < chunk_.steps.size(); ++i) {
    Confidence& c = chunk_.steps.at(i).confidence;
    c = std::max(c, Confidence::kAmbiguous);
  }
  verify();
}

StepList::Place SegmentLog::behind_address() const {
  const size_t gap = chunk_.gaps.empty() ? 0 : chunk_.gaps.back().step;
  const auto last = std::find_if(chunk_.events.rbegin(), chunk_.events.rend(),
                                 [&](const Event& e) { return e.step < gap || names_address(e); });
  const size_t event = last == chunk_.events.rend() ? 0 : last->step;
  return chunk_.steps.behind_address(std::max(event, gap), verified_steps_, kMostBlocks);
}

void SegmentLog::loosen(size_t from) {
  const std::vector<uint32_t> begins = chunk_.steps.loosen(from);
  const auto moved = [&](size_t step) { return step < from ? step : begins[step - from]; };
  const auto move_last = [&](auto& all) {  // in the order of their steps
    for (auto x = all.rbegin(); x != all.rend() && x->step >= from; ++x)
      x->step = static_cast<uint32_t>(moved(x->step));
  };
  move_last(chunk_.events);
  move_last(chunk_.gaps);
  verified_steps_ = moved(verified_steps_);
  marked_steps_ = moved(marked_steps_);
}

void SegmentLog::doubt_since_address() {
  const StepList::Place from = behind_address();
  loosen(from.position);
  verified_steps_ = from.position + from.blocks;
  for (size_t i = verified_steps_; i < chunk_.steps.size(); ++i) {
    const Block& b = *chunk_.steps.at(i).block;
    if (b.space != kKernelSpace) distrust(b.origin);
  }
  doubt_unconfirmed();
  // Of those known before, all has been ambiguous since.
  if (distrusted_.size() != doubted_) doubt_distrusted();
}

const Block* SegmentLog::user_text_before(Addr ip) const {
  const Block* const last = chunk_.steps.last_block();
  const auto here = [size = chunk_.steps.size()](const auto& all) {
    return !all.empty() && all.back().step == size;
  };
  if (last == nullptr || last->space == kKernelSpace || here(chunk_.gaps) ||
      (here(chunk_.events) && names_address(chunk_.events.back())))
    return nullptr;
  switch (last->kind) {
    case BranchKind::kNone:
    case BranchKind::kCond:
    case BranchKind::kJump:
    case BranchKind::kCall:
      return ip == last->end() || ip == last->target ? last : nullptr;
    default:
      return nullptr;
  }
}

bool SegmentLog::is_distrusted(OriginRef origin) const {
  return std::ranges::find(distrusted_, origin) != distrusted_.end();
}

void SegmentLog::distrust(OriginRef origin) {
  if (origin != kNoOrigin && !is_distrusted(origin)) distrusted_.push_back(origin);
}

void SegmentLog::doubt_distrusted() {
  doubted_ = distrusted_.size();
  const StepList::Place from = chunk_.steps.back(chunk_.steps.size(), kMostBlocks);
  loosen(from.position);
  for (size_t i = from.position + from.blocks; i < chunk_.steps.size(); ++i) {
    Step& step = chunk_.steps.at(i);
    if (distrusts(*step.block)) step.confidence = std::max(step.confidence, Confidence::kAmbiguous);
  }
}

void SegmentLog::roll_back() { take_back(verified_steps_); }

void SegmentLog::take_back(size_t entries) {
  chunk_.steps.truncate(std::min(entries, chunk_.steps.size()));
  const size_t left = chunk_.steps.size();
  marked_steps_ = std::min(marked_steps_, left);
  for (auto e = chunk_.events.rbegin(); e != chunk_.events.rend() && e->step > left; ++e)
    e->step = static_cast<uint32_t>(left);
}

void SegmentLog::flush(bool last) {
  const size_t ready = last ? chunk_.steps.size() : chunk_.steps.back(verified_steps_, kMostBlocks).position;
  if (!last && ready == 0) return;
  Chunk rest;
  if (!last) {
    rest = sink_->spare();
    const auto now = [ready](const auto& x) { return x.step < ready; };
    const auto events = std::ranges::stable_partition(chunk_.events, now);
    const auto gaps = std::ranges::stable_partition(chunk_.gaps, now);
    rest.steps.reserve(std::min(chunk_.steps.capacity(), 2 * ready));  // not what once was needed
    chunk_.steps.split(ready, rest.steps);
    rest.events.assign(events.begin(), events.end());
    for (Gap& g : gaps) rest.gaps.push_back(std::move(g));
    for (Event& e : rest.events) e.step -= static_cast<uint32_t>(ready);
    for (Gap& g : rest.gaps) g.step -= static_cast<uint32_t>(ready);
    chunk_.events.resize(chunk_.events.size() - rest.events.size());
    chunk_.gaps.resize(chunk_.gaps.size() - rest.gaps.size());
  }
  verified_steps_ -= std::min(ready, verified_steps_);
  marked_steps_ -= std::min(ready, marked_steps_);
  chunk_.stream = segment_->stream;
  chunk_.segment = segment_->index;
  chunk_.last = last;
  usual_times_ = chunk_.steps.times().size();
  sink_->take(std::exchange(chunk_, std::move(rest)));
}

}  // namespace asof::walk
