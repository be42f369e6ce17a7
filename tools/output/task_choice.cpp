#include "tools/output/task_choice.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "arch/chunk_items.h"
#include "decoder/model/task_of.h"
#include "tools/output/chunk_window.h"
#include "tools/output/diagnostics.h"

namespace asof {
namespace {

bool has_number(const std::vector<int>& list, int32_t number) {
  return list.empty() || std::ranges::find(list, number) != list.end();
}

bool has_name(const std::vector<std::string>& list, const std::string& name) {
  return std::ranges::any_of(list, [&](const std::string& pattern) {
    return pattern == name || ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

}  // namespace

std::string task_name(std::string_view comm, int32_t tid) {
  if (!comm.empty()) return std::string(comm);
  return tid == 0 ? "swapper" : tid < 0 ? "unknown" : fmt::format(":{}", tid);
}

bool TaskChoice::has(const TaskTable& tasks, int32_t pid, int32_t tid, Time t) const {
  if (!has_number(pids, pid) || !has_number(tids, tid)) return false;
  return comms.empty() || has_name(comms, task_name(tasks.comm(tid, t), tid));
}

bool TaskChoice::has_thread(const TaskTable& tasks, int32_t pid, int32_t tid) const {
  if (!has_number(pids, pid) || !has_number(tids, tid)) return false;
  if (comms.empty()) return true;
  bool named = false, wanted = false;
  tasks.for_each([&](int32_t of, const TaskTable::Comm& c) {
    if (of != tid) return;
    named = true;
    wanted = wanted || has_name(comms, c.comm);
  });
  return named ? wanted : has_name(comms, task_name({}, tid));
}

void choose_threads(const TaskChoice& tasks, const Capture& capture, TimelineOptions& options) {
  if (!tasks.any()) return;
  options.wants_thread = [&](int32_t pid, int32_t tid) { return tasks.has_thread(capture.tasks, pid, tid); };
}

void TaskFlow::event(const Event& e) {
  if (!walk_) return;
  walk_->event(e);
  if (e.kind == EventKind::kTraceStop) walk_->interrupt();
}

bool TaskFlow::wants(Time t, Space space) {
  const ContextChange* task =
      walk_ && walk_->flows() ? walk_->task(space) : task_of(stream_, t, space, stream_.context_at(t));
  if (task == looked_ && t == looked_at_) return wanted_;
  looked_ = task;
  looked_at_ = t;
  wanted_ = choice_.has(capture_.tasks, task == nullptr ? -1 : task->pid,
                        task == nullptr ? stream_.tid : task->tid, t);
  return wanted_;
}

namespace {

Chunk chunk_of_tasks(const Chunk& chunk, const Stream& stream, const Capture& capture,
                     const TaskChoice& tasks) {
  Chunk out;
  out.stream = chunk.stream;
  out.segment = chunk.segment;
  out.last = chunk.last;
  out.segment_start = chunk.segment_start;
  out.segment_begin = chunk.segment_begin;
  out.segment_end = chunk.segment_end;
  TaskFlow flow(capture, stream, tasks);
  ChunkItems items(chunk);
  Space space = kKernelSpace;
  // What stands before entry `position`.
  const auto before = [&](size_t position) {
    const auto now = static_cast<uint32_t>(out.steps.size());
    items.before(
        position,
        [&](const Gap& gap) {
          flow.gap();
          if (!flow.wants(known_time(gap.time), kKernelSpace)) return;
          Gap& g = out.gaps.emplace_back(gap);
          g.step = now;
          g.after = 0;
          for (auto e = out.events.rbegin(); e != out.events.rend() && e->step == now; ++e) ++g.after;
        },
        [&](const Event& event) {
          flow.event(event);
          if (!flow.wants(event.time, is_kernel_address(event.ip) || event.ip == 0 ? kKernelSpace : space))
            return;
          out.events.push_back(event);
          out.events.back().step = now;
        });
  };
  bool left_out = false;
  for (auto it = chunk.steps.begin(); it != chunk.steps.end(); ++it) {
    before(it.position());
    flow.step(*it);
    space = it->block->space;
    const bool wanted = flow.wants(it->time, space);
    if (wanted) {
      Step step = *it;
      if (left_out) step.flags |= Step::kAfterGap;
      out.steps.push_back(step);
    }
    left_out = !wanted;
  }
  before(SIZE_MAX);
  return out;
}

}  // namespace

std::optional<Chunk> chunk_chosen(const Chunk& chunk, const Stream& stream, const Capture& capture,
                                  const TaskChoice& tasks, const TimeBounds& time) {
  if (!tasks.any()) return chunk_within(chunk, time);
  Chunk part = chunk_of_tasks(chunk, stream, capture, tasks);
  if (auto within = chunk_within(part, time)) return within;
  return part;
}

}  // namespace asof
