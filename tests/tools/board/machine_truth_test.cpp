// From a plugin's log to the truth of one recording: which records its trace can show, and which kernel text changed.
#include "tools/board/machine/machine_truth.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "arch/arch.h"
#include "tests/support/bytes.h"
#include "tests/support/elf_writer.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/board/synced_trace.h"
#include "tools/board/machine/known_bytes.h"
#include "tools/validate/truth.h"

namespace asof::machine {
namespace {

using test::ByteSink;
using test::synced_trace;
using test::TempDir;

constexpr Addr kCode = 0xffffffff81000000, kUser = 0x401000;

// A log folder as a plugin writes it.
class LogFolder {
 public:
  uint32_t code(Addr address, const std::vector<std::vector<uint8_t>>& insns) {
    code_.u64(address), code_.u32(number_), code_.u32(static_cast<uint32_t>(insns.size()));
    for (const auto& i : insns) code_.u8(static_cast<uint8_t>(i.size()));
    for (const auto& i : insns) code_.raw(i);
    return number_++;
  }
  void record(LogRecord r, int cpu = 0) {
    ByteSink& to = cpu == 0 ? cpu0_ : cpu1_;
    to.u64(r.address), to.u32(r.code), to.u16(r.first), to.u16(r.count);
    to.u32(r.output), to.u32(r.flags), to.u64(r.clock);
  }
  void mark(Mark kind, uint32_t output, uint64_t time, int cpu) {
    record({0, kLogMark, static_cast<uint16_t>(kind), 0, output, 0, time}, cpu);
  }
  void sync(uint32_t output, uint64_t time) {
    record({time, kLogMark, static_cast<uint16_t>(Mark::kSync), 0, output, 0, time});
  }
  const std::filesystem::path& write() {
    test::write_bytes(dir_ / "code", code_.bytes());
    test::write_bytes(dir_ / "cpu0.log", cpu0_.bytes());
    test::write_bytes(dir_ / "cpu1.log", cpu1_.bytes());
    return dir_.path();
  }
  std::filesystem::path to() const { return dir_.path(); }

 private:
  TempDir dir_;
  ByteSink code_, cpu0_, cpu1_;
  uint32_t number_ = 0;
};

const std::vector<uint8_t> kNop{0x90}, kNop5{0x0f, 0x1f, 0x44, 0, 0}, kJump5{0xe9, 0x10, 0, 0, 0}, kRet{0xc3};

const auto kAllKnown = [](Addr, std::span<const uint8_t>) { return true; };

std::vector<TruthRun> runs_of(const std::filesystem::path& folder, TruthId id = {.cpu = 0}) {
  auto reader = TruthReader::open(truth_file(folder.string(), id));
  std::vector<TruthRun> runs;
  if (!reader) return runs;
  TruthRun run;
  while (reader->next(run)) runs.push_back(run);
  EXPECT_FALSE(reader->error());
  return runs;
}

TEST(MachineTruth, HasWhatTheWindowCanShow) {
  LogFolder log;
  const uint32_t block = log.code(kCode, {kNop, kNop5, kRet}), user = log.code(kUser, {kNop, kRet});
  log.record({kCode, block, 0, 3, 90, kLogStart, 5});  // before the first sync point of the window
  log.sync(100, 10);
  log.record({kCode + 1, block, 1, 2, 130, kLogException, 11});
  log.record({0x7f0000001000, user, 0, 2, 150, kLogUser, 12});  // ran elsewhere than where it was translated
  log.record({kCode, block, 0, 1, 150, kLogNoBranch | kLogAwaits, 13});
  log.record({kCode, block, 0, 3, 151, 0, 14});  // known one byte too late
  log.record({kCode, block, 0, 3, 152, kLogLost, 15});
  const auto folder = log.write();
  const CodeTable code(read_file(folder / "code"));
  TimeConversion clock;
  clock.zero = 1000;
  const CpuTruth t =
      write_cpu_truth(folder, 0, code, {{100, 150}}, clock, folder / "cpu0.blocks.zst", kAllKnown);
  EXPECT_EQ(t.instructions, 5U);
  EXPECT_EQ(t.user_instructions, 2U);
  EXPECT_EQ(t.outside, 6U);
  EXPECT_EQ(t.lost, 3U);
  const auto runs = runs_of(folder);
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0].ip, kCode + 1);
  EXPECT_EQ(runs[0].bytes, 6U);
  EXPECT_EQ(runs[0].count, 2U);
  EXPECT_EQ(runs[0].flags, TruthRun::kByException | TruthRun::kTraceStart) << "nothing before it is known";
  EXPECT_EQ(runs[0].time, 1011);
  EXPECT_EQ(runs[1].ip, 0x7f0000001000U);
  EXPECT_EQ(runs[2].flags, TruthRun::kEndsEarly);
  uint64_t hash = 0;
  for (const Addr ip : {kCode + 1, kCode + 6, Addr{0x7f0000001000}, Addr{0x7f0000001001}, kCode})
    hash = hash * kHashFactor + ip;
  EXPECT_EQ(t.hash, hash);
}

