// FlowWalk: steps, events and gaps of all streams, one after the other, in one order.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "api/chunk_reader.h"
#include "decoder/calls/task_walk.h"

namespace asof::v0 {

struct FlowWants {
  bool steps = false, events = false, gaps = false;
};

// The task of a record.
struct Who {
  int32_t cpu = -1, pid = -1, tid = -1;
};

// One thing of the flow: one of the three is set. Valid until the next FlowWalk::next().
struct FlowPoint {
  const asof::Step* step = nullptr;
  const asof::Event* event = nullptr;
  const asof::Gap* gap = nullptr;
  const asof::Stream* stream = nullptr;
  Who who;
};

// Keeps of a stream what the filter lets through, and says at which time.
class TaskFilter {
 public:
  TaskFilter(const Filter& filter, const asof::Capture& capture, const asof::Stream& stream)
      : filter_(filter), stream_(stream), walk_(capture, stream) {}
  // Of code in `space` at `t`.
  bool wanted(Time t, Space space);
  const Who& who() const { return who_; }
  // Whose code it is; where that does not know, the records alone say it.
  asof::TaskWalk& walk() { return walk_; }

 private:
  bool decide(Time t, Space space, const asof::ContextChange* task);

  const Filter& filter_;
  const asof::Stream& stream_;
  Who who_;
  asof::TaskWalk walk_;
  const asof::ContextChange *by_time_ = nullptr, *task_ = nullptr;
  bool looked_ = false, by_flow_ = false, wanted_ = false;
  Time time_ = kTimeMin;
  Time looked_at_ = kTimeMin, until_ = kTimeMin;  // by_time_ is of [looked_at_, until_)
  Space space_ = kKernelSpace;
};

class FlowWalk {
 public:
  FlowWalk(const std::shared_ptr<const CaptureData>& data, const Filter& filter, FlowWants wants);
  // False: that was all.
  bool next(FlowPoint& point);
  uint64_t reordered() const { return reordered_; }

 private:
  // Chunks of one stream that wait, and how far the first one is read.
  struct Lane {
    Lane(const Filter& filter, const asof::Capture& capture, const asof::Stream& s)
        : stream(&s), tasks(filter, capture, s) {}
    Lane(Lane&&) noexcept = default;  // never moved: lanes_ has room for all
    const asof::Stream* stream;
    TaskFilter tasks;
    std::deque<std::unique_ptr<asof::Chunk>> chunks;
    std::optional<asof::StepList::Iterator> step;  // in the first chunk; none: it is not begun
    size_t event = 0, gap = 0;
    bool before_step = true;     // events and gaps in front of *step come first
    Space space = kKernelSpace;  // of the latest step
    Time latest = kTimeMin;      // time does not go back within a stream
    std::optional<FlowPoint> head;
  };
  void find_head(Lane& lane);
  bool find_in_chunk(Lane& lane);
  bool find_gap(Lane& lane, const asof::Chunk& c, size_t index);
  bool find_event(Lane& lane, const asof::Chunk& c, size_t index, Space space);
  bool at_step(Lane& lane, const asof::Step& step);
  bool set_head(Lane& lane, Time time, Space space);
  bool pull();
  Lane* earliest();

  const Filter filter_;
  const FlowWants wants_;
  const uint64_t limit_;  // bytes that may wait
  ChunkReader reader_;
  std::vector<Lane> lanes_;
  Lane* current_ = nullptr;         // whose head comes next, as long as it is before `second_`
  Lane* given_ = nullptr;           // whose head was given last
  std::pair<Time, size_t> second_;  // the next one after current_: time and lane
  Time watermark_ = kTimeMin;       // nothing before it comes any more
  uint64_t waiting_ = 0;            // bytes
  uint64_t reordered_ = 0;
  bool all_ = false;     // all that waits may go: nothing comes any more
  bool forced_ = false;  // likewise: too much waits
};

}  // namespace asof::v0
