// Where trace goes on after the AUX buffer was full: followed from where it was switched on, where that is certain.
#include "tests/arch/x86/flow_fixture.h"
#include "tests/arch/x86/segments_cover.h"

namespace asof::x86::test {
namespace {

// Trace that the kernel stopped because the AUX buffer was full, and what follows in the stream.
struct Stopped : FlowFixture {
  Bytes before, after;
  Code loss = Code::kAuxFull;
  Stopped() {
    with_clock().code(A, {0x90, 0xff, 0xe0}).code(A + 0x100, {0x90, 0x90, 0xff, 0xe0});
    start(A, 1000);
    pt.tip(A);
    before = pt.bytes();
  }
  Decoded decoded(const PtWriter& w) {
    after = w.bytes();
    stream.pieces.clear();
    for (const Bytes* part : {&before, &after}) {
      StreamPiece p;
      p.offset = stream.end();
      p.bytes = *part;
      p.discontinuity = part == &after;
      stream.pieces.push_back(p);
    }
    StreamLoss l;
    l.offset = before.size();
    l.time = 1500;
    l.code = loss;
    stream.losses = {l};
    Decoded d = run_stream(options);
    expect_all_covered(stream, segments);
    return d;
  }
  static PtWriter restart(IpForm form) {
    PtWriter w;
    w.tsc(2000);
    w.cbr(10);
    w.mode_exec(ExecMode::k64);
    w.tip_pge(A + 0x100, form);
    w.fup(A + 0x101);
    w.tip_pgd();
    return w;
  }
};

TEST(Sync, TraceIsFollowedFromWhereItWasSwitchedOnAgain) {
  Stopped s;
  const Decoded d = s.decoded(Stopped::restart(IpForm::kSext48));
  EXPECT_EQ(d.ips(), (std::vector<Addr>{A, A + 1, A, A + 1, A + 0x100}));
  EXPECT_EQ(d.ran[4].confidence, Confidence::kCertain);
  EXPECT_EQ(d.ran[4].time, 2000);
  EXPECT_EQ(d.gap_codes(), std::vector<Code>{Code::kAuxFull});
  EXPECT_EQ(d.of(EventKind::kPsb).size(), 1U);
  ASSERT_EQ(s.segments.size(), 2U);
  EXPECT_EQ(s.segments[1].start_time, 2000);
}

// An address that is the change of an unknown one, another cause of the hole, and packets of a flow that goes on: what
// is there would be a guess.
TEST(Sync, WithoutAWholeAddressASyncPointIsAwaited) {
  Stopped compressed;
  EXPECT_EQ(compressed.decoded(Stopped::restart(IpForm::k32)).ips().size(), 4U);
  Stopped missing;
  missing.loss = Code::kTraceBytesMissing;
  EXPECT_EQ(missing.decoded(Stopped::restart(IpForm::kSext48)).ips().size(), 4U);
  PtWriter w;
  w.tsc(2000);
  w.tip(A + 0x100, IpForm::kSext48);
  Stopped flow;
  EXPECT_EQ(flow.decoded(w).ips().size(), 4U);
  PtWriter no_time;
  no_time.tip_pge(A + 0x100, IpForm::kSext48);
  no_time.tip_pgd();
  Stopped untimed;
  EXPECT_EQ(untimed.decoded(no_time).ips().size(), 4U);
  // Whether user code is of 32 or of 64 bits only MODE.Exec says, here or before the hole; kernel code is of 64.
  const auto ran_without_mode = [](Addr to) {
    Stopped s;
    s.code(0x401000, {0x90, 0x90});
    PtWriter no_mode;
    no_mode.tsc(2000);
    no_mode.tip_pge(to, IpForm::kSext48);
    no_mode.fup(to + 1);
    no_mode.tip_pgd();
    return s.decoded(no_mode).ips().size();
  };
  EXPECT_EQ(ran_without_mode(0x401000), 4U);
  EXPECT_EQ(ran_without_mode(A + 0x100), 5U);
}

// Tracing is switched on, off and on again before any traced code runs (user code alone is traced): the segment has the
// time at which its bytes begin, which its AUX record agrees with, and code that of the last packet.
TEST(Sync, TheTimeOfARestartIsThatOfItsFirstPacket) {
  PtWriter w;
  w.tsc(2000);
  w.cbr(10);
  w.tsc(9000);
  w.cbr(10);
  w.mode_exec(ExecMode::k64);
  w.tip_pge(A + 0x100, IpForm::kSext48);
  w.fup(A + 0x101);
  w.tip_pgd();
  Stopped s;
  const Decoded d = s.decoded(w);
  ASSERT_EQ(d.ran.size(), 5U);
  EXPECT_EQ(d.ran[4].time, 9000);
  ASSERT_EQ(s.segments.size(), 2U);
  EXPECT_EQ(s.segments[1].start_time, 2000);
}

}  // namespace
}  // namespace asof::x86::test
