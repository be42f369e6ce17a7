// Copies of kernel text of which a part is not where the copy says: the trace shows it, and nothing of them is certain.
#include "decoder/open/text_check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "tests/decoder/capture_test_util.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

class MovedText : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string from = fmt::format("{}/{}/capture.tar.xz", ASOF_TEST_DATA, GetParam());
    ASSERT_EQ(std::system(fmt::format("tar -C '{}' -xJf '{}'", dir_.path().string(), from).c_str()), 0);
  }
  fs::path kcore() const { return dir_.path() / "perf.data/kcore_dir/kcore"; }
  Capture open() const {
    CaptureOptions o = closed_options();
    o.symfs = dir_.path() / "symfs";
    auto capture = open_capture(dir_.path() / "perf.data", o);
    EXPECT_TRUE(capture.has_value()) << capture.error().reason;
    return std::move(capture).value();
  }
  // Versions of text of the copy of kcore: sure ones, unsure ones.
  static std::pair<size_t, size_t> versions_of_the_copy(const Capture& capture) {
    std::pair<size_t, size_t> out;
    const TextStore& text = *capture.text;
    for (const Cell& cell : text.cells(kKernelSpace, {0, UINT64_MAX})) {
      for (const Version& v : cell.versions) {
        if (v.bytes == nullptr || text.origin(v.origin).kind != OriginKind::kKcore) continue;
        ++(v.unsure ? out.second : out.first);
      }
    }
    return out;
  }
  static bool is_told(const Capture& capture) {
    return std::ranges::any_of(capture.notices, [](const Notice& n) {
      return n.code == Code::kTraceContradictsText && n.where.find("kcore") != std::string::npos;
    });
  }
  const TempDir dir_;
};

TEST_P(MovedText, IsNotCertain) {
  const Capture whole = open();
  EXPECT_FALSE(is_told(whole));
  EXPECT_GT(versions_of_the_copy(whole).first, 10U);
  // The first segment's bytes are taken from 8 KiB further on in the file (Elf64_Phdr::p_offset).
  Bytes bytes = read_bytes(kcore());
  uint64_t headers = 0, offset = 0;
  std::memcpy(&headers, &bytes.at(32), sizeof headers);
  std::memcpy(&offset, &bytes.at(headers + 8), sizeof offset);
  offset += 0x2000;
  std::memcpy(&bytes.at(headers + 8), &offset, sizeof offset);
  write_bytes(kcore(), bytes);
  const Capture moved = open();
  EXPECT_TRUE(is_told(moved));
  const auto [sure, unsure] = versions_of_the_copy(moved);
  EXPECT_EQ(sure, 0U);
  EXPECT_GT(unsure, 10U) << "is followed all the same";
}

INSTANTIATE_TEST_SUITE_P(Boards, MovedText, ::testing::Values("board-x86", "board-arm64"),
                         [](const auto& info) { return std::string(info.param).substr(6); });

}  // namespace
}  // namespace asof::test
