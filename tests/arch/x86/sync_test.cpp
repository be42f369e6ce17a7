// Streams into segments: sync points at any position, and every byte accounted for.
#include <algorithm>

#include "arch/x86/packet.h"
#include "tests/arch/x86/flow_fixture.h"
#include "tests/arch/x86/segments_cover.h"

namespace asof::x86::test {
namespace {

using asof::test::SimRandom;

// A trace of three segments: NOPs from A on, followed by a jump.
struct Three : FlowFixture {
  std::vector<uint64_t> psbs;
  Three() {
    Bytes text(28, 0x90);
    text[26] = 0xff, text[27] = 0xe0;  // jmp *rax
    code(A, text);
    for (const Addr ip : {A, A + 10, A + 20}) {
      psbs.push_back(pt.offset());
      start(ip, 1000 + 100 * (ip - A));
      pt.mtc(1);
    }
    pt.fup(A + 25);
    pt.tip_pgd();
  }
};

std::vector<Addr> nops(Addr from, Addr to) {
  std::vector<Addr> out;
  for (Addr a = from; a < to; ++a) out.push_back(A + a);
  return out;
}

// Bytes that are almost PSBs, searched from every start, against an exhaustive search.
TEST(Sync, PsbIsFoundAmongItsOwnBytes) {
  const Bytes psb = [] {
    PtWriter w;
    w.psb();
    return w.bytes();
  }();
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SimRandom random(seed);
    Bytes bytes;
    while (bytes.size() < 200) {
      const size_t n = random.below(seed % 2 == 0 ? 40 : 18);  // of the pattern, from either byte on
      for (size_t i = random.below(2), end = i + n; i < end; ++i) bytes.push_back(psb[i % 2]);
      if (random.below(2) == 0) bytes.push_back(static_cast<uint8_t>(random.below(256)));
    }
    for (size_t from = 0; from <= bytes.size(); ++from) {
      const auto hit =
          std::search(bytes.begin() + static_cast<std::ptrdiff_t>(from), bytes.end(), psb.begin(), psb.end());
      const auto want = hit == bytes.end() ? SIZE_MAX : static_cast<size_t>(hit - bytes.begin());
      ASSERT_EQ(find_psb(bytes, from), want) << "seed " << seed << " from " << from;
    }
  }
}

TEST(Sync, PsbIsFoundAtAnyOffset) {
  PtWriter w;
  w.pad(7);
  w.psb();
  w.psb();
  w.pad(3);
  EXPECT_EQ(find_psb(w.bytes(), 0), 7U);
  EXPECT_EQ(find_psb(w.bytes(), 8), 9U);  // the pattern repeats every two bytes
  EXPECT_EQ(find_psb(w.bytes(), 7 + kPsbSize), 7U + kPsbSize);
  EXPECT_EQ(find_psb(w.bytes(), 7 + kPsbSize + 1), SIZE_MAX);
  EXPECT_EQ(find_psb(std::span(w.bytes()).first(22), 0), SIZE_MAX);
  EXPECT_EQ(find_psb({}, 0), SIZE_MAX);
  EXPECT_EQ(find_psb(w.bytes(), 1000), SIZE_MAX);
}

TEST(Sync, SegmentsOfAnUndamagedStream) {
  Three s;
  s.with_clock();
  const Decoded d = s.expect(nops(0, 25));
  ASSERT_EQ(s.segments.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(s.segments[i].begin, s.psbs[i]);
    EXPECT_EQ(s.segments[i].start_time, static_cast<Time>(1000 + 1000 * i));
    EXPECT_FALSE(s.segments[i].before);
  }
  EXPECT_EQ(s.segments[2].tail_end, s.segments[2].end);
  EXPECT_GT(s.segments[0].tail_end, s.segments[0].end);
  expect_all_covered(s.stream, s.segments);
  EXPECT_TRUE(d.gaps.empty());
}

// However the stream is cut into pieces, the result is the same.
TEST(Sync, PiecesCutAnywhere) {
  for (uint64_t cut = 1; cut < Three().pt.bytes().size(); ++cut) {
    SCOPED_TRACE(cut);
    Three s;
    s.cuts = {cut};
    EXPECT_EQ(hex(s.decode().ips()), hex(nops(0, 25)));
    ASSERT_EQ(s.segments.size(), 3U);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(s.segments[i].begin, s.psbs[i]);
    expect_all_covered(s.stream, s.segments);
  }
}

TEST(Sync, PiecesOfOneByte) {
  Three s;
  for (uint64_t i = 1; i < s.pt.bytes().size(); ++i) s.cuts.push_back(i);
  EXPECT_EQ(hex(s.decode().ips()), hex(nops(0, 25)));
  EXPECT_EQ(s.segments.size(), 3U);
}

TEST(Sync, NoSyncPointAtAll) {
  FlowFixture s;
  s.pt.tnt(true);
  s.pt.tip(A);
  const Decoded d = s.decode();
  ASSERT_EQ(s.segments.size(), 1U);
  EXPECT_EQ(s.segments[0].begin, s.segments[0].end);
  expect_all_covered(s.stream, s.segments);
  EXPECT_TRUE(d.ran.empty());
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kNoSyncPoint);
}

