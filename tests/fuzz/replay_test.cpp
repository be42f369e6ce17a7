// Each fuzz target over its corpus: what fuzzers found once, and what makes them reach all of the readers.
#include <gtest/gtest.h>

#include <algorithm>

#include "decoder/blocks/block_file.h"
#include "decoder/model/capture.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/fuzz.h"

namespace asof::fuzz {

static void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }

namespace {

class Replay : public ::testing::TestWithParam<Target> {};

TEST_P(Replay, Corpus) {
  const auto inputs = read_corpus(std::string(ASOF_FUZZ_CORPUS) + "/" + GetParam().name + ".tar.zst");
  ASSERT_FALSE(inputs.empty());
  for (const auto& [name, bytes] : inputs) {
    SCOPED_TRACE(name);
    // Memory of its own, so that a sanitizer sees a read beyond its end.
    const auto copy = std::make_unique<uint8_t[]>(bytes.size());
    std::ranges::copy(bytes, copy.get());
    GetParam().run({copy.get(), bytes.size()});
  }
}

size_t opened(const std::string& target, bool (*opens)(Bytes)) {
  const auto inputs = read_corpus(std::string(ASOF_FUZZ_CORPUS) + "/" + target + ".tar.zst");
  return static_cast<size_t>(std::ranges::count_if(inputs, [&](const auto& i) { return opens(i.second); }));
}

// Of another version of a format all are refused, and nothing behind that is reached: scripts/fuzz.sh minimize makes them
// anew.
TEST(Corpora, AreOfThisVersion) {
  EXPECT_GE(opened("block_stream", [](Bytes b) { return blocks::BlockFile::open(as_file(b)).has_value(); }),
            10U);
  EXPECT_GE(opened("parts",
                   [](Bytes b) {
                     const auto files = split_files(b);
                     return !files.empty() &&
                            blocks::BlockFile::open(as_file(files.begin()->second)).has_value();
                   }),
            2U);
  EXPECT_GE(opened("plan",
                   [](Bytes b) {
                     CaptureOptions options;
                     options.host_files = false;
                     auto files = split_files(b);
                     move_plan(files);
                     return files.contains("plan/core.asof") &&
                            open_capture(as_folder(files) + "/plan", options).has_value();
                   }),
            2U);
}

std::vector<Target> sorted_targets() {
  std::vector<Target> list = targets();
  std::ranges::sort(list, {}, [](const Target& t) { return std::string(t.name); });
  return list;
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Replay, ::testing::ValuesIn(sorted_targets()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace asof::fuzz
