// CallTracker: threads on CPUs, and slices from frames.
#include <algorithm>
#include <utility>

#include "decoder/calls/call_tracker.h"
#include "decoder/calls/switcher.h"

namespace asof {
namespace {

constexpr size_t kMaxKept = size_t{1} << 16;  // in residencies of all threads

}  // namespace

void CallTracker::start(Cpu& c, Time t) {
  const Stream& stream = capture_.streams[c.stream];
  c.started = true;
  c.now = !has_time_ ? 0 : t != kTimeMin ? t : stream.bounds.lo != kTimeMin ? stream.bounds.lo : 0;
  if (summary_.slices == 0 && summary_.stretches == 0) summary_.begin = summary_.end = c.now;
  summary_.begin = std::min(summary_.begin, c.now);
  ++summary_.stretches;
  const auto& contexts = stream.contexts;
  while (c.context + 1 < contexts.size() && contexts[c.context + 1].time <= c.now) ++c.context;
  switch_to(c, contexts.empty() ? nullptr : &contexts[c.context]);
}

CallTracker::Thread& CallTracker::thread_of(Cpu& c, const ContextChange* context) {
  if (context != nullptr) return thread_of(c, context->tid, context->pid);
  return thread_of(c, c.cpu < 0 ? capture_.streams[c.stream].tid : -1, -1);
}

CallTracker::Thread& CallTracker::thread_of(Cpu& c, int32_t tid, int32_t pid) {
  // Every CPU has an idle task 0; each stream has an unknown task of its own.
  const int32_t stream = static_cast<int32_t>(c.stream);
  auto& t = threads_[{tid, tid > 0 ? -1 : stream}];
  if (t) return *t;
  t = std::make_unique<Thread>(*this);
  t->tid = tid;
  t->pid = pid;
  t->wanted = !options_.wants_thread || options_.wants_thread(pid, tid);
  if (tid < 0 || !t->wanted || !options_.thread_tracks || !options_.calls) return *t;
  t->tracked = true;
  t->track = next_track_++;
  TimelineTrack track{t->track, TimelineTrack::Kind::kThread, tid == 0 ? c.cpu : -1, t->pid, tid, {}};
  const std::string comm(capture_.tasks.comm(tid, c.now));
  track.name = tid == 0 ? "idle/" + std::to_string(c.cpu)
                        : (comm.empty() ? "thread" : comm) + " " + std::to_string(tid);
  sink_.track(track);
  return *t;
}

bool CallTracker::any_wanted(size_t stream, Time from, Time to) const {
  return std::ranges::any_of(capture_.streams[stream].contexts, [&](const ContextChange& c) {
    return c.time >= from && c.time <= to && options_.wants_thread(c.pid, c.tid);
  });
}

// How much later than the trace's time a record's may be.
Time CallTracker::lateness(const Cpu& c) { return switch_lateness(c.step); }

void CallTracker::follow_records(Cpu& c, Time delay) {
  if (!has_time_ || stand_in_) return;
  const auto& contexts = capture_.streams[c.stream].contexts;
  const size_t before = c.context;
  const Time until = saturating_add(c.now, -delay);
  while (c.context + 1 < contexts.size() && contexts[c.context + 1].time <= until) ++c.context;
  if (c.context != before) switch_to(c, &contexts[c.context]);
}

// The flow is at the instruction after which another thread's stack is in use.
void CallTracker::exchange_stacks(Cpu& c, const FlowOp& op) {
  const auto& contexts = capture_.streams[c.stream].contexts;
  const Time latest = saturating_add(c.now, lateness(c));
  const size_t before = c.context;
  while (c.context + 1 < contexts.size() && contexts[c.context + 1].time <= c.now) ++c.context;
  if (c.context == before && c.context + 1 < contexts.size() && contexts[c.context + 1].time <= latest)
    ++c.context;
  const bool known = c.context != before;
  if (!known && !anchored_) return;  // the same thread, in another space
  switch_to(c, known ? &contexts[c.context] : nullptr);
  CallStack& stack = c.thread->stack;
  c.lost_at = c.now;
  set_lost(c);
  // It is unknown which of the unknown threads this is.
  if (!known) stack.close_all(true);
  if (!options_.calls) return;
  const Landing here = functions_.landing(op.left, kKernelSpace, op.from, kNoOrigin);
  if (const Frame* top = stack.top(); top != nullptr && top->function == here.function) return;
  begin_stretch(c);
  stack.resume({here.function, op.from, kNoOrigin, false}, true);
}

// Records of two CPUs contradict each other about what runs here: the later one counts. What runs continues,
// and its thread is unknown.
void CallTracker::take_away(Cpu& c) {
  if (c.in_span) break_span_(c.stream);
  const Frame* top = c.thread->stack.top();
  const bool known = c.flow && top != nullptr;
  const Landing here = known ? Landing{top->function, top->entry, top->origin, false} : Landing{};
  // Not thread_of(c, nullptr): in a trace of one thread that is the very thread which another stream has.
  switch_to(c, thread_of(c, -1, -1));
  c.thread->stack.close_all(true);
  if (known) {
    begin_stretch(c);
    c.thread->stack.resume(here, false);
  }
}

void CallTracker::switch_to(Cpu& c, Thread& next) {
  if (c.thread == &next) return;
  if (c.thread != nullptr) leave(c, Slice::kSwitchedOut);
  if (next.on != nullptr) take_away(*next.on);
  c.thread = &next;
  c.since = 0;
  next.on = &c;
  c.resident = c.now;
  c.resident_count = c.count;
  if (next.stretch == kTimeMin) begin_stretch(c);
  for (Frame& f : next.stack.frames()) open_part(c, f, c.now, c.count, Slice::kResumed);
}

// The flow was lost at c.lost_at; what is closed as lost from here on ended then.
void CallTracker::set_lost(Cpu& c) {
  Thread& t = *c.thread;
  t.stack.forget_parked();
  t.lost_at = std::max(t.last, c.lost_at);
  t.lost_count = t.count;
  t.lost_cpu_count = c.count;
}

void CallTracker::refuted(Thread& t) {
  t.on->lost_at = t.on->now;
  set_lost(*t.on);
  begin_stretch(*t.on);
}

// The thread leaves the CPU: what it has on this CPU's track ends.
void CallTracker::leave(Cpu& c, uint32_t flags) {
  Thread& t = *c.thread;
  auto& parked = t.stack.parked();
  for (size_t i = parked.size(); i > 0; --i)
    close_part(t, parked[i - 1], i > 1 ? &parked[i - 2] : nullptr, true, flags | Slice::kEndUnknown);
  if (c.lost) set_lost(c);
  auto& frames = t.stack.frames();
  for (size_t i = frames.size(); i > 0; --i)
    close_part(t, frames[i - 1], i > 1 ? &frames[i - 2] : nullptr, c.lost, flags);
  keep_residency(t, c);
  t.last = c.lost ? t.lost_at : std::max(t.last, c.now);
  t.on = nullptr;
}

// Nothing is known of what the thread did just before.
void CallTracker::begin_stretch(Cpu& c) {
  Thread& t = *c.thread;
  flush(t.thread_unparented, nullptr, true);
  flush(t.part_unparented, nullptr, false);
  forget_residencies(t);
  t.stretch = std::max(t.last, c.now);
  t.stretch_count = t.count;
  t.stretch_on = &c;
  t.stretch_cpu_count = c.count;
  ++summary_.stretches;
}

void CallTracker::flush(UnparentedSlices& unparented, Frame* parent, bool thread) {
  Activity* below = parent == nullptr ? nullptr : thread ? &parent->thread : &parent->part;
  for (Slice& s : unparented.slices) {
    if (below != nullptr) s.parent = below->id;
    sink_.slice(s);
  }
  if (below != nullptr) below->below += unparented.instructions;
  unparented = {};
}

void CallTracker::open_part(Cpu& c, Frame& frame, Time begin, uint64_t count, uint32_t flags) {
  if (!c.tracked || !c.thread->wanted) return;
  frame.part = {next_id(c), begin, count, 0, flags};
}

void CallTracker::opened(Thread& t, Frame& frame) {
  Cpu& c = *t.on;
  if (t.stack.frames().size() == 1) c.since = 0;  // those below are gone, if there were any
  t.last = std::max(t.last, c.now);
  frame.cpu = c.cpu;
  frame.version = functions_.version(frame.function, c.now);
  if (t.tracked) frame.thread = {next_id(c), t.last, t.count, 0, 0};
  open_part(c, frame, c.now, c.count, 0);
}

void CallTracker::discovered(Thread& t, Frame& frame, const Frame* above) {
  frame.cpu = t.on->cpu;
  const bool older = above != nullptr && above->thread.id != 0 && above->thread.begin <= t.stretch &&
                     above->thread.count < t.stretch_count;
  Time begin = older ? above->thread.begin : t.stretch;
  uint64_t count = older ? above->thread.count : t.stretch_count;
  if (t.thread_unparented.count < count) {  // several may begin at one instant: the count decides
    begin = std::min(begin, t.thread_unparented.begin);
    count = t.thread_unparented.count;
  }
  frame.version = functions_.version(frame.function, begin);
  if (t.tracked) frame.thread = {next_id(*t.on), begin, count, 0, 0};
}

// On this CPU's track, frames that existed before count from when the thread came, or its flow began.
void CallTracker::adopted(Thread& t, size_t count) {
  Cpu& c = *t.on;
  auto& frames = t.stack.frames();
  const bool here = t.stretch_on == &c && t.stretch >= c.resident;
  Time begin = here ? t.stretch : c.resident;
  uint64_t instructions = here ? t.stretch_cpu_count : c.resident_count;
  if (count < frames.size() && frames[count].part.id != 0 && frames[count].part.count < instructions) {
    begin = std::min(begin, frames[count].part.begin);
    instructions = frames[count].part.count;
  }
  if (t.part_unparented.count < instructions) {
    begin = std::min(begin, t.part_unparented.begin);
    instructions = t.part_unparented.count;
  }
  for (size_t i = 0; i < count; ++i) {
    if (frames[i].part.id == 0)
      open_part(c, frames[i], begin, instructions, begin == c.resident ? Slice::kResumed : 0);
  }
  flush(t.thread_unparented, &frames[count - 1], true);
  flush(t.part_unparented, &frames[count - 1], false);
  extend_residencies(t, count);
}

// The outermost slices of a thread that leaves wait for their callers as long as these can be found.
void CallTracker::keep_residency(Thread& t, const Cpu& c) {
  const auto& frames = t.stack.frames();
  const bool open = !c.lost && !frames.empty() && frames.front().back == 0;
  kept_ += t.part_unparented.slices.size();
  t.residencies.push_back({c.track, c.cpu, c.now, c.count, std::move(t.part_unparented)});
  t.part_unparented = {};
  if (!open || kept_ > kMaxKept) forget_residencies(t);
}

void CallTracker::extend_residencies(Thread& t, size_t frames) {
  for (Residency& residency : t.residencies) {
    UnparentedSlices& inner = residency.outermost;
    for (size_t i = frames; i > 0 && !inner.slices.empty(); --i) {
      Frame frame = t.stack.frames()[i - 1];
      frame.version = functions_.version(frame.function, inner.begin);
      frame.cpu = residency.cpu;
      frame.confidence = Confidence::kCertain;  // nothing of its own ran
      frame.part = {next_id(*t.on), inner.begin, inner.count, 0, 0};
      kept_ -= inner.slices.size();
      const Time begin = inner.begin;
      const uint64_t count = inner.count;
      flush(inner, &frame, false);
      inner.begin = begin;
      inner.count = count;
      emit(frame, frame.part, residency.track, nullptr, &inner, residency.end, residency.count,
           Slice::kSwitchedOut);
      ++kept_;
    }
  }
}

void CallTracker::forget_residencies(Thread& t) {
  for (Residency& residency : t.residencies) {
    kept_ -= residency.outermost.slices.size();
    flush(residency.outermost, nullptr, false);
  }
  t.residencies.clear();
}

void CallTracker::emit(const Frame& frame, const Activity& a, uint32_t track, Activity* below,
                       UnparentedSlices* unparented, Time end, uint64_t count, uint32_t flags) {
  Slice s;
  s.id = a.id;
  s.track = track;
  s.function = frame.function;
  s.begin = a.begin;
  s.end = std::max(a.begin, end);
  s.instructions = count - a.count;
  s.self_instructions = s.instructions - std::min(s.instructions, a.below);
  s.entry = frame.entry;
  s.call_site = frame.site;
  s.flags = frame.flags | a.flags | flags;
  s.version = frame.version;
  s.origin = frame.origin;
  s.confidence = frame.confidence;
  s.cpu = frame.cpu;
  ++summary_.slices;
  if (below != nullptr && below->id != 0) {
    s.parent = below->id;
    below->below += s.instructions;
  } else if (unparented != nullptr) {
    unparented->begin = std::min(unparented->begin, a.begin);
    unparented->count = std::min(unparented->count, a.count);
    unparented->slices.push_back(s);
    unparented->instructions += s.instructions;
    return;
  }
  sink_.slice(s);
}

void CallTracker::close_part(Thread& t, Frame& frame, Frame* below, bool lost, uint32_t flags) {
  if (frame.part.id == 0) return;
  Cpu& c = *t.on;
  const Time end = lost ? std::max(t.lost_at, c.resident) : c.now;
  const uint64_t count = lost ? std::max(t.lost_cpu_count, frame.part.count) : c.count;
  const bool stays = flags == 0 || flags == Slice::kSwitchedOut;
  UnparentedSlices* unparented = below == nullptr && stays && !lost ? &t.part_unparented : nullptr;
  emit(frame, frame.part, c.track, below == nullptr ? nullptr : &below->part, unparented, end, count, flags);
  frame.part = {};
}

void CallTracker::closed(Thread& t, Frame& frame, Frame* below, bool lost) {
  if (t.on != nullptr) close_part(t, frame, below, lost, 0);
  if (frame.thread.id != 0) {
    if (t.on != nullptr && !lost) t.last = std::max(t.last, t.on->now);
    const bool known = !lost && t.on != nullptr;
    emit(frame, frame.thread, t.track, below == nullptr ? nullptr : &below->thread,
         known ? &t.thread_unparented : nullptr, lost ? t.lost_at : t.last,
         lost ? std::max(t.lost_count, frame.thread.count) : t.count, 0);
  }
  if (t.on != nullptr &&
      t.thread_unparented.slices.size() + t.part_unparented.slices.size() > kMaxUnparented) {
    // Callers found later are valid from here on.
    t.stack.forget_parked();
    begin_stretch(*t.on);
  }
}

}  // namespace asof
