// The recording's own samples, as perf 6.1 prints them, line by line: the demo capture with samples of several kinds of
// events beside its trace.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>

#include "tests/support/bytes.h"
#include "tests/support/demo_capture.h"
#include "tests/tools/peer_perf.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kIp = 1, kTid = 2, kTime = 4, kAddr = 8, kCallchain = 32, kCpu = 128, kPeriod = 256,
                   kBranchStack = 2048, kUserRegs = 4096, kWeight = 1 << 14, kIdentifier = 1 << 16,
                   kIntrRegs = 1 << 18, kPhysAddr = 1 << 19, kPageSizes = 3 << 22;
constexpr uint64_t kAlways = kIdentifier | kIp | kTid | kTime | kCpu;
constexpr uint64_t kKernelMark = static_cast<uint64_t>(-128), kUserMark = static_cast<uint64_t>(-512);
constexpr uint16_t kKernel = 1, kUser = 2;

struct Sampled {
  size_t attr;
  uint64_t ip, time;
  int32_t pid;
  uint32_t cpu;
};

// One recording for all tests.
class OwnSamples : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<TempDir>();
    unchanged_ = std::make_unique<TempDir>();
    write(dir_->path(), {});
    write(unchanged_->path(), {.changes = false});
  }
  static void write(const fs::path& dir, const DemoOptions& options) {
    DemoCapture demo = make_demo(options);
    write_capture(*demo.machine, demo.spec, dir, "");
    PerfDataWriter writer = make_perf_data(*demo.machine, demo.spec);
    for (const KernelSymbol& s : demo.spec.symbols) {
      if (s.name == "vfs_read") kernel_ = s.address + 4;
    }
    add_events(writer);
    writer.write_directory(dir / "perf.data", make_kcore_dir(demo.spec));
    set_masks(dir / "perf.data" / "data");
    sort_as_one(dir / "perf.data" / "data");
  }
  // The samples are behind all rounds, and perf takes what is in a round before what is behind it: without rounds it sorts
  // all of the file.
  static void sort_as_one(const fs::path& file) {
    constexpr uint32_t kFinishedRound = 68, kAuxtrace = 71,
                       kFinishedInit = 82;  // the first and the last: 8 bytes
    std::vector<uint8_t> bytes = read_bytes(file);
    const auto value_at = [&]<class T>(size_t at, T v) {
      std::memcpy(&v, &bytes[at], sizeof v);
      return v;
    };
    uint64_t at = value_at(40, uint64_t{}), end = at + value_at(48, uint64_t{});
    while (at < end) {
      const uint32_t type = value_at(at, uint32_t{});
      if (type == kFinishedRound) std::memcpy(&bytes[at], &kFinishedInit, sizeof kFinishedInit);
      const uint64_t trace = type == kAuxtrace ? value_at(at + 8, uint64_t{}) : 0;
      at += value_at(at + 6, uint16_t{}) + trace;
    }
    write_bytes(file, bytes);
  }
  // What the writer does not know of an attribute: which branches and registers samples of the second event have.
  static void set_masks(const fs::path& file) {
    std::vector<uint8_t> bytes = read_bytes(file);
    const auto u64_at = [&](size_t at) {
      uint64_t v = 0;
      std::memcpy(&v, &bytes[at], sizeof v);
      return v;
    };
    constexpr size_t kAttrsAt = 24, kEntry = 128 + 16;
    constexpr size_t kNumber = 3;  // behind those of the trace and of records, and cycles
    const size_t at_event = u64_at(kAttrsAt) + kNumber * kEntry;
    const std::pair<size_t, uint64_t> masks[] = {{72, 8}, {80, 0x101}, {96, 1U << 8U}};
    for (const auto& [at, mask] : masks) std::memcpy(&bytes[at_event + at], &mask, sizeof mask);
    write_bytes(file, bytes);
  }
  static void TearDownTestSuite() {
    dir_.reset();
    unchanged_.reset();
  }

  static size_t event(PerfDataWriter& writer, uint32_t type, uint64_t config, uint64_t sample_type,
                      std::string name, uint64_t flags = 0) {
    AttrSpec attr{.type = type,
                  .config = config,
                  .sample_period = 4000,
                  .sample_type = sample_type,
                  .flags = attr_flag::kSampleIdAll | flags,
                  .ids = {next_id_++},
                  .name = std::move(name)};
    return writer.add_attr(std::move(attr));
  }

  // `rest`: the fields behind the period.
  static void sample(PerfDataWriter& writer, const Sampled& v, uint64_t type, uint64_t id,
                     const std::function<void(ByteSink&)>& rest = {}) {
    ByteSink s;
    s.u64(id);
    if ((type & kIp) != 0) s.u64(v.ip);
    s.u32(static_cast<uint32_t>(v.pid)), s.u32(static_cast<uint32_t>(v.pid));
    s.u64(v.time);
    if ((type & kAddr) != 0) s.u64(v.ip - 16);
    if ((type & kCpu) != 0) s.u32(v.cpu), s.u32(0);
    if ((type & kPeriod) != 0) s.u64(12345);
    if (rest) rest(s);
    writer.record(9, v.ip >> 63U != 0 ? kKernel : kUser, s.bytes());
  }

  static void add_events(PerfDataWriter& writer);

  static std::string input(const TempDir& dir = *dir_) {
    return fmt::format("{0}/perf.data --symfs {0}/symfs", dir.path().string());
  }
  static std::vector<std::string> perf(const std::string& options, const std::string& from = input()) {
    const TempDir out;
    const std::string file = out.path() / "out";
    EXPECT_EQ(std::system(fmt::format("perf script -i {} {} >{} 2>/dev/null", from, options, file).c_str()),
              0)
        << options;
    return lines_of(read_file(file));
  }
  static std::vector<std::string> own(const std::string& options, const std::string& from = input()) {
    const Ran r = run_asof(fmt::format("script -q {} {}", options, from));
    EXPECT_EQ(r.status, 0) << options << r.err;
    return lines_of(r.out);
  }

  static inline std::unique_ptr<TempDir> dir_, unchanged_;  // of changed text perf knows one state
  static inline uint64_t next_id_ = 0, kernel_ = 0;
};

