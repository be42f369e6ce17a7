// The matrix of live-text situations, one text file per row in tests/cases/: see tests/README.md, "Cases".
// The name of a test is its row alone (X05), that of the file also what it shows
// (X05-emulated-call-....case).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tests/support/case_runner.h"
#include "tests/support/temp_dir.h"

namespace asof::test {
namespace {

const std::filesystem::path kCases = std::filesystem::path(ASOF_TEST_DATA) / ".." / "cases";

// File names without ".case".
std::vector<std::string> all_cases() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(kCases)) {
    if (entry.path().extension() == ".case") out.push_back(entry.path().stem().string());
  }
  std::ranges::sort(out);
  return out;
}

std::string row_of(const std::string& name) { return name.substr(0, name.find('-')); }

class Cases : public testing::TestWithParam<std::string> {};

TEST_P(Cases, Row) {
  const std::filesystem::path path = kCases / (GetParam() + ".case");
  const auto variants = case_variants(path);
  ASSERT_FALSE(variants.empty());
  for (const std::string& variant : variants) {
    SCOPED_TRACE(variant.empty() ? GetParam() : GetParam() + " @" + variant);
    const TempDir scratch;
    try {
      const CaseFile read = read_case(path, variant);
      EXPECT_EQ(read.row, row_of(GetParam()));
      for (const std::string& wrong : run_case(read, scratch.path())) ADD_FAILURE() << wrong;
    } catch (const CaseError& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Matrix, Cases, testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<std::string>& name) { return row_of(name.param); });

}  // namespace
}  // namespace asof::test
