// What tracepoints say, by libtraceevent: as perf 6.1 prints it; formats and bytes that are damaged cost their text alone.
#include "tools/script/trace_text.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/bytes.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/skip_without.h"
#include "tests/tools/peer_perf.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

bool has_library() {
  void* const library = ::dlopen("libtraceevent.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) ::dlclose(library);
  return library != nullptr;
}
#define ASOF_SKIP_WITHOUT_TRACEEVENT() \
  if (!has_library()) GTEST_SKIP() << "libtraceevent is not installed (Debian package libtraceevent1)"

// TRACING_DATA with one event of system `sys`.
std::vector<uint8_t> formats(const std::string& format) {
  ByteSink s;
  s.text("\x17\x08\x44tracing");
  s.text(std::string("0.6\0", 4));
  s.u8(0), s.u8(8), s.u32(4096);
  for (const std::string name : {"header_page", "header_event"}) s.text(name), s.u8(0), s.u64(0);
  s.u32(0);
  s.u32(1);
  s.text(std::string("sys\0", 4));
  s.u32(1);
  s.u64(format.size());
  s.text(format);
  s.u32(0), s.u32(0), s.u64(0);
  return std::move(s).take();
}

constexpr std::string_view kFields =
    "name: thing\nID: 77\nformat:\n"
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
    "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
    "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
    "\tfield:u32 number;\toffset:8;\tsize:4;\tsigned:0;\n"
    "\tfield:__data_loc char[] word;\toffset:12;\tsize:4;\tsigned:0;\n\n";

std::vector<uint8_t> bytes_of(uint32_t number, uint32_t where) {
  ByteSink s;
  s.u16(77), s.u8(0), s.u8(0), s.u32(1), s.u32(number), s.u32(where);
  s.text(std::string("ready\0\0\0", 8));
  return std::move(s).take();
}

class TraceTextTest : public ::testing::Test {
 protected:
  std::string text(const std::string& print, std::span<const uint8_t> raw) {
    PerfDataWriter writer;
    writer.add_attr({});
    writer.feature(1, formats(std::string(kFields) + "print fmt: " + print + "\n"));
    writer.write_file(dir_.path() / "perf.data");
    Capture capture;
    capture.perf = *PerfData::open(dir_.path() / "perf.data");
    TraceText words(capture);
    std::string out = words.text(0, raw);
    failed_ = words.failure().has_value();
    return out;
  }
  TempDir dir_;
  bool failed_ = false;
};

TEST_F(TraceTextTest, IsThatOfThePrintFormat) {
  ASOF_SKIP_WITHOUT_TRACEEVENT();
  EXPECT_EQ(text(R"("n=%u word=%s", REC->number, __get_str(word))", bytes_of(42, 6 << 16 | 16)),
            "n=42 word=ready");
  EXPECT_FALSE(failed_);
}

// The process that reads them may die; this one goes on.
TEST_F(TraceTextTest, HostileBytesCostTheirTextAlone) {
  ASOF_SKIP_WITHOUT_TRACEEVENT();
  for (const uint32_t where : {0xffffffffU, 0x7fff0010U, 0x00100000U, 0xffff0001U}) {
    text(R"("n=%u word=%s", REC->number, __get_str(word))", bytes_of(1, where));
    text(R"("n=%u word=%s", REC->number, __get_str(word))", std::vector<uint8_t>{77});
  }
  for (const char* print :
       {"\"%s\", REC->number", "((((", "\"%s%s%s%s\"", "\"%*ph\", REC->number, REC->number", ""})
    text(print, bytes_of(0x41414141, 6 << 16 | 16));
  EXPECT_EQ(text(R"("n=%u", REC->number)", bytes_of(42, 0)), "n=42");
  EXPECT_FALSE(failed_);
}

// Probes that a recording of arm64 has beside its trace.
TEST_F(TraceTextTest, OfAPerfRecordingIsThatOfPerf) {
  ASOF_SKIP_WITHOUT_TRACEEVENT();
  ASOF_SKIP_WITHOUT_PERF();
  const std::string input = ASOF_SHARED_DIR "/captures/arm64-board-helper/poke.data";
  SKIP_WITHOUT(input);
  for (const char* options : {"", "-F trace", "-F comm,event,trace,time"}) {
    const std::string all = "--no-itrace";
    const std::string out = dir_.path() / "out";
    [[maybe_unused]] const int status =
        std::system(fmt::format("perf script {} {} -i {} >{} 2>/dev/null", all, options, input, out).c_str());
    const auto perf = ::asof::test::lines_of(read_file(out));
    EXPECT_EQ(perf.size(), 388U) << options;
    EXPECT_EQ(::asof::test::lines_of(run_asof(fmt::format("script -q {} {} {}", all, options, input)).out),
              perf)
        << options;
  }
}

}  // namespace
}  // namespace asof::test
