// Readers that decode at the same time with different numbers of threads: the results are the same, and TBB has nothing to
// say on standard error about limits that contradict each other.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "decoder/pipeline/pipeline.h"

namespace asof {
namespace {

class Counter final : public ChunkConsumer {
 public:
  void deliver(Chunk& chunk, const Stream& /*stream*/, Prepared* /*prepared*/) override {
    for (const Step& step : chunk.steps) instructions += step.count;
  }
  uint64_t instructions = 0;
};

uint64_t instructions_with(unsigned jobs) {
  CaptureOptions options;
  options.symfs = ASOF_TEST_DATA "/demo/symfs";
  options.host_files = false;
  options.jobs = jobs;
  const auto capture = open_capture(ASOF_TEST_DATA "/demo/perf.data", options);
  PipelineOptions pipeline;
  pipeline.jobs = jobs;
  Counter counter;
  return capture && run_pipeline(*capture, pipeline, ChunkOrder::kByTime, counter) ? counter.instructions : 0;
}

TEST(SideBySide, ReadersDoNotLimitEachOther) {
  testing::internal::CaptureStderr();
  const uint64_t alone = instructions_with(1);
  std::atomic<size_t> same = 0;
  std::vector<std::thread> readers;
  const std::vector<unsigned> jobs{1, 8, 2, 16, 3, 1};
  for (const unsigned n : jobs) {
    readers.emplace_back([n, alone, &same] {
      for (int i = 0; i < 5; ++i) same += instructions_with(n) == alone ? 1 : 0;
    });
  }
  for (std::thread& t : readers) t.join();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_GT(alone, 50'000U);
  EXPECT_EQ(same, 5 * jobs.size());
}

}  // namespace
}  // namespace asof
