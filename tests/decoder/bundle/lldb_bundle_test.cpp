#include <gtest/gtest.h>

#include "tests/decoder/capture_test_util.h"
#include "tests/support/decode_capture.h"
#include "tests/support/skip_without.h"

namespace asof {
namespace {

using namespace test;

std::string corpus(const std::string& file) {
  return std::string(ASOF_SHARED_DIR) + "/corpus/lldb-intelpt-" + file;
}

std::string reason_of(const std::string& file) {
  auto capture = open_capture(corpus(file), closed_options());
  EXPECT_FALSE(capture.has_value()) << file;
  return capture ? "" : capture.error().reason;
}

TEST(LldbBundle, OneThread) {
  SKIP_WITHOUT(corpus("trace/trace.json"));
  auto capture = open_capture(corpus("trace/trace.json"), closed_options());
  ASSERT_TRUE(capture.has_value()) << capture.error().reason;
  EXPECT_EQ(capture->kind, "lldb bundle");
  EXPECT_EQ(capture->x86.cpu.family, 6);
  EXPECT_EQ(capture->x86.cpu.model, 79);
  EXPECT_TRUE(capture->x86.cpu.intel);
  ASSERT_EQ(capture->streams.size(), 1U);
  EXPECT_EQ(capture->streams[0].tid, 3842849);
  const ContextChange* context = capture->streams[0].context_at(0);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(context->pid, 1234);
  // movl $0, -4(%rbp) at the first address that LLVM's test asserts.
  EXPECT_EQ(bytes_at(*capture->text, context->space, 0x400511, 3, 0).size(), 3U);
  EXPECT_EQ(contents(*capture->text, context->space, 0x500000, 1, 0), (std::vector<Bytes>{{}}));
  auto main = capture->symbols.find(context->space, 0x400511, 0);
  ASSERT_TRUE(main.has_value());
  EXPECT_EQ(main->symbol->name, "main");
  EXPECT_TRUE(capture->notices.empty());
}

TEST(LldbBundle, SharedLibrariesAreSlid) {
  SKIP_WITHOUT(corpus("trace-multi-file/multi-file-no-ld.json"));
  auto capture = open_capture(corpus("trace-multi-file/multi-file-no-ld.json"), closed_options());
  ASSERT_TRUE(capture.has_value()) << capture.error().reason;
  const Space space = capture->streams.at(0).context_at(0)->space;
  for (Addr a : {0x40066fUL, 0x400540UL, 0x7ffff7bd96e0UL, 0x7ffff79d7690UL}) {
    EXPECT_EQ(bytes_at(*capture->text, space, a, 1, 0).size(), 1U) << std::hex << a;
  }
  EXPECT_EQ(contents(*capture->text, space, 0x7ffff7df1950, 1, 0),
            (std::vector<Bytes>{{}}));  // ld.so is missing
  auto foo = capture->symbols.find(space, 0x7ffff7bd96e0, 0);
  ASSERT_TRUE(foo.has_value());
  EXPECT_EQ(foo->symbol->dso, "libfoo.so");
}

TEST(LldbBundle, TwoThreadsAndMovedImage) {
  SKIP_WITHOUT(corpus("trace/trace_2threads.json"));
  auto two = open_capture(corpus("trace/trace_2threads.json"), closed_options());
  ASSERT_TRUE(two.has_value());
  EXPECT_EQ(two->streams.size(), 2U);
  auto moved = open_capture(corpus("trace/trace_bad_image.json"), closed_options());
  ASSERT_TRUE(moved.has_value());  // opens: only the code is elsewhere
  const Space space = moved->streams.at(0).context_at(0)->space;
  EXPECT_EQ(contents(*moved->text, space, 0x400511, 1, 0), (std::vector<Bytes>{{}}));
}

TEST(LldbBundle, BadOnesSayWhatIsWrong) {
  SKIP_WITHOUT(corpus("trace/trace_bad.json"));
  EXPECT_EQ(reason_of("trace/trace_bad.json"), "processes[0]: expected an object, found number");
  EXPECT_NE(reason_of("trace/trace_bad2.json").find("cpuInfo.family: expected a number"), std::string::npos);
  EXPECT_EQ(reason_of("trace/trace_bad3.json"), "processes[1].pid: missing");
  EXPECT_EQ(reason_of("trace/trace_bad4.json"), "cpuInfo.family: missing");
  EXPECT_EQ(reason_of("trace/trace_bad5.json"), "processes[1].pid: missing");
  EXPECT_NE(reason_of("trace/trace_wrong_cpu.json").find("cpuInfo.family: 2123123 is too big"),
            std::string::npos);
}

class WrittenLldbBundle : public ::testing::Test {
 protected:
  Result<Capture> open(const std::string& manifest, const CaptureOptions& options = closed_options()) {
    write_text(dir_ / "trace.json", manifest);
    write_bytes(dir_ / "cpu.trace", Bytes(8, 0));
    ExecutableSpec program;
    program.text = {0x90, 0xc3};
    program.build_id = Bytes(20, 0xab);
    program.symbols = {{"start", 0x401000, 2}};
    write_bytes(dir_ / "program", make_executable(program));
    return open_capture((dir_ / "trace.json").string(), options);
  }
  void ring(
      const std::vector<std::array<uint64_t, 6>>& switches) {  // out, other pid, tid, own pid, tid, time
    ByteSink sink;
    for (const auto& s : switches) {
      sink.u32(15), sink.u16(s[0] != 0 ? 1U << 13U : 0), sink.u16(32);
      for (size_t i = 1; i < 5; ++i) sink.u32(static_cast<uint32_t>(s[i]));
      sink.u64(s[5]);
    }
    write_bytes(dir_ / "ring", sink.bytes());
  }
  static std::string manifest(const std::string& uuid, const std::string& more = "") {
    return R"({"type": "intel-pt", "cpuInfo": {"vendor": "GenuineIntel", "family": 6, "model": 142, "stepping": 10},
      "processes": [{"pid": 7, "threads": [], "modules": [{"systemPath": "/bin/program", "file": "program",
      "loadAddress": "0x401000", "uuid": ")" +
           uuid + R"("}]}],
      "cpus": [{"id": 3, "iptTrace": "cpu.trace", "contextSwitchTrace": "ring"}])" +
           more + "}";
  }
  static constexpr const char* kTime =
      R"(, "tscPerfZeroConversion": {"timeMult": 2, "timeShift": 1, "timeZero": "100"})";
  static std::string id() { return "ABABABAB-ABAB-ABAB-ABAB-ABABABABABAB-ABABABAB"; }
  TempDir dir_;
};

TEST_F(WrittenLldbBundle, PerCpuWithSwitches) {
  ring({{1, 7, 8, 0, 0, 1000}, {0, 0, 0, 7, 8, 1001}, {1, 99, 99, 7, 8, 2000}, {0, 7, 8, 99, 99, 2001}});
  auto capture = open(manifest(id(), kTime));
  ASSERT_TRUE(capture.has_value()) << capture.error().reason;
  ASSERT_EQ(capture->streams.size(), 1U);
  const Stream& stream = capture->streams[0];
  EXPECT_EQ(stream.name, "cpu3");
  EXPECT_EQ(stream.context_at(500)->tid, 0);
  EXPECT_EQ(stream.context_at(1500)->tid, 8);
  EXPECT_EQ(stream.context_at(1500)->pid, 7);
  EXPECT_EQ(stream.context_at(3000)->space, kNoSpace);  // a process that is not in the bundle
  EXPECT_EQ(bytes_at(*capture->text, stream.context_at(1500)->space, 0x401000, 2, 1500), (Bytes{0x90, 0xc3}));
  ASSERT_TRUE(capture->x86.time.has_value());
  EXPECT_EQ(capture->x86.time->zero, 100U);
}

TEST_F(WrittenLldbBundle, ForeignFileIsNotUsedUnlessForced) {
  ring({});
  const std::string other = "CDABABAB-ABAB-ABAB-ABAB-ABABABABABAB-ABABABAB";
  auto capture = open(manifest(other, kTime));
  ASSERT_TRUE(capture.has_value());
  const Notice* notice = find_notice(*capture, Code::kOtherBuildId);
  ASSERT_NE(notice, nullptr);
  EXPECT_NE(notice->reason.find("abababababababababababababababababababab"), std::string::npos);
  EXPECT_NE(notice->reason.find("cdababababababababababababababababababab"), std::string::npos);
  EXPECT_TRUE(capture->symbols.all().empty());
  CaptureOptions forced = closed_options();
  forced.force = true;
  auto used = open(manifest(other, kTime), forced);
  ASSERT_TRUE(used.has_value());
  EXPECT_NE(find_notice(*used, Code::kOtherBuildIdUsed), nullptr);
  EXPECT_EQ(used->symbols.all().size(), 1U);
}

TEST_F(WrittenLldbBundle, DamagedRingIsReportedWithItsOffset) {
  ring({{1, 7, 8, 0, 0, 1000}});
  std::ofstream(dir_ / "ring", std::ios::app) << "\x01\x02\x03";
  auto capture = open(manifest(id(), kTime));
  ASSERT_TRUE(capture.has_value());
  const Notice* notice = find_notice(*capture, Code::kBadContextSwitches);
  ASSERT_NE(notice, nullptr);
  EXPECT_EQ(notice->offset, 32U);
}

TEST_F(WrittenLldbBundle, RulesOfTheSchema) {
  ring({});
  auto no_time = open(manifest(id()));
  ASSERT_FALSE(no_time.has_value());
  EXPECT_NE(no_time.error().reason.find("tscPerfZeroConversion"), std::string::npos);
  auto kernel = open(manifest(id(), std::string(kTime) + R"(, "kernel": {"file": "program"})"));
  ASSERT_FALSE(kernel.has_value());
  EXPECT_NE(kernel.error().reason.find("\"processes\" must be empty"), std::string::npos);
  auto type = open(R"({"type": "intel-bts"})");
  ASSERT_FALSE(type.has_value());
  EXPECT_NE(type.error().reason.find("intel-bts"), std::string::npos);
}

TEST_F(WrittenLldbBundle, KernelTrace) {
  ring({});
  auto capture = open(
      R"({"type": "intel-pt", "cpuInfo": {"vendor": "GenuineIntel", "family": 6, "model": 142, "stepping": 10},
      "cpus": [{"id": 0, "iptTrace": "cpu.trace", "contextSwitchTrace": "ring"}], "kernel": {"file": "program"})" +
      std::string(kTime) + "}");
  ASSERT_TRUE(capture.has_value()) << capture.error().reason;
  EXPECT_EQ(bytes_at(*capture->text, kKernelSpace, 0xffffffff81000000, 2, 0).size(), 2U);
}