// A thread that runs on CPU 1, then CPU 0, then CPU 1 again, where another thread was traced in between.
TEST(MachineTruth, FollowsAThread) {
  LogFolder log;
  const uint32_t block = log.code(kCode, {kNop, kNop5, kRet});
  const auto traced = [&](int cpu, uint32_t from, uint32_t to, uint64_t time, uint16_t instructions) {
    log.mark(Mark::kOn, from + 10, time, cpu);
    log.record({kCode, block, 0, instructions, to, kLogStart, time + 1}, cpu);
    log.mark(Mark::kOff, to, time + 2, cpu);
  };
  traced(1, 0, 40, 100, 1);
  traced(1, 40, 90, 110, 3);
  traced(0, 0, 50, 120, 2);
  traced(1, 90, 120, 130, 3);
  log.mark(Mark::kOn, 130, 140, 1);
  log.record({kCode, block, 0, 2, 135, 0, 141}, 1);
  log.record({kCode, block, 0, 3, 160, 0, 142}, 1);  // in what the recording does not have
  const auto folder = log.write();
  const CodeTable code(read_file(folder / "code"));
  const ThreadTrace thread{77, {{100, 40}, {120, 50}, {125, 10}, {{}, 10}, {130, 30}, {140, 20}}};
  const ThreadTruth t = write_thread_truth(folder, {0, 1}, code, thread, {}, folder, kAllKnown);
  EXPECT_EQ(t.unplaced, 2U);
  EXPECT_EQ(t.moves, 2U);
  EXPECT_EQ(t.truth.outside, 3U);
  std::vector<uint32_t> counts;
  for (const TruthRun& run : runs_of(folder, {.tid = 77})) counts.push_back(run.count);
  EXPECT_EQ(counts, (std::vector<uint32_t>{1, 2, 3, 2}));
}

TEST(MachineTruth, SaysWhichCodeHasNoBytes) {
  LogFolder log;
  const uint32_t block = log.code(kCode, {kNop, kRet});
  log.sync(0, 1);
  for (const Addr a : {kCode, kUser, kUser}) log.record({a, block, 0, 2, 1, 0, 1});
  const auto folder = log.write();
  int asked = 0;
  const CpuTruth t = write_cpu_truth(folder, 0, CodeTable(read_file(folder / "code")), {{0, 10}}, {},
                                     folder / "cpu0.blocks.zst", [&](Addr a, std::span<const uint8_t> bytes) {
                                       EXPECT_EQ(bytes.size(), 2U);
                                       ++asked;
                                       return a == kCode;
                                     });
  EXPECT_EQ(t.late, 4U);
  EXPECT_EQ(asked, 2);
  const auto runs = runs_of(folder);
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0].flags & TruthRun::kLateText, 0U);
  EXPECT_EQ(runs[2].flags & TruthRun::kLateText, TruthRun::kLateText);
}

TEST(MachineTruth, PositionsGoOnPast32Bits) {
  LogFolder log;
  const uint32_t block = log.code(kCode, {kNop});
  for (uint64_t position = 0x70000000; position < 0x130000000; position += 0x10000000) {
    log.sync(static_cast<uint32_t>(position), 1);
    log.record({kCode, block, 0, 1, static_cast<uint32_t>(position + 8), 0, 1});
  }
  const auto folder = log.write();
  const CpuTruth t = write_cpu_truth(folder, 0, CodeTable(read_file(folder / "code")),
                                     {{0x100000000, 0x100000010}, {0x120000000, 0x120000010}}, {},
                                     folder / "cpu0.blocks.zst", kAllKnown);
  EXPECT_EQ(t.instructions, 2U);
  EXPECT_EQ(t.outside, 10U);
}

TEST(MachineTruth, DamagedLogsAreNamed) {
  LogFolder log;
  log.code(kCode, {kNop, kRet});
  log.sync(0, 1);
  log.record({kCode, 0, 1, 2, 10, 0, 1});  // the block has one more instruction only
  const auto folder = log.write();
  const CodeTable code(read_file(folder / "code"));
  EXPECT_THROW(write_cpu_truth(folder, 0, code, {{0, 100}}, {}, folder / "cpu0.blocks.zst", kAllKnown),
               std::runtime_error);
  auto bytes = read_file(folder / "code");
  bytes.pop_back();
  EXPECT_THROW(CodeTable{bytes}, std::runtime_error);
  EXPECT_THROW(CpuLog(folder / "cpu7.log"), std::runtime_error);
}