TEST(Sync, EmptyStream) {
  FlowFixture s;
  const auto arch = make_arch(s.config);
  EXPECT_TRUE(arch->split(s.stream, 0).empty());
}

TEST(Sync, BytesBeforeTheFirstSyncPoint) {
  FlowFixture s;
  s.code(A, Bytes(16, 0x90));
  s.pt.tip(A);
  const uint64_t psb = s.pt.offset();
  s.start(A);
  s.pt.fup(A + 2);
  s.pt.tip_pgd();
  const Decoded d = s.expect_flow(nops(0, 2));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kNoSyncPoint);
  EXPECT_EQ(d.gaps[0].begin, 0U);
  EXPECT_EQ(d.gaps[0].end, psb);
  EXPECT_NE(d.ran[0].flags & Step::kAfterGap, 0);
  expect_all_covered(s.stream, s.segments);
}

// A trace may begin with timing packets before its first PSB: nothing is missing.
TEST(Sync, TimingPacketsBeforeTheFirstSyncPointAreNoLoss) {
  FlowFixture s;
  s.code(A, Bytes(16, 0x90));
  s.pt.mtc(0xf1);
  s.pt.cyc(1);
  s.pt.mtc(0xf2);
  ASSERT_GT(s.pt.offset(), 0U);
  s.start(A);
  s.pt.fup(A + 2);
  s.pt.tip_pgd();
  const Decoded d = s.expect_flow(nops(0, 2));
  EXPECT_TRUE(d.gaps.empty()) << d.gaps[0].code;
}

// Two stretches with a hole between them: the second begins in the middle of a packet.
TEST(Sync, Discontinuity) {
  Three s;
  s.decode();
  const Bytes all = s.pt.bytes();
  const uint64_t cut = s.psbs[1] + 20;  // inside the second PSB+
  StreamPiece first, second;
  first.bytes = std::span(all).first(cut);
  second.offset = cut + 1000;
  second.bytes = std::span(all).subspan(cut);
  second.discontinuity = true;
  s.stream.pieces = {first, second};
  const Decoded d = s.run_stream(s.options);
  // Where a stretch ends, the flow continues up to the first branch that needs trace.
  std::vector<Addr> want = nops(0, 27);
  const std::vector<Addr> rest = nops(20, 25);
  want.insert(want.end(), rest.begin(), rest.end());
  EXPECT_EQ(hex(d.ips()), hex(want));
  expect_all_covered(s.stream, s.segments);
  ASSERT_EQ(s.segments.size(), 3U);
  ASSERT_TRUE(s.segments[2].before);
  EXPECT_EQ(s.segments[2].before->begin, cut + 1000);
}

// A loss that the recorder reports becomes a gap where a stretch begins, the first one included; inside a
// stretch the flow continues, and the loss has no location.
TEST(Sync, RecordedLosses) {
  Three s;
  s.decode();
  const Bytes all = s.pt.bytes();
  StreamPiece first, second;
  first.bytes = std::span(all).first(s.psbs[1]);
  second.offset = s.psbs[1];
  second.bytes = std::span(all).subspan(s.psbs[1]);
  second.discontinuity = true;
  s.stream.pieces = {first, second};
  s.stream.losses = {{0, 64, 500, kTimeMax, Code::kRecordsLost, "before"},
                     {s.psbs[1], std::nullopt, 1900, kTimeMax, Code::kSamplesLost, "between"},
                     {s.psbs[2], 7, 2900, kTimeMax, Code::kTraceOverflow, "inside"}};
  const Decoded d = s.run_stream(s.options);
  ASSERT_EQ(s.segments.size(), 3U);
  EXPECT_EQ(d.gap_codes(), (std::vector<Code>{Code::kRecordsLost, Code::kSamplesLost}));
  EXPECT_EQ(d.gaps[0].reason, "before (64 bytes)");
  EXPECT_EQ(d.gaps[1].reason, "between");
  EXPECT_EQ(std::pair(d.gaps[0].begin, d.gaps[0].end), std::pair(uint64_t{0}, uint64_t{0}));
  EXPECT_EQ(std::pair(d.gaps[1].begin, d.gaps[1].end), std::pair(s.psbs[1], s.psbs[1]));
}

