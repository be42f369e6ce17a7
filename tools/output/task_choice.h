// TaskChoice: which processes and threads are wanted, by number or name, and the parts of chunks that are theirs.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/arch.h"
#include "decoder/calls/task_walk.h"
#include "decoder/calls/timeline.h"
#include "decoder/model/capture.h"

namespace asof {

// As perf names a thread: ":4711" where no record gives it a name.
std::string task_name(std::string_view comm, int32_t tid);

struct TaskChoice {
  std::vector<int> pids, tids;     // empty: all
  std::vector<std::string> comms;  // names of threads, or patterns of the shell

  bool any() const { return !pids.empty() || !tids.empty() || !comms.empty(); }
  bool has(const TaskTable& tasks, int32_t pid, int32_t tid, Time t) const;
  // The same of a thread as a whole: by any of the names that it had.
  bool has_thread(const TaskTable& tasks, int32_t pid, int32_t tid) const;
};

// Slices are of whole threads. Both must outlive the options.
void choose_threads(const TaskChoice& tasks, const Capture& capture, TimelineOptions& options);

// Whose code a chunk's flow is, step by step, by the rules of `asof decode`.
class TaskFlow {
 public:
  // All must outlive it.
  TaskFlow(const Capture& capture, const Stream& stream, const TaskChoice& choice)
      : capture_(capture), stream_(stream), choice_(choice) {}

  // Before a chunk's first step only the records count, and after it the flow.
  void begin_chunk() { walk_.reset(); }
  void step(const Step& s) {
    if (!walk_) walk_.emplace(capture_, stream_);
    walk_->step(s);
  }
  void event(const Event& e);
  void gap() {
    if (walk_) walk_->interrupt();
  }
  // Code of this space that ran at `t`.
  bool wants(Time t, Space space);

 private:
  const Capture& capture_;
  const Stream& stream_;
  const TaskChoice& choice_;
  std::optional<TaskWalk> walk_;
  const ContextChange* looked_ = nullptr;  // the last one asked for, and the answer
  Time looked_at_ = kTimeMax;
  bool wanted_ = false;
};

// The part of a chunk that is wanted: of these tasks, and within this time. Nothing if the whole chunk is. What follows
// steps that were left out is marked as after a gap. Blocks are shared with `chunk`.
std::optional<Chunk> chunk_chosen(const Chunk& chunk, const Stream& stream, const Capture& capture,
                                  const TaskChoice& tasks, const TimeBounds& time);

}  // namespace asof
