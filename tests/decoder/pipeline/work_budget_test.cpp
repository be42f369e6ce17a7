// Real captures are far from the budget of work (arch/walk/work.h): with a 32nd of it nothing of them is given up.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"
#include "tests/decoder/blocks/block_copy.h"
#include "tests/support/effort.h"
#include "tests/support/skip_without.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

struct GivenUp : ChunkConsumer {
  void deliver(Chunk& chunk, const Stream&, Prepared*) override {
    steps += chunk.steps.size();
    count += static_cast<size_t>(std::ranges::count(chunk.gaps, Code::kTooMuchWork, &Gap::code));
  }
  size_t steps = 0, count = 0;
};

// What may be a capture below `root`.
std::vector<fs::path> inputs_below(const fs::path& root) {
  std::vector<fs::path> out;
  const auto options = fs::directory_options::follow_directory_symlink;
  for (auto it = fs::recursive_directory_iterator(root, options); it != fs::recursive_directory_iterator();
       ++it) {
    const std::string name = it->path().filename();
    const bool perf = name == "perf.data" || (it->is_regular_file() && name.ends_with(".data"));
    if (it->is_directory() && perf) it.disable_recursion_pending();
    if (name == "snapshot.ini") out.push_back(it->path().parent_path());
    if (perf || name == "bundle.json" || name == "trace.json") out.push_back(it->path());
  }
  std::ranges::sort(out);
  return out;
}

size_t expect_nothing_given_up(const fs::path& root, uint32_t divisor) {
  size_t decoded = 0;
  for (const fs::path& path : inputs_below(root)) {
    CaptureOptions how;
    if (const fs::path symfs = path.parent_path() / "symfs"; fs::exists(symfs)) how.symfs = symfs.string();
    const auto capture = open_capture(path.string(), how);
    if (!capture || capture->streams.empty()) continue;
    PipelineOptions options;
    options.decode.work_divisor = divisor;
    GivenUp seen;
    if (!run_pipeline(*capture, options, ChunkOrder::kByStream, seen) || seen.steps == 0) continue;
    ++decoded;
    EXPECT_EQ(seen.count, 0U) << path;
  }
  return decoded;
}

constexpr uint32_t kDivisor = 32;

TEST(WorkBudget, OwnCapturesUseASmallPartOfIt) {
  EXPECT_GE(expect_nothing_given_up(ASOF_TEST_DATA, kDivisor), 2U);
}

TEST(WorkBudget, OtherCapturesUseASmallPartOfIt) {
  SKIP_WITHOUT(std::string(ASOF_SHARED_DIR) + "/captures");
  EXPECT_GE(expect_nothing_given_up(ASOF_SHARED_DIR, kDivisor), 20U);
}

// What is given up depends on the bytes alone, also where other workers have decoded other segments before.
TEST(WorkBudget, GivesUpTheSameHoweverItIsDecoded) {
  size_t given_up = 0;
  for (const char* root : {ASOF_TEST_DATA, ASOF_SHARED_DIR "/captures"}) {
    if (!fs::exists(root) || (kSanitized && root != std::string_view(ASOF_TEST_DATA))) continue;
    for (const fs::path& path : inputs_below(root)) {
      const auto capture = open_capture(path.string(), {});
      // Only where text changes anything is tried.
      if (!capture || !capture->text || capture->text->pokes().empty()) continue;
      PipelineOptions options;
      options.decode.work_divisor = 1 << 16;
      options.jobs = 1;
      GivenUp seen;
      ASSERT_TRUE(run_pipeline(*capture, options, ChunkOrder::kByStream, seen).has_value());
      given_up += seen.count;
      const Watch alone = watch(*capture, options);
      options.jobs = 4;
      EXPECT_EQ(watch(*capture, options).streams, alone.streams) << path;
      options.decode.block_cache = false;
      EXPECT_EQ(watch(*capture, options).streams, alone.streams) << path << " without caches";
    }
  }
  EXPECT_GT(given_up, 10U);
}

}  // namespace
}  // namespace asof::test
