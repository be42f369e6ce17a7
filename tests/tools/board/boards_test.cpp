// Live text of real kernels: every instruction of the board captures, and how decoding of recordings without
// their files ends. Skipped where the captures beside the project are absent.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "decoder/model/image.h"
#include "tests/support/bytes.h"
#include "tests/support/elf_writer.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/skip_without.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

class Board : public ::testing::TestWithParam<const char*> {};

TEST_P(Board, EveryInstructionIsRight) {
  const std::string board = shared(std::string("captures/x86-board-") + GetParam());
  SKIP_WITHOUT(board);
  const std::string symfs = board + "/perf.data/symfs";
  const Ran ran = run_asof("validate " + board + "/perf.data --truth " + board + "/truth --format json -q" +
                           (std::filesystem::exists(symfs) ? " --symfs " + symfs : ""));
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  const auto json = nlohmann::json::parse(ran.out, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << ran.out;
  ASSERT_EQ(json["cpus"].size(), 2U) << ran.out;
  for (const auto& [name, cpu] : json["cpus"].items()) {
    EXPECT_EQ(cpu["wrong"], 0) << ran.out;
    EXPECT_EQ(cpu["missing"], 0) << ran.out;
    EXPECT_GT(cpu["right"], 100'000) << ran.out;
  }
}

INSTANTIATE_TEST_SUITE_P(X86, Board, ::testing::Values("small", "storm", "storm-tsc1ms", "userkernel"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// A CoreSight capture of a board: what records its changes of text, and how much of it is exact.
struct Arm64Capture {
  const char* name;  // of the test
  const char* data;  // below captures/
  uint64_t right, missing;
};
void PrintTo(const Arm64Capture& a, std::ostream* out) { *out << a.name; }
class Arm64Board : public ::testing::TestWithParam<Arm64Capture> {};

TEST_P(Arm64Board, NothingSureIsWrong) {
  const Arm64Capture& c = GetParam();
  const std::string data = shared(std::string("captures/") + c.data);
  SKIP_WITHOUT(data);
  const std::string board = std::filesystem::path(data).parent_path().string();
  const Ran ran = run_asof("validate " + data + " --truth " + board + "/truth --kcore-end " + board +
                           "/kcore.end --format json -q");
  const auto json = nlohmann::json::parse(ran.out, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << ran.out << ran.err;
  ASSERT_EQ(json["cpus"].size(), 2U) << ran.out;
  uint64_t right = 0, missing = 0;
  for (const auto& [name, cpu] : json["cpus"].items()) {
    EXPECT_EQ(cpu["wrong_by_confidence"]["certain"], 0) << ran.out;
    EXPECT_EQ(cpu["wrong_by_confidence"]["proved"], 0) << ran.out;
    right += cpu["right"].get<uint64_t>();
    missing += cpu["missing"].get<uint64_t>();
  }
  EXPECT_GE(right, c.right);
  EXPECT_LE(missing, c.missing);
}

INSTANTIATE_TEST_SUITE_P(
    Arm64, Arm64Board,
    ::testing::Values(Arm64Capture{"tiny", "arm64-board-tiny/poke.data", 8'319'229, 6},
                      Arm64Capture{"tiny_return_stack", "arm64-board-tiny/poke-retstack.data", 8'319'229, 6},
                      Arm64Capture{"tiny_cycle_counts", "arm64-board-tiny/poke-cyclecount.data", 8'319'229,
                                   6},
                      Arm64Capture{"tiny_raw", "arm64-board-tiny/poke-rawaux.data", 8'319'229, 6},
                      Arm64Capture{"tiny_nothing_tells", "arm64-board-tiny/nopoke.data", 8'200'000, 100'000},
                      Arm64Capture{"helper", "arm64-board-helper/poke.data", 9'105'337, 224},
                      Arm64Capture{"helper_samples", "arm64-board-helper/nopoke.data", 9'105'337, 224}),
    [](const auto& info) { return info.param.name; });

// A jump table of the sites that were switched, and of a thousand more that never were, in a vmlinux linked
// at another address.
std::vector<uint8_t> vmlinux_of(const std::string& board) {
  constexpr uint64_t kSlide = 0x1230000, kNop = 0xd503201f;
  constexpr unsigned kDecoyEvery = 61, kDecoys = 1000;
  std::map<uint64_t, uint64_t> labels;  // site, target
  std::ifstream pokes(board + "/truth/pokes.jsonl");
  for (std::string line; std::getline(pokes, line);) {
    const auto poke = nlohmann::json::parse(line);
    if (poke["kind"] != "jump_label") continue;
    const uint64_t site = std::stoull(poke["addr"].get<std::string>(), nullptr, 16);
    for (const char* side : {"old", "new"}) {
      const auto word =
          __builtin_bswap32(static_cast<uint32_t>(std::stoul(poke[side].get<std::string>(), nullptr, 16)));
      if (word >> 26U != 5) continue;  // not B
      labels[site] =
          site + static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(word << 6U) >> 4U));
    }
  }
  const size_t true_ones = labels.size();
  const auto kcore = ElfImage::open(board + "/nopoke.data/kcore_dir/kcore");
  EXPECT_TRUE(kcore);
  if (!kcore) return {};
  const ElfSegment& text = (*kcore)->segments()[0];
  unsigned nops = 0;
  for (size_t at = 0x10000; at + 4 <= text.bytes.size() && labels.size() < true_ones + kDecoys; at += 4) {
    uint32_t word = 0;
    std::memcpy(&word, text.bytes.data() + at, 4);
    if (word == kNop && ++nops % kDecoyEvery == 0)
      labels.try_emplace(text.address + at, text.address + at + 0x20);
  }
  EXPECT_GT(true_ones, 50U);
  EXPECT_EQ(labels.size(), true_ones + kDecoys);
  const uint64_t begin = text.address - kSlide, table = begin + 0x1000;
  ByteSink bytes;
  bytes.zeros(0x1000);
  for (const auto& [site, target] : labels) {
    const uint64_t at = begin + bytes.size() + kSlide;
    bytes.u32(static_cast<uint32_t>(site - at));
    bytes.u32(static_cast<uint32_t>(target - at - 4));
    bytes.u64(0);
  }
  return make_executable({.address = begin,
                          .text = {bytes.bytes().begin(), bytes.bytes().end()},
                          .symbols = {{"_stext", begin, 0},
                                      {"__start___jump_table", table, 0},
                                      {"__stop___jump_table", begin + bytes.size(), 0}},
                          .machine = 183});
}

// No record shows any change. With the catalogue the trace shows the state of every site.
TEST(Arm64Catalogue, ChangesWithoutRecordsAreProved) {
  const std::string board = shared("captures/arm64-board-tiny");
  SKIP_WITHOUT(board);
  const TempDir dir;
  write_bytes(dir.path() / "vmlinux", vmlinux_of(board));
  const Ran ran =
      run_asof("validate " + board + "/nopoke.data --catalogue --vmlinux " +
               (dir.path() / "vmlinux").string() + " --truth " + board + "/truth --format json -q");
  const auto json = nlohmann::json::parse(ran.out, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << ran.out << ran.err;
  uint64_t right = 0;
  for (const auto& [name, cpu] : json["cpus"].items()) {
    EXPECT_EQ(cpu["wrong_by_confidence"]["certain"], 0) << ran.out;
    EXPECT_EQ(cpu["wrong_by_confidence"]["proved"], 0) << ran.out;
    right += cpu["right"].get<uint64_t>();
  }
  // Of 8,319,235. Undecided choices lead to 38 gaps.
  EXPECT_GE(right, 8'318'500U) << ran.out;
}

// The binaries of this recording are absent: they are named, and nothing is guessed.
TEST(Boards, RecordingWithoutItsFilesNamesThem) {
  const std::string file = shared("corpus/perfdata-intel_pt-quipper/perf.data.intel_pt-4.14");
  SKIP_WITHOUT(file);
  const Ran ran = run_asof("decode " + file);
  EXPECT_EQ(ran.status, 5);
  EXPECT_TRUE(ran.out.empty());
  EXPECT_NE(
      ran.err.find(
          "E-TEXT-201 /lib64/libc-2.23.so: no file with build-id 93fdba25fc55b597068e81c42f82e7766da372cb"),
      std::string::npos)
      << ran.err;
}

}  // namespace
}  // namespace asof::test
