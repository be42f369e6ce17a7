// Event Trace: where interrupts are off, (D), and where they are switched, (t), as `perf script` has them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <regex>

#include "tests/support/elf_writer.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/pt_writer.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/peer_perf.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

constexpr uint64_t kText = 0x401000;
constexpr int32_t kPid = 4711;
constexpr bool kOn = true, kOff = false;

// CLI and STI, far returns that switch interrupts, an interrupt, a stop of the trace, and a transaction that aborts. Addresses by what is there.
constexpr uint64_t kCli = kText + 1, kSti = kText + 4, kFar = kText + 0x10, kQuiet = kText + 0x20,
                   kInterrupted = kText + 0x22, kHandler = kText + 0x30, kAgain = kText + 0x40,
                   kTransaction = kText + 0x60, kAbort = kText + 0x70;

std::vector<uint8_t> program() {
  std::vector<uint8_t> text(0x80, 0x90);
  const auto put = [&](uint64_t at, std::initializer_list<uint8_t> bytes) {
    std::ranges::copy(bytes, text.begin() + static_cast<long>(at - kText));
  };
  put(kCli, {0xfa});
  put(kSti, {0xfb, 0xff, 0xe0});  // STI; JMP RAX
  put(kFar + 1, {0x48, 0xcf});    // IRETQ
  put(kHandler + 1, {0x48, 0xcf});
  put(kAgain + 1, {0xff, 0xe0});
  put(kAbort + 1, {0xff, 0xe0});
  return text;
}

void start(PtWriter& w, bool interrupts) {
  w.psb();
  w.tsc(1'000'000);
  w.mode_exec(ExecMode::k64, interrupts);
  w.fup(kText, IpForm::k48);
  w.psbend();
}

void write_trace(PtWriter& w) {
  start(w, kOn);
  w.mode_exec(ExecMode::k64, kOff);
  w.fup(kCli);
  w.mode_exec(ExecMode::k64, kOn);
  w.fup(kSti);
  w.tip(kFar);
  w.cfe(2, 0, true);
  w.fup(kFar + 1);
  w.mode_exec(ExecMode::k64, kOff);
  w.tip(kQuiet);
  w.cfe(1, 32, false);
  w.fup(kInterrupted);
  w.mode_exec(ExecMode::k64, kOn);
  w.tip(kHandler);
  w.mode_exec(ExecMode::k64, kOff);
  w.tip_pgd();
  w.mode_exec(ExecMode::k64, kOn);
  w.tip_pge(kAgain);
  w.tip(kFar);
  w.mode_exec(ExecMode::k64, kOn);  // no change
  w.tip(kAgain);
  w.tip(kFar);
  w.mode_exec(ExecMode::k64, kOff);
  w.tip(kAgain);
  w.tip(kTransaction);
  w.mode_tsx(true, false);
  w.fup(kTransaction + 1);
  w.mode_tsx(false, true);
  w.fup(kTransaction + 3);
  w.tip(kAbort);
  w.tip(kFar);
  w.tip_pgd();
}

class InterruptFlag : public ::testing::Test {
 protected:
  void record(bool asked_for, void (*write)(PtWriter&) = write_trace) {
    namespace bit = pt_config_bit;
    const std::string program_path = dir_.path() / "program";
    const auto elf = make_executable({.text = program(), .symbols = {{"main", kText, 0x80}}});
    std::ofstream(program_path, std::ios::binary)
        .write(reinterpret_cast<const char*>(elf.data()), static_cast<std::streamsize>(elf.size()));
    PtWriter trace;
    write(trace);
    PerfDataWriter w;
    AttrSpec pt;
    pt.type = 8;
    pt.config = bit::kPt | bit::kTsc | bit::kBranch | (asked_for ? bit::kEvent : 0);
    pt.flags = attr_flag::kSampleIdAll | attr_flag::kExcludeKernel | attr_flag::kExcludeHv |
               attr_flag::kMmap | attr_flag::kComm | attr_flag::kMmap2;
    pt.sample_type |= sample::kIp;
    pt.name = "intel_pt//u";
    pt.ids = {101};
    w.add_attr(pt);
    w.arch("x86_64");
    w.nr_cpus(1);
    w.cpu_id("GenuineIntel,6,151,2");
    w.event_desc();
    const std::pair<uint32_t, std::string> pmus[] = {{1, "software"}, {8, "intel_pt"}};
    w.pmu_mappings(pmus);
    w.time_conv({});
    w.auxtrace_info({.event_trace = true});
    w.comm(kPid, kPid, "program", false);
    w.mmap2(
        {.pid = kPid, .tid = kPid, .addr = kText, .len = 0x1000, .pgoff = 0x1000, .filename = program_path});
    w.finished_init();
    const Trailer first{.time = 1'000'000, .pid = kPid, .tid = kPid, .has_id = true};
    const auto& bytes = trace.bytes();
    w.auxtrace({.reference = 2'000'000}, bytes);
    w.itrace_start(kPid, kPid, first);
    w.aux(0, bytes.size(), 0, first);
    w.finished_round();
    w.write_file(path());
  }
  std::string path() const { return dir_.path() / "perf.data"; }
  std::vector<std::string> own(const std::string& options) {
    const Ran r = run_asof(fmt::format("script -q {} {}", options, path()));
    EXPECT_EQ(r.status, 0) << r.err;
    return lines_of(r.out);
  }
  std::vector<std::string> perfs(const std::string& options) {
    const std::string out = dir_.path() / "out";
    EXPECT_EQ(std::system(fmt::format("perf script -i {} {} >{} 2>/dev/null", path(), options, out).c_str()),
              0);
    return lines_of(read_file(out));
  }
  const TempDir dir_;
};

