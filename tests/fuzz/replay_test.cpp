// Each fuzz target over its corpus: what fuzzers found once, and what makes them reach all of the readers.
#include <gtest/gtest.h>

#include <algorithm>

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

std::vector<Target> sorted_targets() {
  std::vector<Target> list = targets();
  std::ranges::sort(list, {}, [](const Target& t) { return std::string(t.name); });
  return list;
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Replay, ::testing::ValuesIn(sorted_targets()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace asof::fuzz
