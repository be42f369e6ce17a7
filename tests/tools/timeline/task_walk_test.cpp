// Whose code each instruction is, by the lines that verbs print and by the blocks of a timeline.
#include "decoder/calls/task_walk.h"

#include <map>
#include <utility>

#include "decoder/calls/timeline.h"
#include "decoder/pipeline/pipeline.h"
#include "tests/tools/recordings.h"

namespace asof::test {
namespace {

using Tasks = std::map<std::pair<size_t, int32_t>, uint64_t>;  // instructions by stream and thread

class ByWalk final : public ChunkConsumer {
 public:
  explicit ByWalk(const Capture& capture) {
    for (const Stream& s : capture.streams) walks_.emplace_back(capture, s);
  }
  void deliver(Chunk& chunk, const Stream& stream, Prepared* /*prepared*/) override {
    TaskWalk& walk = walks_[chunk.stream];
    size_t event = 0, gap = 0;
    for (auto s = chunk.steps.begin(); s != chunk.steps.end(); ++s) {
      for (; gap < chunk.gaps.size() && chunk.gaps[gap].step <= s.position(); ++gap) walk.interrupt();
      for (; event < chunk.events.size() && chunk.events[event].step <= s.position(); ++event)
        walk.event(chunk.events[event]);
      walk.step(*s);
      const ContextChange* const task = walk.task(s->block->space);
      by_walk[{chunk.stream, task == nullptr ? stream.tid : task->tid}] += s->count;
      times = times || s->time != kTimeMin;
    }
  }
  Tasks by_walk;
  bool times = false;

 private:
  std::vector<TaskWalk> walks_;
};

class OfBlocks final : public TimelineSink {
 public:
  void block(const BlockSlice& b) override { tasks[{b.stream, b.tid}] += b.piece.lengths.size(); }
  Tasks tasks;
};

class TasksAgree : public RecordingTest {};

TEST_P(TasksAgree, WalkAndTimeline) {
  if (std::string_view(GetParam().name) == "demo_arm64")
    GTEST_SKIP() << "its records have one thread on two CPUs";
  const auto capture = open();
  ASSERT_TRUE(capture) << capture.error().reason;
  ByWalk walk(*capture);
  ASSERT_TRUE(run_pipeline(*capture, {}, ChunkOrder::kByStream, walk));
  OfBlocks blocks;
  TimelineOptions options;
  options.detail = true;
  ASSERT_TRUE(run_timeline(*capture, options, blocks));
  if (walk.by_walk != blocks.tasks && !walk.times) GTEST_SKIP() << "no time";
  EXPECT_EQ(walk.by_walk, blocks.tasks);
}

INSTANTIATE_TEST_SUITE_P(Captures, TasksAgree, kRecordings, RecordingTest::name);

}  // namespace
}  // namespace asof::test
