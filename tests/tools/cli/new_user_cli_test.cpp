// What a new user is told of recordings that were made in another way than they think, and in which words.
#include <fmt/format.h>

#include <regex>

#include "tests/support/perf_data_writer.h"
#include "tests/support/pt_writer.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

constexpr uint64_t kText = 0xffffffff81000000;
constexpr uint64_t kUsual = pt_config_bit::kPt | pt_config_bit::kTsc | pt_config_bit::kBranch;
constexpr uint64_t kNoTnt = 1ULL << 55U;  // arch/x86/events/intel/pt.c

struct NewUser : ::testing::Test {
  // A recording of these bytes of trace; empty: of none.
  std::string recording(uint64_t config, const std::vector<uint8_t>& trace) const {
    PerfDataWriter w;
    w.add_attr({.type = 8, .config = config, .ids = {1}, .name = "intel_pt//"});
    w.add_attr({.flags = attr_flag::kSampleIdAll | attr_flag::kTextPoke | attr_flag::kMmap2, .ids = {3}});
    w.arch("x86_64");
    w.nr_cpus(1);
    PtInfoSpec info;
    info.time.cap_zero = true;
    if (trace.empty()) {
      w.mmap2({.pid = 7, .tid = 7, .addr = 0x7f0000000000, .len = 0x1000, .filename = "/usr/lib/libnone.so"});
    } else {
      w.auxtrace_info(info);
      w.time_conv(info.time);
      w.auxtrace({.offset = 0, .reference = 1, .cpu = 0}, trace);
    }
    w.write_file(dir / "perf.data");
    return dir / "perf.data";
  }
  static std::vector<uint8_t> trace(bool branches) {
    PtWriter pt;
    PsbPlus plus;
    plus.tsc = 1'000;
    if (branches) plus.ip = kText;
    pt.psb_plus(plus);
    if (branches) pt.tip(kText + 0x20);
    pt.flush();
    return pt.bytes();
  }
  TempDir dir;
};

TEST_F(NewUser, WithoutTraceThatIsSaidAndNothingElse) {
  const std::string file = recording(kUsual, {});
  for (const char* verb : {"decode", "report", "stacks", "branches", "validate", "coverage"}) {
    const Ran ran = run_asof(std::string(verb) + " " + file);
    EXPECT_EQ(ran.status, 2) << verb << ran.err;
    const auto lines = lines_of(ran.err);
    ASSERT_FALSE(lines.empty()) << verb;
    EXPECT_NE(lines[0].find("there is no trace in this recording"), std::string::npos) << verb << ran.err;
    EXPECT_EQ(ran.err.find("libnone"), std::string::npos) << "files do not matter: " << verb << ran.err;
  }
}

TEST_F(NewUser, WithoutBranchPacketsTheRecordingIsToBlame) {
  const std::string no_tnt = recording(kUsual | kNoTnt, trace(true));
  const Ran ran = run_asof("decode " + no_tnt);
  EXPECT_NE(ran.err.find("E-DATA-011"), std::string::npos) << ran.err;
  EXPECT_EQ(ran.err.find("--kcore"), std::string::npos) << ran.err;
  const Ran none = run_asof("decode " + recording(kUsual & ~pt_config_bit::kBranch, trace(false)));
  EXPECT_NE(none.err.find("E-DATA-012"), std::string::npos) << none.err;
  EXPECT_EQ(none.err.find("100.00 %"), std::string::npos) << none.err;
}

// One thing is not many, sizes have the unit that fits, and who is unknown has no number.
TEST(PlainWords, CountsSizesAndUnknownThreads) {
  const std::regex one(
      R"((^|[^0-9,.])1 (gaps|errors|slices|pokes|streams|times|functions|records|instructions|branches|programs|tracks|sites|places|samples|blocks|changes|segments|events|warnings)\b)"),
      large(R"([0-9]{4,}(\.[0-9]+)? (KiB|MiB|us|ms)\b)"), nobody(R"([ :]-1([ /:]|$))");
  const TempDir dir;
  for (const char* capture : {"demo", "demo-arm64"}) {
    const std::string input =
        fmt::format("{0}/{1}/perf.data --symfs {0}/demo/symfs", ASOF_TEST_DATA, capture);
    for (const std::string& verb :
         {std::string("report"), std::string("doctor"), std::string("validate"),
          std::string("decode -F comm,pid,tid"), "timeline -o " + (dir.path() / "t.json").string(),
          std::string("text --diff start end"), std::string("stacks --weight calls")}) {
      const Ran ran = run_asof(verb + " " + input);
      for (const std::string& line : lines_of(ran.out + ran.err)) {
        for (const std::regex* wrong : {&one, &large, &nobody})
          EXPECT_FALSE(std::regex_search(line, *wrong)) << verb << ": " << line;
      }
    }
  }
}

}  // namespace
}  // namespace asof::test
