// The matrix of live-text situations, one text file per row in tests/cases/: see tests/README.md, "Cases".
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

std::vector<std::string> all_rows() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(kCases)) {
    if (entry.path().extension() == ".case") out.push_back(entry.path().stem().string());
  }
  std::ranges::sort(out);
  return out;
}

class Cases : public testing::TestWithParam<std::string> {};

TEST_P(Cases, Row) {
  const std::filesystem::path path = kCases / (GetParam() + ".case");
  for (const std::string& variant : case_variants(path)) {
    SCOPED_TRACE(variant.empty() ? GetParam() : GetParam() + " @" + variant);
    const TempDir scratch;
    try {
      for (const std::string& wrong : run_case(read_case(path, variant), scratch.path()))
        ADD_FAILURE() << wrong;
    } catch (const CaseError& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Matrix, Cases, testing::ValuesIn(all_rows()),
                         [](const testing::TestParamInfo<std::string>& row) { return row.param; });

}  // namespace
}  // namespace asof::test
