// `asof branches` read by the tools it is written for, llvm-profgen and BOLT, for a real program whose every
// instruction was counted when it ran (stepped_program.h).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "tests/support/stepped_program.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

using Counts = std::map<std::pair<Addr, Addr>, uint64_t>;

// work(i) for i below 200: rare() 20 times, often() 180 times with a loop.
constexpr const char* kSource = R"(
__attribute__((noinline)) int rare(int x) { return x * 3 + 1; }
__attribute__((noinline)) int often(int x, int n) {
  volatile int s = 0;
  for (int i = 0; i < n; ++i) s += x ^ i;
  return s;
}
__attribute__((noinline)) int work(int x) {
  if (x % 10 == 0) return rare(x) + 1;
  return often(x, x % 5) + 2;
}
void _start(void) {
  volatile int sum = 0;
  for (int i = 0; i < 200; ++i) sum += work(i);
  __asm__ volatile("syscall" ::"a"(60), "D"(0));
  for (;;) {}
}
)";

struct Output {
  int status = -1;
  std::string text;
};
Output run_reader(const TempDir& dir, const std::string& command) {
  const std::string out = dir.path() / "output";
  Output output;
  output.status = std::system(("( " + command + " ) >" + out + " 2>&1 </dev/null").c_str());
  output.text = read_file(out);
  return output;
}

// The tool in the path, or of the newest installed LLVM; empty if there is none. perf2bolt depends on its
// file name: Debian's perf2bolt-19 does not act as perf2bolt.
std::string find_tool(const TempDir& dir, const std::string& name) {
  const Output s =
      run_reader(dir, fmt::format("command -v {0} || ls -v /usr/lib/llvm-*/bin/{0} | tail -1", name));
  const std::string path = s.text.substr(0, s.text.find('\n'));
  return std::filesystem::exists(path) ? path : "";
}

class ProfileReaders : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    program_ = dir_.path() / "program";
    capture_ = dir_.path() / "perf.data";
    std::ofstream(dir_.path() / "program.c") << kSource;
    const Output cc = run_reader(
        dir_, fmt::format("cd {} && gcc -O1 -g -nostdlib -static {} -fno-stack-protector -Wl,--build-id "
                          "-Wl,-q -o program program.c",
                          dir_.path().string(), GetParam()));
    if (cc.status != 0) GTEST_SKIP() << "no C compiler that builds the program: " << cc.text;
    const auto ran = record_stepped(program_, capture_, 60'000);
    if (!ran) GTEST_SKIP() << "tracing a child process is not allowed here";
    ran_ = *ran;
    for (const auto& [ends, count] : ran_.taken)
      taken_[{ends.first - ran_.base, ends.second - ran_.base}] = count;
    const Output names = run_reader(dir_, "nm " + program_.string());
    std::istringstream lines(names.text);
    std::string address, type, name;
    while (lines >> address >> type >> name) functions_[name] = std::stoul(address, nullptr, 16);
    ASSERT_TRUE(functions_.contains("often"));
  }
  std::string branches(const std::string& options) const {
    const std::string out = dir_.path() / "branches";
    const Ran r = run_asof(fmt::format("branches {} {} -o {}", capture_.string(), options, out));
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.err, "");
    return out;
  }
  uint64_t calls_of(const std::string& function) const {
    uint64_t n = 0;
    for (const auto& [ends, count] : taken_) n += ends.second == functions_.at(function) ? count : 0;
    return n;
  }

  TempDir dir_;
  std::filesystem::path program_, capture_;
  SteppedProgram ran_;
  Counts taken_;  // by addresses of the file
  std::map<std::string, Addr> functions_;
};

TEST_P(ProfileReaders, TheTableIsWhatRan) {
  Counts got;
  for (const std::string& line : lines_of(read_file(branches("--format csv")))) {
    unsigned long from = 0, to = 0, count = 0;
    if (std::sscanf(line.c_str(), "%lx,%lx,%lu", &from, &to, &count) == 3)
      got[{from - ran_.base, to - ran_.base}] += count;
  }
  EXPECT_EQ(got, taken_);
  EXPECT_EQ(calls_of("work"), 200U);
  EXPECT_EQ(calls_of("rare"), 20U);
}

// Branches and ranges as llvm-profgen counts them, and the profile it makes by source line.
TEST_P(ProfileReaders, ProfgenCountsEveryBranch) {
  const std::string profgen = find_tool(dir_, "llvm-profgen");
  if (profgen.empty()) GTEST_SKIP() << "llvm-profgen is not installed (Debian package llvm-19)";
  const std::string script = branches("--format perf-script"), out = dir_.path() / "profile";
  const std::string command =
      fmt::format("{} --perfscript={} --binary={} --output={} ", profgen, script, program_.string(), out);
  Output output = run_reader(dir_, command + "--skip-symbolization");
  ASSERT_EQ(output.status, 0) << output.text;
  // Offsets are to the first executable segment of the file.
  const Addr first = functions_.at("rare") & ~Addr{0xfff};
  Counts got;
  for (const std::string& line : lines_of(read_file(out))) {
    unsigned long from = 0, to = 0, count = 0;
    if (std::sscanf(line.c_str(), "%lx->%lx:%lu", &from, &to, &count) == 3)
      got[{first + from, first + to}] = count;
  }
  EXPECT_EQ(got, taken_) << read_file(out);
  output = run_reader(dir_, command + "--format=text");
  ASSERT_EQ(output.status, 0) << output.text;
  const std::string profile = read_file(out);
  EXPECT_NE(profile.find(fmt::format(" work:{}\n", calls_of("work"))), std::string::npos) << profile;
  EXPECT_NE(profile.find(fmt::format(" rare:{}\n", calls_of("rare"))), std::string::npos) << profile;
  EXPECT_NE(profile.find(fmt::format(" often:{}\n", calls_of("often"))), std::string::npos) << profile;
}

