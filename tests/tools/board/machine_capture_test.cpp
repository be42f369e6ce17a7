// The committed recordings of validation machines (docs/boards.md): made by Debian's kernels and the perf of their
// versions on emulated CPUs with Intel PT, or ETE and TRBE, decoded and compared with what executed. Only files of
// this repository.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

struct Recording {
  const char* name;     // of the test
  const char* archive;  // below tests/data
  uint64_t certain;     // instructions of all CPUs: nothing else is right
  uint64_t late;        // of code whose bytes the recording does not have
  size_t pokes;         // TEXT_POKE records
  // Where user text changes without a record, nothing is certain, and the text of another time may be shown.
  uint64_t ambiguous = 0, wrong = 0, missing = 0;
};

void PrintTo(const Recording& r, std::ostream* out) { *out << r.name; }

class MachineCapture : public ::testing::TestWithParam<Recording> {
 protected:
  // Unpacked once for all tests of a recording.
  static std::string unpacked(const std::string& archive) {
    static TempDir dir;
    const auto to = dir.path() / std::filesystem::path(archive).parent_path().filename() /
                    std::filesystem::path(archive).stem();
    if (std::filesystem::create_directories(to)) {
      const std::string command =
          fmt::format("tar -C '{}' -xJf '{}/{}'", to.string(), ASOF_TEST_DATA, archive);
      if (std::system(command.c_str()) != 0) ADD_FAILURE() << command;
    }
    return to.string();
  }
  static nlohmann::json validated(const Recording& r, const std::string& options) {
    const std::string at = unpacked(r.archive);
    const std::string symfs = std::filesystem::exists(at + "/symfs") ? "--symfs " + at + "/symfs" : "";
    const Ran ran = run_asof(
        fmt::format("validate {0}/perf.data {1} --truth {0}/truth -q --format json {2}", at, symfs, options));
    EXPECT_TRUE(ran.status == 0 || ran.status == 3) << ran.err;
    return nlohmann::json::parse(ran.out, nullptr, false);
  }
  static uint64_t sum(const nlohmann::json& result, const std::string& pointer) {
    uint64_t n = 0;
    for (const auto& cpu : result.at("cpus"))
      n += cpu.at(nlohmann::json::json_pointer(pointer)).get<uint64_t>();
    return n;
  }
  static std::string answer(const nlohmann::json& result, const char* topic) {
    for (const auto& check : result.at("checks")) {
      if (check.at("topic") == topic) return check.at("result");
    }
    return "none";
  }
};

TEST_P(MachineCapture, IsDecodedExactly) {
  const Recording& r = GetParam();
  const auto result = validated(r, "");
  ASSERT_FALSE(result.is_discarded());
  EXPECT_EQ(sum(result, "/right"), r.certain + r.ambiguous);
  EXPECT_EQ(sum(result, "/wrong"), r.wrong);
  EXPECT_EQ(sum(result, "/missing"), r.missing);
  EXPECT_EQ(sum(result, "/late"), r.late);
  EXPECT_EQ(sum(result, "/right_by_confidence/certain"), r.certain);
  EXPECT_EQ(sum(result, "/right_by_confidence/ambiguous"), r.ambiguous);
  EXPECT_EQ(sum(result, "/wrong_by_confidence/ambiguous"), r.wrong);
  EXPECT_EQ(answer(result, "truth"), r.wrong + r.missing == 0 ? "pass" : "fail");
  EXPECT_EQ(answer(result, "losses"), "pass");
  for (const char* topic : {"sync", "chain", "images", "clock", "reference"})
    EXPECT_NE(answer(result, topic), "fail") << topic;
  EXPECT_EQ(answer(result, "flow"), r.ambiguous == 0 ? "pass" : "fail");
  if (r.late != 0) return;
  for (const auto& cpu : result.at("cpus")) EXPECT_TRUE(cpu.at("ip_hash_agrees").get<bool>());
}

TEST_P(MachineCapture, HasTheKernelsRecordsOfChanges) {
  const Ran ran = run_asof(fmt::format("events {}/perf.data -q", unpacked(GetParam().archive)));
  size_t pokes = 0;
  for (size_t at = 0; (at = ran.out.find(" TEXT_POKE ", at)) != std::string::npos; ++at) ++pokes;
  EXPECT_EQ(pokes, GetParam().pokes) << ran.err;
}

constexpr std::array kRecordings{
    Recording{.name = "Linux61KernelTailcall",
              .archive = "machine-6.1/kernel-tailcall.tar.xz",
              .certain = 2'461'590,
              .late = 0,
              .pokes = 20},
    Recording{.name = "Linux612KernelTailcall",
              .archive = "machine-6.12/kernel-tailcall.tar.xz",
              .certain = 2'795'737,
              .late = 0,
              .pokes = 20},
    // User code with uprobes, of one thread: the slots in which the probed instructions run are in no recording, and no
    // record says when the NOP of 10 bytes became LEA and CALL.
    Recording{.name = "Linux73ThreadUprobe",
              .archive = "machine-7.3/thread-user-uprobe.tar.xz",
              .certain = 0,
              .late = 7'191,
              .pokes = 0,
              .ambiguous = 346'472,
              .wrong = 1'194,
              .missing = 799},
    // ETE and TRBE: user code, whose text does not change.
    Recording{.name = "Linux612Arm64UserTrue",
              .archive = "machine-6.12-arm64/user-true.tar.xz",
              .certain = 1'174'607,
              .late = 0,
              .pokes = 0},
};
INSTANTIATE_TEST_SUITE_P(Machines, MachineCapture, ::testing::ValuesIn(kRecordings),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace asof::test