// A module's mapping is no proof: the copy of kcore has the bytes or nobody has.
TEST(MachineTruth, CodeLoadedLaterOverAModulesMappingHasNoBytes) {
  constexpr Addr kModule = 0xffffffffc0430000;
  const TempDir dir;
  test::PerfDataWriter w;
  w.add_attr({.type = 8, .ids = {1}, .name = "intel_pt//"});
  w.arch("x86_64");
  w.mmap({.pid = -1, .addr = kModule, .len = 0x3000, .filename = "[dummy]", .kernel = true});
  test::DirectoryParts parts;
  parts.kcore = test::make_core({{kCode, {0x90, 0xc3}}, {kModule, {0x90, 0x90, 0xc3}}});
  w.write_directory(dir / "perf.data", parts);
  const auto data = PerfData::open((dir / "perf.data").string());
  ASSERT_TRUE(data.has_value());
  const KnownBytes known(**data);
  EXPECT_TRUE(known.has(kModule, std::vector<uint8_t>{0x90, 0x90}));
  EXPECT_FALSE(known.has(kModule + 1, std::vector<uint8_t>{0xc3})) << "what was loaded there later";
  EXPECT_FALSE(known.has(kModule + 0x1010, std::vector<uint8_t>{0xc3})) << "behind the copy";
  EXPECT_TRUE(known.has(kCode, std::vector<uint8_t>{0x90, 0xc3}));
  EXPECT_FALSE(known.has(kCode + 1, std::vector<uint8_t>{0x90}));
}

// --switch-output may leave a file without trace, which is no failure of the machine.
TEST(MachineTruth, ARecordingWithoutTraceIsToldFromOneThatIsNotFound) {
  LogFolder log;
  log.code(kCode, {kNop, kRet});
  log.sync(0, 1000);
  const auto folder = log.write();
  const auto status_for = [&](const std::vector<uint8_t>& trace) {
    test::PerfDataWriter w;
    w.add_attr({.type = 8, .ids = {1}, .name = "intel_pt//"});
    w.arch("x86_64");
    w.auxtrace_info(test::PtInfoSpec{});
    if (!trace.empty()) w.auxtrace({}, trace);
    w.write_file(folder / "perf.data");
    const std::string command =
        fmt::format("'{}' '{}' '{}' '{}' >/dev/null", ASOF_MACHINE_TRUTH, folder.string(),
                    (folder / "perf.data").string(), (folder / "truth").string());
    return WEXITSTATUS(std::system(command.c_str()));
  };
  EXPECT_EQ(status_for({}), 4);
  EXPECT_FALSE(std::filesystem::exists(folder / "truth"));
  EXPECT_EQ(status_for(synced_trace(100, {10})), 3) << "another machine's";
  EXPECT_EQ(status_for(synced_trace(100, {0})), 0);
}

TEST(MachinePokes, AreWhereTranslatedTextDiffers) {
  LogFolder log;
  const uint32_t before = log.code(kCode, {kNop, kNop5, kRet});
  log.code(kUser, {kNop, kRet});
  log.code(kUser, {kRet});  // user code: another process
  const uint32_t after = log.code(kCode + 1, {kJump5});
  log.code(kCode + 1, {kNop5});  // never traced
  log.record({kCode, before, 0, 3, 1, 0, 5});
  log.record({kCode + 1, after, 0, 1, 2, 0, 9});
  log.record({kCode + 1, after, 0, 1, 3, 0, 12});
  const auto folder = log.write();
  TimeConversion clock;
  clock.zero = 1000;
  const auto pokes = find_pokes(folder, {0}, CodeTable(read_file(folder / "code")), clock);
  ASSERT_EQ(pokes.size(), 2U);
  EXPECT_EQ(pokes[0].address, kCode + 1);
  EXPECT_EQ(pokes[0].before, (std::vector<uint8_t>{0x0f, 0x1f, 0x44}));
  EXPECT_EQ(pokes[0].after, (std::vector<uint8_t>{0xe9, 0x10, 0}));
  EXPECT_EQ(pokes[0].time, 1009);
  EXPECT_EQ(pokes[0].cpu, 0);
  EXPECT_EQ(pokes[1].after, pokes[0].before) << "the zeros of the operand did not change";
  EXPECT_EQ(pokes[1].time, kTimeMin) << "the new bytes were not traced";
}

}  // namespace
}  // namespace asof::machine