// perf2bolt accepts every range as code, and its profile has the true counts; llvm-bolt makes a program from
// it that runs.
TEST_P(ProfileReaders, BoltTakesEveryBranch) {
  const std::string perf2bolt = find_tool(dir_, "perf2bolt"), bolt = find_tool(dir_, "llvm-bolt");
  if (perf2bolt.empty() || bolt.empty()) GTEST_SKIP() << "BOLT is not installed (Debian package bolt-19)";
  const std::string preagg =
      branches(fmt::format("--format bolt-preagg --dso program --base {:x}", ran_.base));
  const std::string out = dir_.path() / "fdata", better = dir_.path() / "better";
  Output output =
      run_reader(dir_, fmt::format("{} {} --pa -p {} -o {}", perf2bolt, program_.string(), preagg, out));
  ASSERT_EQ(output.status, 0) << output.text;
  EXPECT_NE(output.text.find("mismatching disassembled function contents: 0 "), std::string::npos)
      << output.text;
  EXPECT_NE(output.text.find("involving unknown regions: 0 "), std::string::npos) << output.text;
  // "1 FUNCTION OFFSET 1 FUNCTION OFFSET MISPREDICTED COUNT"; code that continues without a branch is among
  // them.
  uint64_t found = 0;
  for (const std::string& line : lines_of(read_file(out))) {
    std::istringstream words(line);
    std::string from, to, kind;
    unsigned long from_at = 0, to_at = 0, mispredicted = 0, count = 0;
    if (!(words >> kind >> from >> std::hex >> from_at >> kind >> to >> to_at >> std::dec >> mispredicted >>
          count))
      continue;
    const auto ran = taken_.find({functions_.at(from) + from_at, functions_.at(to) + to_at});
    if (ran == taken_.end()) {
      EXPECT_EQ(from, to) << line;
      continue;
    }
    ++found;
    EXPECT_EQ(count, ran->second) << line;
    EXPECT_EQ(mispredicted, 0U);
  }
  EXPECT_GE(found, 5U) << read_file(out);
  output = run_reader(dir_, fmt::format("{} {} -o {} -data {} -reorder-blocks=ext-tsp", bolt,
                                        program_.string(), better, out));
  ASSERT_EQ(output.status, 0) << output.text;
  EXPECT_EQ(run_reader(dir_, better).status, 0);
}

// A program's text stays as it is: nothing is left out.
TEST_P(ProfileReaders, UnchangedTextIsAsInItsFile) {
  for (const std::string format : {"--format perf-script", "--format bolt-preagg"}) {
    const std::string all = read_file(branches(format));
    EXPECT_EQ(read_file(branches(format + " --as-in-file")), all);
    EXPECT_GT(all.size(), 100U);
  }
}

// A vmlinux of no-ops is as the kernel that ran where that has no-ops, at the address it was moved from.
TEST(ProfilesOfKernels, PatchedTextIsLeftOut) {
  const TempDir dir;
  const std::string kernel = dir.path() / "vmlinux";
  const std::string make = fmt::format(
      "cd {} && printf '.text\\n.globl _stext, _start\\n_stext: _start: .skip 4096, 0x90\\n' >k.s && as -o "
      "k.o k.s && ld "
      "-Ttext=0xffffffff80400000 -o vmlinux k.o",
      dir.path().string());
  if (run_reader(dir, make).status != 0) GTEST_SKIP() << "binutils are not installed";
  const auto sources = [&](const std::string& options) {
    std::set<uint64_t> user, text;  // where branches are
    const Ran r = run_asof("branches --format bolt-preagg " + options + " -k " + kernel + " " + kDemo);
    EXPECT_EQ(r.status, 0) << r.err;
    for (const std::string& line : lines_of(r.out)) {
      unsigned long from = 0;
      if (std::sscanf(line.c_str(), "B %lx", &from) != 1) continue;
      if (from < 0x500000) user.insert(from);
      if (from >= 0xffffffff81000000 && from < 0xffffffff81001000) text.insert(from);
    }
    return std::pair(user, text);
  };
  const auto all = sources(""), kept = sources("--as-in-file");
  EXPECT_GT(all.second.size(), 20U);
  EXPECT_EQ(kept.first, all.first) << "the program is as in its file";
  EXPECT_TRUE(kept.second.empty()) << "no branch of the kernel is in that file";
  EXPECT_EQ(run_asof("branches --as-in-file " + kDemo).status, 1);
}

INSTANTIATE_TEST_SUITE_P(Program, ProfileReaders, ::testing::Values("-fno-pie -no-pie", "-fPIE -static-pie"),
                         [](const auto& info) {
                           return std::string(info.index == 0 ? "fixed" : "anywhere");
                         });

}  // namespace
}  // namespace asof::test