void OwnSamples::add_events(PerfDataWriter& writer) {
  constexpr uint64_t kUserPlace = 0x401012, kPlace = 6'000'020'000;
  next_id_ = 9000;
  const uint64_t chained = kAlways | kPeriod | kCallchain;
  event(writer, 0, 0, chained, "cycles:ppp");
  event(writer, 1, 0, kAlways | kUserRegs | kIntrRegs | kBranchStack, "cpu-clock");
  event(writer, 4, 0x1cd, kAlways | kAddr | kPeriod | kWeight | kPhysAddr | kPageSizes, "cpu/mem-loads/");
  event(writer, 5, 0, kAlways, "mem:0x401000:x");
  event(writer, 1, 2, kAlways | kAddr, "page-faults");
  writer.event_desc();
  uint64_t time = kPlace;
  for (const uint64_t ip : {kernel_, kUserPlace, kernel_ + 0x1000000, uint64_t{0x7f0000001000}}) {
    for (const uint32_t cpu : {0U, 1U}) {
      const Sampled at{0, ip, time += 300, cpu == 1 ? 1201 : 1202, cpu};
      sample(writer, at, chained, 9000, [&](ByteSink& s) {
        const std::vector<uint64_t> chain =
            ip >> 63U != 0 ? std::vector<uint64_t>{kKernelMark, ip, ip + 32, kUserMark, kUserPlace, 0x123}
                           : std::vector<uint64_t>{kUserMark, ip, kUserPlace};
        s.u64(chain.size());
        for (const uint64_t a : chain) s.u64(a);
      });
      sample(writer, {4, ip, time += 300, at.pid, cpu}, kAlways | kAddr, 9004);
      sample(writer, {2, ip, time += 300, at.pid, cpu}, kAlways | kAddr | kPeriod, 9002,
             [&](ByteSink& s) { s.u64(77), s.u64(0xabc000), s.u64(4096), s.u64(2 << 20); });
      sample(writer, {3, ip, time += 300, at.pid, cpu}, kAlways, 9003);
      sample(writer, {1, ip, time += 300, at.pid, cpu}, kAlways, 9001, [&](ByteSink& s) {
        s.u64(2);
        s.u64(ip), s.u64(ip + 64), s.u64(2 | 7 << 4);
        s.u64(kUserPlace), s.u64(ip), s.u64(1 | 4 | 8);
        s.u64(2), s.u64(0x11), s.u64(0x22);
        s.u64(2), s.u64(0x33);
      });
    }
  }
}

