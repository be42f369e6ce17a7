// ToPA and single range (SDM vol. 3, "Trace Output"), and what a full output does to the trace unit.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "tests/tools/board/pt_plugin/pt_fixture.h"

namespace asof::pt::test {
namespace {

constexpr uint64_t kTable = 0x1000;
constexpr uint64_t kEnd = 1, kInt = 4, kStop = 16;

class PtOutput : public PtFixture {
 protected:
  void entry(unsigned i, uint64_t value) { std::memcpy(ram.data() + kTable + 8 * i, &value, sizeof value); }
  void topa() {
    output.base = kTable;
    output.mask = 0x7f;
  }
  void write(size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      const auto b = static_cast<uint8_t>(i % 251);
      output.write({&b, 1});
    }
  }
};

TEST_F(PtOutput, RegionsAndNextTable) {
  entry(0, 0x10000);                  // 4 KiB
  entry(1, 0x12000 | 1 << 6 | kInt);  // 8 KiB
  entry(2, kTable | kEnd);
  topa();
  ASSERT_EQ(output.begin(true), Output::State::kRunning);
  write(4096);
  EXPECT_EQ(output.mask, 0xffU) << "entry 1, offset 0";
  EXPECT_FALSE(output.take_interrupt());
  write(8192 + 10);
  EXPECT_TRUE(output.take_interrupt());
  EXPECT_FALSE(output.take_interrupt());
  EXPECT_EQ(output.base, kTable);
  EXPECT_EQ(output.mask, uint64_t{10} << 32 | 0x7f);
  EXPECT_EQ(ram[0x10009], (8192 + 9) % 251);
  EXPECT_EQ(ram[0x12000 + 8191], 8191 % 251);
}

TEST_F(PtOutput, StopKeepsTheOffset) {
  entry(0, 0x10000 | kStop | kInt);
  entry(1, kTable | kEnd);
  topa();
  ASSERT_EQ(output.begin(true), Output::State::kRunning);
  write(4096);
  EXPECT_EQ(output.state(), Output::State::kStopped);
  EXPECT_EQ(output.mask, uint64_t{4096} << 32 | 0x7f);
  EXPECT_TRUE(output.take_interrupt());
  write(5);
  EXPECT_EQ(output.lost(), 5U);
  EXPECT_EQ(output.written(), 4096U);
}

TEST_F(PtOutput, Errors) {
  topa();
  for (const uint64_t bad : {uint64_t{0x11000 | 1 << 6}, uint64_t{0x10000 | 2}, uint64_t{0x7fff0000}}) {
    entry(0, bad);
    EXPECT_EQ(output.begin(true), Output::State::kError) << std::hex << bad;
  }
  output.base = 0x1000, output.mask = 0x1fff;
  EXPECT_EQ(output.begin(false), Output::State::kError) << "not aligned to its size";
  entry(0, 0x11000 | 1 << 6);
  topa();
  enable(kBoth | kToPa, kCode);
  EXPECT_EQ(unit.status() & (kError | kTriggerEn), kError);
  EXPECT_EQ(unit.written(), 0U);
}

TEST_F(PtOutput, SingleRangeIsARing) {
  output.base = 0x10000, output.mask = 0xfff;
  ASSERT_EQ(output.begin(false), Output::State::kRunning);
  write(4096 + 3);
  EXPECT_EQ(output.mask, uint64_t{3} << 32 | 0xfff);
  EXPECT_EQ(ram[0x10002], 4098 % 251);
}

// The trace ends within a packet; Stopped, and nothing more until software clears it.
TEST_F(PtOutput, UnitStopsWithTheOutput) {
  entry(0, 0x10000 | kStop);
  topa();
  enable(kBoth | kToPa, kCode);
  decoder.code(kCode, {0xff, 0xe0});
  while (!unit.losing()) branch(Flow::kJumpIndirect, kCode, 2, kCode);
  EXPECT_EQ(unit.status() & (kStopped | kTriggerEn), kStopped);
  EXPECT_EQ(unit.written(), 4096U);
  branch(Flow::kJumpIndirect, kCode, 2, kCode);
  disable(kCode);
  EXPECT_EQ(unit.written(), 4096U);
  enable(kBoth | kToPa, kCode);
  EXPECT_FALSE(unit.tracing()) << "still stopped";
}

// What is lost because the output has stopped is in no copy.
TEST_F(PtOutput, IsCopied) {
  entry(0, 0x10000);
  entry(1, 0x12000 | kStop);
  topa();
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  output.copy_to(file.get());
  ASSERT_EQ(output.begin(true), Output::State::kRunning);
  write(3 * 4096);
  EXPECT_EQ(output.written(), 2 * 4096U);
  std::vector<uint8_t> copy(3 * 4096);
  std::rewind(file.get());
  copy.resize(std::fread(copy.data(), 1, copy.size(), file.get()));
  ASSERT_EQ(copy.size(), 2 * 4096U);
  EXPECT_TRUE(std::equal(copy.begin(), copy.begin() + 4096, ram.begin() + 0x10000));
  EXPECT_TRUE(std::equal(copy.begin() + 4096, copy.end(), ram.begin() + 0x12000));
}

}  // namespace
}  // namespace asof::pt::test
