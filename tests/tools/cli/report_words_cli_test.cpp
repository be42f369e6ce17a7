// What `asof report` says, and how: of a ring's start, of missing bytes, of decoding that was stopped, on a terminal.
#include <fmt/format.h>

#include <regex>
#include <tuple>

#include "tests/support/demo_capture.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/pt_writer.h"
#include "tests/support/skip_without.h"
#include "tests/tools/on_terminal.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

constexpr Addr kKernelPlace = 0xffffffff81000000;

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// A recording whose trace is `before` bytes of no sync point, and then a place without bytes.
std::string recording(const TempDir& dir, size_t before, Addr place) {
  PtWriter pt;
  PsbPlus plus;
  plus.tsc = 1'000;
  plus.ip = place;
  pt.psb_plus(plus);
  pt.tip(place + 0x20);
  pt.flush();
  std::vector<uint8_t> trace(before, 0x06);  // TNT
  trace.insert(trace.end(), pt.bytes().begin(), pt.bytes().end());
  PerfDataWriter w;
  w.add_attr({.type = 8,
              .config = pt_config_bit::kPt | pt_config_bit::kTsc | pt_config_bit::kBranch,
              .ids = {1},
              .name = "intel_pt//"});
  w.add_attr({.flags = attr_flag::kSampleIdAll | attr_flag::kTextPoke | attr_flag::kMmap2, .ids = {3}});
  w.arch("x86_64");
  w.nr_cpus(1);
  PtInfoSpec info;
  info.time.cap_zero = true;
  w.auxtrace_info(info);
  w.time_conv(info.time);
  w.auxtrace({.offset = 0, .reference = 1, .cpu = 0}, trace);
  w.write_file(dir / "perf.data");
  return dir / "perf.data";
}

TEST(ReportWords, ARingsStartIsNoError) {
  const TempDir dir;
  const std::string ring = recording(dir, 100, kKernelPlace);
  const Ran report = run_asof("report " + ring);
  EXPECT_TRUE(
      has(report.out,
          "1 trace begins in the middle, as a ring buffer leaves it: 100 bytes before the first sync point "
          "are not decoded\n"))
      << report.out;
  EXPECT_FALSE(has(report.out, "E-DATA-002")) << report.out;
  EXPECT_TRUE(has(run_asof("digest " + ring).err, "begins in the middle"));
  const std::string told = run_asof("decode --color always " + ring).err;
  EXPECT_TRUE(has(told, "asof: cpu 0: the trace begins in the middle, as a ring buffer leaves it; 100 bytes"))
      << told;
  EXPECT_TRUE(has(run_asof("report --format jsonl " + ring).out,
                  "{\"type\":\"ring_start\",\"count\":1,\"bytes\":100}\n"));
  EXPECT_FALSE(has(run_asof("report " + recording(dir, 0, kKernelPlace)).out, "in the middle"));
}

TEST(ReportWords, RemediesFitWhoseBytesAreMissing) {
  const TempDir dir, without_files;
  const auto remedy = [](const std::string& report) {
    const size_t cause = report.find("  E-TEXT-001 ");
    EXPECT_NE(cause, std::string::npos) << report;
    return cause == std::string::npos ? "" : report.substr(report.find("remedy: ", cause), 60);
  };
  const std::string kernel = remedy(run_asof("report " + recording(dir, 0, kKernelPlace)).out);
  EXPECT_TRUE(kernel.starts_with("remedy: record with perf record --kcore; give --vmlinux")) << kernel;
  // The kernel's text is there, the program's is not.
  const DemoCapture demo = make_demo();
  write_capture(*demo.machine, demo.spec, without_files.path(), "");
  std::filesystem::remove_all(without_files / "symfs");
  const std::string user =
      remedy(run_asof(fmt::format("report {}/perf.data", without_files.path().string())).out);
  EXPECT_TRUE(user.starts_with("remedy: give the recorded programs' files: --symfs")) << user;
}

