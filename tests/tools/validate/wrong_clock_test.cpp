// What a recording says of its trace's clock, altered: times may be lost, but nothing wrong is called certain.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <regex>

#include "tests/support/perf_data_writer.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kAuxtraceInfo = 70, kAuxtrace = 71, kTimeConv = 79;

constexpr const char *kBoard = "board-arm64/capture.tar.xz", *kBoardX86 = "board-x86/capture.tar.xz";

// One bit of a word of the record's body.
struct Altered {
  const char* name;
  const char* capture;
  uint32_t record;
  size_t word;
  unsigned bit;
  const char* code;  // that says so; empty: times are as before
};

void PrintTo(const Altered& a, std::ostream* out) { *out << a.name; }

class WrongClock : public ::testing::TestWithParam<Altered> {
 protected:
  void SetUp() override {
    const std::string from = std::string(ASOF_TEST_DATA "/") + GetParam().capture;
    if (from.ends_with(".tar.xz")) {
      fs::create_directory(dir_ / "c");
      ASSERT_EQ(std::system(fmt::format("tar -C '{}/c' -xJf '{}'", dir_.path().string(), from).c_str()), 0);
    } else {
      fs::copy(from, dir_ / "c", fs::copy_options::recursive);
    }
    const fs::path file = dir_ / "c/perf.data/data";
    std::string data = read_file(file);
    const auto number = [&](size_t at, size_t size) {
      uint64_t out = 0;
      std::memcpy(&out, data.data() + at, size);
      return out;
    };
    size_t at = number(40, 8);
    while (number(at, 4) != GetParam().record)
      at += number(at + 6, 2) + (number(at, 4) == kAuxtrace ? number(at + 8, 8) : 0);
    data[at + 8 + 8 * GetParam().word + GetParam().bit / 8] ^= static_cast<char>(1 << GetParam().bit % 8);
    write_text(file, data);
  }

  const TempDir dir_;
};

TEST_P(WrongClock, MakesNothingWrongCertain) {
  const std::string input = " -i '" + (dir_ / "c/perf.data").string() + "'";
  const Ran validation = run_asof("validate -q --truth '" + (dir_ / "c/truth").string() + "'" + input);
  std::smatch counts;
  if (std::regex_search(validation.out, counts, std::regex("\\((.*) of them called certain or proved\\)"))) {
    EXPECT_EQ(counts[1], "0") << validation.out.substr(0, 3000);
  } else {
    EXPECT_EQ(validation.status, 2) << validation.out << validation.err;
  }
  const Ran digest = run_asof("digest" + input);
  EXPECT_NE((digest.out + digest.err).find(GetParam().code), std::string::npos) << digest.err;
}

INSTANTIATE_TEST_SUITE_P(
    Words, WrongClock,
    ::testing::Values(Altered{"pmu", kBoardX86, kAuxtraceInfo, 1, 1, "E-SIDE-521"},
                      Altered{"mtc_bits", kBoardX86, kAuxtraceInfo, 12, 15, "E-SIDE-521"},
                      Altered{"ctc_n", kBoardX86, kAuxtraceInfo, 13, 5, "E-SIDE-521"},
                      Altered{"ctc_d", kBoardX86, kAuxtraceInfo, 14, 2, "E-SIDE-521"},
                      Altered{"info_mult", "demo", kAuxtraceInfo, 3, 20, "E-SIDE-522"},
                      Altered{"info_zero", "demo", kAuxtraceInfo, 4, 20, "E-SIDE-522"},
                      Altered{"shift", "demo", kTimeConv, 0, 0, "E-SIDE-522"},
                      Altered{"mult", "demo", kTimeConv, 1, 20, "E-SIDE-522"},
                      Altered{"zero", "demo", kTimeConv, 2, 17, "E-SIDE-522"},
                      Altered{"arm64_shift", kBoard, kTimeConv, 0, 0, "E-SIDE-522"},
                      Altered{"arm64_mult", kBoard, kTimeConv, 1, 20, "E-SIDE-522"},
                      Altered{"arm64_zero", kBoard, kTimeConv, 2, 20, "E-SIDE-522"},
                      Altered{"arm64_cpu", "demo-arm64", kAuxtraceInfo, 16, 0, "E-SIDE-506"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace asof::test