TEST_F(OwnSamples, AreThoseOfPerfByteForByte) {
  ASOF_SKIP_WITHOUT_PERF();
  const auto plain = own("--no-itrace");
  EXPECT_GT(plain.size(), 60U);
  for (const char* options : {"",
                              "--ns",
                              "--reltime",
                              "--deltatime",
                              "-C 1",
                              "--tid 1201",
                              "-G",
                              "-S vfs_read",
                              "--max-stack 2",
                              "--time 6.000022,6.000024",
                              "-F comm,tid,time,event,ip,sym",
                              "-F +flags",
                              "-F +misc",
                              "-F +addr",
                              "-F hw:ip,sym -F sw:time",
                              "-F raw:comm,phys_addr,data_page_size,code_page_size,weight,time",
                              "-F pid,tid,cpu,period,ip",
                              "-F +brstack",
                              "-F +brstacksym",
                              "-F sw:iregs,uregs,ip",
                              "-F ip,dso -G",
                              "-F trace:time -F break:time,ip",

                              "-c worker -F comm,time,ip",
                              "--stop-bt vfs_read",
                              "--dsos worker"})
    EXPECT_EQ(own(fmt::format("--no-itrace {}", options)), perf(fmt::format("--no-itrace {}", options)))
        << options;
}

// Without ptwrite packets there is nothing else.
TEST_F(OwnSamples, AreBetweenWhatIsMadeOfTheTrace) {
  ASOF_SKIP_WITHOUT_PERF();
  EXPECT_EQ(own("--itrace=w"), perf("--itrace=w"));
  const auto all = own("--itrace=b -F time,event,ip"),
             flow = own("--itrace=b -F time,event,ip -F hw:time,event,ip");
  std::string before;
  size_t samples = 0;
  for (const std::string& line : all) {
    if (line.empty() || line[0] == '\t') continue;
    EXPECT_GE(line.substr(0, 14), before);
    before = line.substr(0, 14);
    samples += line.find("branches:") == std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(samples, 40U);
}

// Where perf can follow the flow, they are perf's. It gives most branches of a TNT packet the time before the timing packet
// in front of it: of a few samples it takes one branch more.
TEST_F(OwnSamples, GetCallersAndBranchesAsInPerf) {
  ASOF_SKIP_WITHOUT_PERF();
  for (const char* options : {"--itrace=wG -F sw:comm,time,ip,sym -F hw:comm,time,ip,sym",
                              "--itrace=wG4 -F sw:comm,time,ip,sym,dso -F hw:comm,time,ip,sym,dso",
                              "--itrace=wL -F sw:comm,time,ip,brstack -F hw:comm,time",
                              "--itrace=wL5 -F sw:comm,time,ip,brstacksym -F hw:comm,time"}) {
    const auto ours = own(options, input(*unchanged_)), perfs = perf(options, input(*unchanged_));
    ASSERT_EQ(ours.size(), perfs.size()) << options;
    size_t other = 0;
    for (size_t i = 0; i < ours.size(); ++i) other += ours[i] != perfs[i] ? 1 : 0;
    const bool branches = std::string_view(options).starts_with("--itrace=wL");
    EXPECT_LE(other, branches ? 2U : 3U) << options;
    EXPECT_GE(ours.size(), 40U);
  }
}

// Of the flow up to the timing packet before the sample: where perf, which estimates times between them, is some branches
// ahead, its callers can be others.
TEST_F(OwnSamples, GetCallersAndBranchesOfTheTrace) {
  std::set<std::string> branches;
  for (const std::string& line : own("--itrace=b -F hw:ip,addr -F sw:ip")) {
    const size_t arrow = line.find("=>");
    if (arrow == std::string::npos) continue;
    const auto hex = [](std::string text) {
      text.erase(0, text.find_first_not_of(' '));
      return "0x" + text.substr(0, text.find(' '));
    };
    branches.insert(hex(line.substr(0, arrow)) + "/" + hex(line.substr(arrow + 2)));
  }
  size_t chains = 0, entries = 0;
  for (const std::string& line : own("--itrace=wG8 -F sw:comm,ip,sym -F hw:comm"))
    chains += line.ends_with(" _start") ? 1 : 0;
  EXPECT_GT(chains, 8U);
  for (const std::string& line : own("--itrace=wL4 -F sw:ip,brstack -F hw:comm")) {
    if (line.find("/P/") != std::string::npos) continue;  // recorded
    for (size_t at = line.find(" 0x"); at != std::string::npos; at = line.find(" 0x", at + 1)) {
      const std::string ends = line.substr(at + 1, line.find('/', line.find('/', at) + 1) - at - 1);
      EXPECT_TRUE(branches.contains(ends)) << line;
      ++entries;
    }
  }
  EXPECT_GT(entries, 8U);
}

TEST_F(OwnSamples, FieldsThatTheyLackAreRefused) {
  const Ran r = run_asof(fmt::format("script --no-itrace -F break:phys_addr {}", input()));
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("samples of 'mem:0x401000:x' have no phys_addr"), std::string::npos) << r.err;
  EXPECT_NE(run_asof(fmt::format("script --no-itrace --itrace=b {}", input())).status, 0);
}

}  // namespace
}  // namespace asof::test