TEST(Sync, SyncPointCutByADiscontinuityIsNone) {
  Three s;
  s.decode();
  const Bytes all = s.pt.bytes();
  const uint64_t cut = s.psbs[1] + 7;
  StreamPiece first, second;
  first.bytes = std::span(all).first(cut);
  second.offset = cut;
  second.bytes = std::span(all).subspan(cut);
  second.discontinuity = true;  // adjacent offsets, but trace is missing
  s.stream.pieces = {first, second};
  s.run_stream(s.options);
  ASSERT_EQ(s.segments.size(), 2U);
  EXPECT_EQ(s.segments[1].begin, s.psbs[2]);
  expect_all_covered(s.stream, s.segments);
}

TEST(Sync, StretchWithoutSyncPointBetweenOthers) {
  Three s;
  s.decode();
  const Bytes all = s.pt.bytes();
  const Bytes lost = {0x1c, 0x1c, 0x1c};
  StreamPiece first, middle, last;
  first.bytes = std::span(all).first(s.psbs[1]);
  middle.offset = 1000;
  middle.bytes = lost;
  middle.discontinuity = true;
  last.offset = 2000;
  last.bytes = std::span(all).subspan(s.psbs[2]);
  last.discontinuity = true;
  s.stream.pieces = {first, middle, last};
  const Decoded d = s.run_stream(s.options);
  expect_all_covered(s.stream, s.segments);
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].begin, 1000U);
  EXPECT_EQ(d.gaps[0].end, 1003U);
}

TEST(Sync, DamagedSyncGroup) {
  FlowFixture s;
  s.code(A, Bytes(16, 0x90)).code(A + 0x100, Bytes(16, 0x90));
  s.pt.psb();
  s.pt.raw(Bytes{0x02, 0xff});
  s.pt.tip(A + 0x100);
  s.start(A);
  s.pt.fup(A + 2);
  s.pt.tip_pgd();
  const Decoded d = s.decode_all_ways();
  EXPECT_EQ(hex(d.ips()), hex(nops(0, 2)));
  ASSERT_GE(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kBadPacket);
  expect_all_covered(s.stream, s.segments);
}

// A valid packet that does not belong in a PSB+: the flow resumes at the next complete address.
TEST(Sync, SyncGroupWithoutItsEnd) {
  FlowFixture s;
  s.code(A, Bytes(16, 0x90)).code(A + 0x100, Bytes(16, 0x90));
  s.pt.psb();
  s.pt.tsc(5);
  s.pt.tip(A + 0x100, IpForm::kSext48);
  s.pt.fup(A + 0x102);
  s.pt.tip_pgd();
  const Decoded d = s.decode_all_ways();
  EXPECT_EQ(hex(d.ips()), hex({A + 0x100, A + 0x101}));
  ASSERT_EQ(d.gaps.size(), 1U);
  EXPECT_EQ(d.gaps[0].code, Code::kBadPacket);
  EXPECT_EQ(d.gaps[0].resume_ip, A + 0x100);
}

TEST(Sync, SyncGroupCutByTheEnd) {
  const uint64_t whole = [] {
    FlowFixture s;
    s.start(A, 77);
    return s.pt.bytes().size();
  }();
  for (uint64_t n = kPsbSize; n < whole; ++n) {
    FlowFixture s;
    s.code(A, Bytes(16, 0x90));
    s.start(A, 77);
    const Bytes cut(s.pt.bytes().begin(), s.pt.bytes().begin() + static_cast<std::ptrdiff_t>(n));
    StreamPiece p;
    p.bytes = cut;
    s.stream.pieces = {p};
    const Decoded d = s.run_stream(s.options);
    EXPECT_TRUE(d.ran.empty()) << n;
    ASSERT_EQ(d.gaps.size(), 1U) << n;
    expect_all_covered(s.stream, s.segments);
  }
}