// Workers are ahead of what is delivered; their instructions are no part of what was decoded up to there.
TEST(ReportWords, SharesOfWhatWasStoppedAreOfWhatIsListed) {
  const std::string capture = ASOF_SHARED_DIR "/captures/pt-cc1/bundle.json";
  SKIP_WITHOUT(capture);
  const TempDir dir;
  const std::string out = dir / "out";
  std::string report;
  // Until something was decoded; where all of it was, this is a report like any other.
  for (double seconds = 0.4; report.find("hottest") == std::string::npos && seconds < 60; seconds *= 2) {
    std::ignore = std::system(
        fmt::format("timeout -s INT {} {} report -j2 {} >{} 2>/dev/null", seconds, ASOF_BINARY, capture, out)
            .c_str());
    report = read_file(out);
  }
  const std::regex row(R"( +([0-9.]+) % +([0-9 ]+[0-9]) .*)"),
      heading(R"(hottest functions of ([0-9 ]+) instructions, with some that were decoded ahead:)");
  const auto number = [](std::string text) {
    std::erase(text, ' ');
    return std::stoull(text);
  };
  double shares = 0;
  uint64_t listed = 0, told = 0;
  for (const std::string& line : lines_of(report)) {
    std::smatch m;
    if (std::regex_match(line, m, heading)) told = number(m[1]);
    if (!std::regex_match(line, m, row)) continue;
    shares += std::stod(m[1]);
    listed += number(m[2]);
  }
  EXPECT_NE(listed, 0U) << report;
  EXPECT_DOUBLE_EQ(shares, 100) << report;
  EXPECT_TRUE(told == 0 || told == listed) << report;
}

// Code that no symbol names is listed by whose it is.
TEST(ReportWords, CodeWithoutSymbolsIsToldApartByFile) {
  const TempDir dir;
  DemoCapture demo = make_demo();
  demo.spec.symbols.clear();
  for (UserProgram& p : demo.spec.programs) p.elf.symbols.clear();
  write_capture(*demo.machine, demo.spec, dir.path(), "no symbols");
  const Ran r = run_asof(fmt::format("report --top 0 {0}/perf.data --symfs {0}/symfs", dir.path().string()));
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, " no symbol (/opt/demo/worker)\n")) << r.out;
  EXPECT_TRUE(has(r.out, " no symbol ([kernel])\n")) << r.out;
  // In lines as well, as in perf, and a filter by the file finds it.
  const auto decoded = [&](const std::string& options) {
    return run_asof(fmt::format("decode {1} {0}/perf.data --symfs {0}/symfs", dir.path().string(), options));
  };
  const Ran lines = decoded("--dsos worker -F ip,sym,dso");
  EXPECT_FALSE(has(lines.err, "E-FILE-091")) << lines.err;
  EXPECT_GT(lines_of(lines.out).size(), 10'000U);
  for (const std::string& line : lines_of(lines.out))
    ASSERT_TRUE(line.ends_with(" [unknown] (/opt/demo/worker)")) << line;
  EXPECT_TRUE(has(decoded("--dsos worker --itrace=b --format jsonl").out, "\"to_dso\":\"/opt/demo/worker\""));
  EXPECT_TRUE(has(decoded("--dsos nope").err, "no file of code is 'nope'"));
}

// But for the rows of numbers.
TEST(ReportWords, ATerminalGetsLinesOfItsWidth) {
  ASOF_SKIP_WITHOUT_TERMINAL();
  size_t words = 0;
  for (const std::string& line :
       on_terminal("report " ASOF_TEST_DATA "/demo/perf.data --symfs " ASOF_TEST_DATA "/demo/symfs")) {
    if (has(line, " % ") && !has(line, "decoded ")) continue;
    // What is longer is one word: a path, the name of a program.
    EXPECT_TRUE(line.size() <= 60 || has(line, "/") || has(line, "bpf_prog_")) << line;
    ++words;
  }
  EXPECT_GT(words, 20U);
}

}  // namespace
}  // namespace asof::test
