// Core cycles as events: where the packets that they belong to are used up.
#include "tests/arch/x86/flow_fixture.h"

namespace asof::x86::test {
namespace {

class FlowCycles : public ::testing::Test {
 protected:
  // NOP, JNE back to it: two instructions for each TNT bit.
  void SetUp() override {
    s.code(A, {0x90, 0x75, 0xfd, 0x90, 0x90}).start(A);
    s.options.cycles = true;
  }
  void bits(int n, bool last = true) {
    for (int i = 1; i < n; ++i) s.pt.tnt(true);
    s.pt.tnt(last);
  }
  // "2 instructions: 7", "4 instructions: ?" (not all were counted).
  std::vector<std::string> counts() {
    stop_at(s, A + 4);
    std::vector<std::string> out;
    for (const auto& e : s.decode().of(EventKind::kCycles))
      out.push_back(fmt::format("{} instructions: {}", e.at, e.b == 0 ? std::to_string(e.a) : "?"));
    return out;
  }
  FlowFixture s;
};

TEST_F(FlowCycles, BelongToThePacketBehindThem) {
  s.pt.cyc(10);
  bits(2);
  s.pt.cyc(7);
  bits(1);
  s.pt.cyc(3);
  bits(3, false);
  // What was counted before the first is not known.
  EXPECT_EQ(counts(),
            (std::vector<std::string>{"4 instructions: ?", "6 instructions: 7", "12 instructions: 3"}));
}

// Branches of a TNT packet that is not written yet may have retired when an MTC was.
TEST_F(FlowCycles, BeforeTimingPacketsAreAddedToTheNextCount) {
  s.pt.cyc(10);
  bits(2);
  s.pt.cyc(5);
  s.pt.mtc(1);
  s.pt.cyc(2);
  bits(1);
  bits(1, false);
  EXPECT_EQ(counts(), (std::vector<std::string>{"4 instructions: ?", "8 instructions: 7"}));
}

TEST_F(FlowCycles, AreNotKnownAfterATsc) {
  s.pt.cyc(10);
  bits(1);
  s.pt.cyc(5);
  bits(1);
  s.pt.tsc(5000);
  s.pt.cyc(4);
  bits(1);
  s.pt.cyc(6);
  bits(1, false);
  EXPECT_EQ(counts(), (std::vector<std::string>{"2 instructions: ?", "4 instructions: 5", "6 instructions: ?",
                                                "8 instructions: 6"}));
}

TEST_F(FlowCycles, OnlyOnRequest) {
  s.options.cycles = false;
  s.pt.cyc(10);
  bits(2, false);
  EXPECT_TRUE(counts().empty());
}

}  // namespace
}  // namespace asof::x86::test