TEST_F(InterruptFlag, LinesAreThoseOfPerf) {
  ASOF_SKIP_WITHOUT_PERF();
  record(true);
  for (const char* options :
       {"--itrace=bI -F +flags", "--itrace=b -F +flags", "--itrace=i1ibI -F +flags", "--itrace=I"}) {
    const auto perf = perfs(options);
    ASSERT_GT(perf.size(), 5U) << options;
    EXPECT_EQ(own(options), perf) << options;
  }
}

TEST_F(InterruptFlag, DecodePrintsItsChanges) {
  record(true);
  const auto changes = [&] {
    const Ran r = run_asof("decode -q --itrace=I -F ip " + path());
    EXPECT_EQ(r.status, 0) << r.err;
    std::vector<std::string> out;
    for (const std::string& line : lines_of(r.out)) {
      if (line.find("exec-mode") != std::string::npos)
        out.push_back(std::regex_replace(line, std::regex(" +"), " "));
    }
    return out;
  };
  const auto got = changes();
  ASSERT_GE(got.size(), 6U);
  const std::vector<std::string> first = {
      " exec-mode: 64 bits, interrupts off 401001", " exec-mode: 64 bits, interrupts on 401004",
      " exec-mode: 64 bits, interrupts off 401020", " exec-mode: 64 bits, interrupts on 401030"};
  EXPECT_EQ(std::vector(got.begin(), got.begin() + 4), first);
  const Ran r = run_asof("decode -q --itrace=I --format jsonl " + path());
  EXPECT_NE(r.out.find("\"type\":\"exec-mode\""), std::string::npos) << r.out;
  record(false);
  EXPECT_EQ(changes(), std::vector<std::string>{});
}

// MODE.Exec says it only where the recording asked for it.
TEST_F(InterruptFlag, NothingIsSaidWhereItWasNotTraced) {
  record(false);
  for (const std::string& line : own("--itrace=i1ibI -F +flags")) {
    EXPECT_EQ(line.find("iflag"), std::string::npos) << line;
    EXPECT_FALSE(std::regex_search(line, std::regex("\\((D|t|Dt)\\)|:   (D|t|Dt) "))) << line;
  }
}

// It is not known again until the trace says it, and what the first branch changed is not.
TEST_F(InterruptFlag, NothingIsKnownBehindALoss) {
  record(true, [](PtWriter& w) {
    start(w, kOff);
    w.ovf();
    w.fup(kAgain);
    w.tip(kFar);
    w.mode_exec(ExecMode::k64, kOff);
    w.tip(kAgain);
    w.tip_pgd();
  });
  std::vector<std::string> flags;
  for (const std::string& line : own("--itrace=i1ib -F event,flags,ip")) {
    const size_t colon = line.find(":   ");
    flags.push_back(std::regex_replace(line.substr(colon + 4), std::regex(" +"), " "));
  }
  EXPECT_EQ(flags,
            (std::vector<std::string>{" 401040", "jmp 401041", "jmp 401041", " 401010", "iret 401011",
                                      "iret 401011", "D 401040", "tr end (D) 401041", "tr end (D) 401041"}));
}

}  // namespace
}  // namespace asof::test
