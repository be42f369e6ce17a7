// Whoever counts branches counts the same ones, also where a function is left before its first instruction and what
// comes next has no bytes, as with uprobes.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/tools/recordings.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

class BranchSums : public RecordingTest {
 protected:
  std::string input() const {
    return path() + (std::filesystem::exists(symfs()) ? " --symfs " + symfs() : "");
  }
};

uint64_t sum_of_counts(const std::string& csv) {
  uint64_t sum = 0;
  for (const std::string& line : lines_of(csv)) {
    const size_t second = line.find(',', line.find(',') + 1);
    if (second != std::string::npos && line.starts_with("0x")) sum += std::stoull(line.substr(second + 1));
  }
  return sum;
}

TEST_P(BranchSums, AreThoseOfTheTable) {
  const Ran table = run_asof("query -q -i " + input() + " 'select count(*) from branches'");
  ASSERT_EQ(table.status, 0) << table.err;
  const Ran counted = run_asof("branches -q --format csv " + input());
  ASSERT_EQ(counted.status, 0) << counted.err;
  const auto rows = lines_of(table.out);
  ASSERT_FALSE(rows.empty());
  const uint64_t sum = sum_of_counts(counted.out);
  EXPECT_GT(sum, 100U);
  EXPECT_EQ(sum, std::stoull(rows.back()));
}

std::vector<TestRecording> small_recordings() {
  std::vector<TestRecording> out = recordings();
  std::erase_if(out, [](const TestRecording& r) {
    return !std::filesystem::exists(std::string(ASOF_TEST_DATA "/") + r.archive);
  });
  return out;
}

INSTANTIATE_TEST_SUITE_P(Captures, BranchSums, ::testing::ValuesIn(small_recordings()), RecordingTest::name);

}  // namespace
}  // namespace asof::test
