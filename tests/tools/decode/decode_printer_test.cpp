// The task of a printed instruction: that of the switch records at its time, but for user code never the idle
// task or a kernel thread. The record of a switch can lie between a timing packet and the code after it.
#include "tools/decode/decode_printer.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "textstore/builder.h"

namespace asof {
namespace {

constexpr Space kProcess = 5, kOther = 6;
constexpr Addr kUser = 0x401000, kKernel = 0xffffffff81000000;

// Steps of one instruction, printed as "tid time ip".
class Printed {
 public:
  Printed() {
    capture_.machine = "x86_64";
    capture_.symbols.finish();
    capture_.tasks.finish();
    capture_.text.emplace(Builder().build());
    stream_.cpu = 0;
    stream_.contexts = {{100, 0, 0, kNoSpace}, {200, 7, 7, kProcess}, {300, 0, 0, kNoSpace},
                        {400, 9, 9, kOther},   {500, 0, 0, kNoSpace}, {600, 7, 8, kProcess},
                        {700, 2, 2, kNoSpace}};
  }
  // The thread that is printed.
  int tid(Space space, Time time) {
    const Block b = nop_in(space);
    DecodeFormat format;
    format.fields = kFieldTid;
    const DecodeJob job(capture_, format, {});
    TimedText out;
    DecodePrinter(job).print(step_at(b, time), stream_, out);
    return out.text.find('?') != std::string::npos ? -1 : std::stoi(out.text);
  }
  // The file of user code at each of these times, when one printer is asked for all.
  std::vector<std::string> files(const std::vector<Time>& times) {
    const Block b = nop_in(kProcess);
    DecodeFormat format;
    format.fields = kFieldDso;
    const DecodeJob job(capture_, format, {});
    DecodePrinter printer(job);
    std::vector<std::string> out;
    for (const Time t : times) {
      TimedText text;
      printer.print(step_at(b, t), stream_, text);
      const size_t begin = text.text.find('(') + 1;
      out.push_back(text.text.substr(begin, text.text.find(')') - begin));
    }
    return out;
  }
  Stream& stream() { return stream_; }
  Capture& capture() { return capture_; }

 private:
  static constexpr uint8_t kNop[] = {0x90}, kOne[] = {1};
  static Block nop_in(Space space) {
    Block b;
    b.ip = space == kKernelSpace ? kKernel : kUser;
    b.space = space;
    b.size = b.count = 1;
    b.bytes = kNop;
    b.lengths = kOne;
    return b;
  }
  static Chunk step_at(const Block& block, Time time) {
    Step s;
    s.block = &block;
    s.count = 1;
    s.time = time;
    Chunk chunk;
    chunk.steps.push_back(s);
    return chunk;
  }
  Capture capture_;
  Stream stream_;
};

TEST(DecodePrinterTask, UserCodeIsNeverTheIdleTasks) {
  Printed p;
  EXPECT_EQ(p.tid(kProcess, 250), 7);
  EXPECT_EQ(p.tid(kProcess, 190), 7) << "the switch comes next";
  EXPECT_EQ(p.tid(kProcess, 310), 7) << "the switch was just before";
  EXPECT_EQ(p.tid(kProcess, 390), 7) << "a switch to another process comes next";
  EXPECT_EQ(p.tid(kProcess, 590), 8);
  EXPECT_EQ(p.tid(kOther, 350), 9);
  EXPECT_EQ(p.tid(kProcess, 710), 8) << "nor of a kernel thread";
}

TEST(DecodePrinterTask, KernelCodeGoesByTheTime) {
  Printed p;
  EXPECT_EQ(p.tid(kKernelSpace, 190), 0);
  EXPECT_EQ(p.tid(kKernelSpace, 710), 2);
  EXPECT_EQ(p.tid(kKernelSpace, 210), 7);
}

// Processes can share text, so one block can be of both: the time decides between them.
TEST(DecodePrinterTask, BetweenProcessesTheTimeDecides) {
  Printed p;
  EXPECT_EQ(p.tid(kOther, 250), 7);
}

TEST(DecodePrinterTask, OfAProcessThatIsNeverThereItIsUnknown) {
  Printed p;
  p.stream().contexts = {{100, 0, 0, kNoSpace}};
  EXPECT_EQ(p.tid(kProcess, 150), -1);
  p.stream().contexts.clear();
  p.stream().cpu = -1;
  p.stream().tid = 33;
  EXPECT_EQ(p.tid(kProcess, 150), 33);
}

// What is kept of a block is not for all times: else it would depend on the worker what its file is.
TEST(DecodePrinterFile, IsTheOneOfTheTime) {
  Printed p;
  p.capture().code.files = {{"", "/bin/one", ""}, {"", "/bin/two", ""}};
  CodeMapping one;
  one.space = kProcess;
  one.range = {kUser, kUser + 0x1000};
  one.from = 300;
  one.until = 499;
  CodeMapping two = one;
  two.from = 600;
  two.until = kTimeMax;
  two.file = 1;
  p.capture().code.mappings = {one, two};
  EXPECT_EQ(
      p.files({250, 300, 499, 500, 610, 299}),
      (std::vector<std::string>{"[unknown]", "/bin/one", "/bin/one", "[unknown]", "/bin/two", "[unknown]"}));
}

}  // namespace
}  // namespace asof