TEST(Sync, SyncGroupEndedByOverflow) {
  FlowFixture s;
  s.code(A, Bytes(16, 0x90)).code(A + 0x100, Bytes(16, 0x90));
  s.pt.psb();
  s.pt.tsc(5);
  s.pt.mode_exec(ExecMode::k64);
  s.pt.ovf();
  s.pt.fup(A + 0x100, IpForm::kSext48);
  s.pt.fup(A + 0x102);
  s.pt.tip_pgd();
  const Decoded d = s.expect({A + 0x100, A + 0x101});
  ASSERT_EQ(d.of(EventKind::kOverflow).size(), 1U);
  EXPECT_EQ(d.of(EventKind::kOverflow)[0].ip, A + 0x100);
}

// The flow has no address to reach when the next PSB+ has none because of an overflow.
TEST(Sync, NextSyncGroupEndedByOverflow) {
  FlowFixture s;
  s.code(A, {0x90, 0x74, 0x00, 0x90, 0x74, 0x00}).code(A + 0x100, Bytes(16, 0x90));
  s.start(A);
  s.pt.tnt(false);
  s.pt.psb();
  s.pt.ovf();
  s.pt.fup(A + 0x100, IpForm::kSext48);
  s.pt.fup(A + 0x101);
  s.pt.tip_pgd();
  const Decoded d = s.decode_all_ways();
  ASSERT_GE(d.ran.size(), 3U);
  EXPECT_EQ(d.ran[0].ip, A);
  EXPECT_EQ(d.ran[1].ip, A + 1);
  EXPECT_EQ(d.ran.back().ip, A + 0x100);
}

// BDM70: the FUP in a PSB+ right before a TIP.PGE is ignored.
TEST(Sync, Bdm70) {
  FlowFixture s;
  s.config.cpu = {true, 6, 0x4f, 1};
  s.code(A, {0x90, 0xff, 0xe0}).code(A + 0x100, Bytes(16, 0x90));
  s.start(A);
  s.pt.mode_exec(ExecMode::k64);
  s.pt.tip_pge(A + 0x100, IpForm::kSext48);
  s.pt.fup(A + 0x101);
  s.pt.tip_pgd();
  const Decoded d = s.expect({A + 0x100});
  EXPECT_TRUE(d.gaps.empty());
}

TEST(Sync, StateOfTheSyncGroupIsTaken) {
  FlowFixture s;
  constexpr Addr V = 0x500000;
  s.code(V, {0x40, 0x90, 0x90});
  PsbPlus g;
  g.ip = V;
  g.exec = ExecMode::k32;
  g.tsx = 1;
  g.cr3 = 0xabc000;
  s.pt.psb_plus(g);
  s.pt.fup(V + 2);
  s.pt.tip_pgd();
  const Decoded d = s.expect({V, V + 1});
  EXPECT_EQ(d.ran[0].mode, 32);
  EXPECT_NE(d.ran[0].flags & Step::kTransaction, 0);
  ASSERT_EQ(d.of(EventKind::kPaging).size(), 1U);
  EXPECT_EQ(d.of(EventKind::kPaging)[0].a, 0xabc000U);
}

// A sync point in VMX non-root operation: its address and its TSC are the guest's.
TEST(Sync, OfAGuest) {
  FlowFixture s;
  s.code(A, {0x90, 0x90, 0x90, 0x90}).with_clock();
  PsbPlus g;
  g.tsc = 77;
  g.ip = A;
  g.cr3 = 0xabc000;
  g.non_root = true;
  s.pt.psb_plus(g);
  s.pt.tnt(true);
  s.pt.tip(A);
  s.pt.fup(A);
  s.pt.pip(0x1000);
  s.pt.tip(A + 1);
  s.pt.tsc(500);
  stop_at(s, A + 3);
  const Decoded d = s.expect_flow({A + 1, A + 2});
  EXPECT_EQ(s.segments[0].start_time, kTimeMin);
  EXPECT_EQ(d.gap_codes(), std::vector<Code>{Code::kGuestRan});
  ASSERT_EQ(d.of(EventKind::kPaging).size(), 2U);
  EXPECT_EQ(d.of(EventKind::kPaging)[0].b, 1U);
  EXPECT_EQ(d.of(EventKind::kPaging)[1].b, 0U);
}

TEST(Sync, ReferenceOfThePieceExtendsTime) {
  Three s;
  s.with_clock();
  s.reference = (5ULL << 56) | 900;
  const Decoded d = s.decode();
  EXPECT_EQ(s.segments[0].start_time, static_cast<Time>((5ULL << 56) | 1000));
  EXPECT_EQ(d.ran[0].time, static_cast<Time>((5ULL << 56) | 1000));
}

}  // namespace
}  // namespace asof::x86::test