// A "kernel" at user addresses, as in LLDB's own tests: the program's trace, as that of a CPU.
TEST(LldbBundle, KernelAtAUserAddress) {
  SKIP_WITHOUT(corpus("trace/3842849.trace"));
  const TempDir dir;
  write_text(dir / "ring", "");
  write_text(
      dir / "trace.json",
      R"({"type": "intel-pt", "cpuInfo": {"vendor": "GenuineIntel", "family": 6, "model": 79, "stepping": 1},
      "tscPerfZeroConversion": {"timeMult": 1, "timeShift": 0, "timeZero": "0"},
      "cpus": [{"id": 0, "iptTrace": ")" +
          corpus("trace/3842849.trace") +
          R"(", "contextSwitchTrace": "ring"}], "kernel": {"loadAddress": "0x400000", "file": ")" +
          corpus("trace/a.out") + R"("}})");
  const auto decoded = decode_capture((dir / "trace.json").string(), closed_options());
  ASSERT_TRUE(decoded.has_value()) << decoded.error().reason;
  std::ifstream list(corpus("trace/ips.txt"));
  std::vector<Addr> want, got;
  for (std::string line; std::getline(list, line);) want.push_back(std::stoull(line, nullptr, 16));
  for (const DecodedInstruction& i : decoded->streams.at(0).instructions) {
    got.push_back(i.ip);
    EXPECT_EQ(i.confidence, Confidence::kAmbiguous) << std::hex << i.ip;  // a file instead of memory
  }
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace asof
