// Streams from AUX buffers: padding, gaps, losses that the kernel flags.
#include "arch/x86/x86.h"
#include "tests/decoder/aux/aux_made.h"
#include "tests/support/pt_writer.h"

namespace asof::test {
namespace {

TEST(AuxStreams, BuffersJoinAndPaddingGoes) {
  const Bytes all = trace(1003);
  PerfBytes file = start();
  file.record(12, 0, cpu0(50), [](ByteSink& s) {  // ITRACE_START
    s.u32(9);
    s.u32(9);
  });
  file.aux(0, 501, 0, cpu0(100)).auxtrace(0, 0, -1, 0, part(all, 0, 501));  // 3 bytes of padding
  file.aux(501, 502, 0, cpu0(200)).auxtrace(0, 0, -1, 501, part(all, 501, 1003), 42);
  const Made made = make(file);
  EXPECT_TRUE(made.notices.empty());
  const Stream& stream = made.one();
  EXPECT_EQ(stream.name, "cpu0");
  EXPECT_EQ(stream.cpu, 0);
  EXPECT_EQ(stream.tid, -1);
  ASSERT_EQ(stream.pieces.size(), 2U);
  EXPECT_EQ(stream.pieces[1].offset, 501U);
  EXPECT_FALSE(stream.pieces[0].discontinuity || stream.pieces[1].discontinuity);
  EXPECT_EQ(stream.pieces[1].reference, 42U);
  EXPECT_EQ(made.bytes(), all);
  EXPECT_TRUE(stream.losses.empty());
  EXPECT_EQ(stream.bounds, (TimeBounds{50, 200}));
  std::vector<uint8_t> scratch;
  const auto across = stream.bytes(490, 510, scratch);
  EXPECT_EQ(Bytes(across.begin(), across.end()), part(all, 490, 510));
}

// A copy of the ring without the counter's value: that of the copy before it, or of the first that has one.
TEST(AuxStreams, BuffersWithoutReferenceHaveTheNextOnes) {
  const Bytes all = trace(400);
  PerfBytes file = start();
  const std::array<uint64_t, 4> references{0, 42, 0, 44};
  for (size_t i = 0; i < references.size(); ++i)
    file.aux(100 * i, 100, 0, cpu0(100 + 100 * i))
        .auxtrace(0, 0, -1, 100 * i, part(all, 100 * i, 100 * i + 100), references[i]);
  const Made made = make(file);
  ASSERT_EQ(made.one().pieces.size(), 4U);
  std::vector<uint64_t> got;
  for (const StreamPiece& p : made.one().pieces) got.push_back(p.reference);
  EXPECT_EQ(got, (std::vector<uint64_t>{42, 42, 42, 44}));
}

// Where the first ITRACE_START that is there follows a loss, tracing began earlier; where trace follows what the last
// AUX record announces, it went on later.
TEST(AuxStreams, LostRecordsLeaveTheBoundsOpen) {
  const Bytes all = trace(1000);
  const auto started = [](PerfBytes& file, uint64_t time) {
    file.record(12, 0, cpu0(time), [](ByteSink& s) { s.u32(9), s.u32(9); });
  };
  const auto lost = [](PerfBytes& file, uint32_t cpu, uint64_t time) {
    file.record(2, 0, {.time = time, .cpu = cpu, .pid = 9, .tid = 9, .id = 7},
                [](ByteSink& s) { s.u64(7), s.u64(12); });
  };
  const auto bounds = [&](PerfBytes& file) {
    file.auxtrace(0, 0, -1, 0, all);
    return make(file).one().bounds;
  };
  PerfBytes before = start();
  lost(before, 0, 50), started(before, 50);
  before.aux(0, 500, 0, cpu0(100)).aux(500, 500, 0, cpu0(200));
  EXPECT_EQ(bounds(before), (TimeBounds{kTimeMin, 200}));

  PerfBytes later = start();
  started(later, 50), lost(later, 0, 60), started(later, 70);
  later.aux(0, 500, 0, cpu0(100)).aux(500, 500, 0, cpu0(200));
  EXPECT_EQ(bounds(later), (TimeBounds{50, 200}));

  PerfBytes elsewhere = start();
  lost(elsewhere, 1, 40), started(elsewhere, 50);
  elsewhere.aux(0, 1000, 0, cpu0(200));
  EXPECT_EQ(bounds(elsewhere), (TimeBounds{50, 200}));

  PerfBytes at_end = start();
  started(at_end, 50);
  at_end.aux(0, 500, 0, cpu0(100));
  EXPECT_EQ(bounds(at_end), (TimeBounds{50, kTimeMax}));
}

// As stock perf writes it: an AUX record of 0x36 bytes, whose AUXTRACE record has 0x38, and an MTC packet
// before the first PSB. Neither is damage, at any position in the ring.
TEST(AuxStreams, PaddingAndTheFirstTimingPacketAreNoDamage) {
  PtWriter pt;
  pt.mtc(0xf1);
  pt.psb();
  pt.psbend();
  for (int i = 0; i < 0x100; ++i) pt.mtc(static_cast<uint8_t>(i));
  const Bytes all(pt.bytes().begin(), pt.bytes().end());
  PerfBytes file = start();
  file.aux(0, 0x36, 0, cpu0(100)).auxtrace(0, 0, -1, 0, part(all, 0, 0x36));
  file.aux(0x36, 0x35, 0, cpu0(200));
  file.aux(0x6b, 0x37, 0, cpu0(300)).auxtrace(0, 0, -1, 0x36, part(all, 0x36, 0xa2));
  file.aux(0x1000, 0x36, 0, cpu0(400)).auxtrace(0, 0, -1, 0x1000, part(all, 2, 0x38));
  const Made made = make(file);
  const Stream& stream = made.one();
  ASSERT_EQ(stream.pieces.size(), 3U);
  EXPECT_EQ(stream.pieces[0].size(), 0x36U);
  EXPECT_EQ(stream.pieces[1].size(), 0x6cU);
  EXPECT_EQ(stream.pieces[2].size(), 0x36U);
  const auto arch = x86::make_arch(x86::Config{});
  for (const Segment& segment : arch->split(stream, 0)) {
    if (segment.before) {
      EXPECT_EQ(segment.before->code, Code::kTraceBytesMissing);
    }
  }
}

TEST(AuxStreams, ZerosThatAreTraceStay) {
  Bytes all = trace(64);
  std::fill(all.end() - 8, all.end(), uint8_t{0});  // PAD packets, not padding: AUX says 64
  PerfBytes file = start();
  file.aux(0, 64, 0, cpu0(1)).auxtrace(0, 0, -1, 0, all);
  EXPECT_EQ(make(file).bytes(), all);
}

TEST(AuxStreams, BytesOtherThanZeroAreNeverPadding) {
  const Bytes all = trace(64);
  PerfBytes file = start();
  file.aux(0, 61, 0, cpu0(1)).auxtrace(0, 0, -1, 0, all);
  EXPECT_EQ(make(file).bytes(), all);
}

TEST(AuxStreams, OneStreamPerCpuOrThread) {
  PerfBytes per_cpu = start();
  for (const int cpu : {2, 0}) per_cpu.auxtrace(static_cast<uint32_t>(cpu), cpu, 77, 0, trace(32));
  const Made cpus = make(per_cpu);
  ASSERT_EQ(cpus.streams.size(), 2U);
  EXPECT_EQ(cpus.streams[0].name, "cpu0");
  EXPECT_EQ(cpus.streams[1].cpu, 2);
  EXPECT_EQ(cpus.streams[1].tid, -1);
  PerfBytes per_thread = start(0, 0);
  for (const int tid : {100, 101})
    per_thread.auxtrace(static_cast<uint32_t>(tid - 100), -1, tid, 0, trace(32));
  per_thread.aux(0, 32, kTruncated, {.time = 5, .cpu = 1, .pid = 100, .tid = 101, .id = 5});
  const Made threads = make(per_thread);
  ASSERT_EQ(threads.streams.size(), 2U);
  EXPECT_EQ(threads.streams[1].name, "tid101");
  EXPECT_EQ(threads.streams[1].cpu, -1);
  EXPECT_TRUE(threads.streams[0].losses.empty());
  EXPECT_EQ(threads.streams[1].losses.size(), 1U);
}

TEST(AuxStreams, RecordsFindTheirQueueByEventId) {
  PerfBytes file = start();
  file.record(69, 0, [](ByteSink& s) {  // ID_INDEX: event 5 on queue 0, event 6 on queue 1
    s.u64(2);
    for (const uint64_t v : {uint64_t{5}, uint64_t{0}, uint64_t{0}, UINT64_MAX}) s.u64(v);
    for (const uint64_t v : {uint64_t{6}, uint64_t{1}, uint64_t{0}, UINT64_MAX}) s.u64(v);
  });
  file.auxtrace(0, 0, -1, 0, trace(32)).auxtrace(1, 0, -1, 0, trace(32));  // two rings of CPU 0
  Tail second = cpu0(9);
  second.id = 6;
  file.aux(0, 32, kTruncated, second);
  const Made made = make(file);
  ASSERT_EQ(made.streams.size(), 2U);
  EXPECT_EQ(made.streams[0].name, "cpu0");
  EXPECT_EQ(made.streams[1].name, "cpu0#1");
  EXPECT_TRUE(made.streams[0].losses.empty());
  EXPECT_EQ(made.streams[1].losses.size(), 1U);
}

// The ring of a known event has no buffer: what it lost is not of another one, though the thread is the same.
TEST(AuxStreams, RecordsOfARingWithoutBuffersAreOfNoOther) {
  PerfBytes file = start();
  file.record(69, 0, [](ByteSink& s) {  // ID_INDEX: id, idx, cpu, tid
    s.u64(2);
    for (const uint64_t v : {uint64_t{5}, uint64_t{0}, uint64_t{0}, uint64_t{9}}) s.u64(v);
    for (const uint64_t v : {uint64_t{6}, uint64_t{1}, uint64_t{1}, uint64_t{9}}) s.u64(v);
  });
  file.auxtrace(1, 1, 9, 0, trace(32));  // CPU 1's, and CPU 0's is missing
  file.aux(0, 4096, kTruncated, cpu0(10));
  file.aux(0, 32, 0, {.time = 20, .cpu = 1, .pid = 9, .tid = 9, .id = 6});
  const Made made = make(file);
  EXPECT_EQ(made.one().name, "cpu1");
  EXPECT_TRUE(made.one().losses.empty());
  ASSERT_TRUE(notice_of(made.notices, Code::kTraceWithoutBuffer));
  EXPECT_NE(notice_of(made.notices, Code::kTraceWithoutBuffer)->reason.find("4096 bytes"), std::string::npos);
}

TEST(AuxStreams, MissingBufferIsALossOfKnownSize) {
  const Bytes all = trace(4096);
  PerfBytes file = start();
  file.aux(0, 1024, 0, cpu0(1))
      .aux(1024, 1024, 0, cpu0(2))
      .aux(2048, 1024, 0, cpu0(3))
      .aux(3072, 1024, 0, cpu0(4));
  file.auxtrace(0, 0, -1, 0, part(all, 0, 1024)).auxtrace(0, 0, -1, 2048, part(all, 2048, 3072));
  const Made made = make(file);
  const Stream& stream = made.one();
  ASSERT_EQ(stream.pieces.size(), 2U);
  EXPECT_TRUE(stream.pieces[1].discontinuity);
  ASSERT_EQ(stream.losses.size(), 2U);
  EXPECT_EQ(stream.losses[0].offset, 1024U);
  EXPECT_EQ(stream.losses[0].bytes, 1024U);
  EXPECT_EQ(stream.losses[0].time, 1) << "of the record before: all that was lost is later";
  EXPECT_EQ(stream.losses[0].until, 2);
  EXPECT_EQ(stream.losses[0].code, Code::kTraceBytesMissing);
  EXPECT_EQ(stream.losses[1].offset, 3072U);  // stated by AUX, but missing from the file
  EXPECT_EQ(stream.losses[1].bytes, 1024U);
  EXPECT_EQ(stream.losses[1].time, 3);
  EXPECT_EQ(stream.losses[1].until, 4);
}

TEST(AuxStreams, WithoutATimeOfItsRecordALossMayBeOfAnyLaterTime) {
  const Bytes all = trace(2048);
  PerfBytes file = start();
  file.aux(0, 1024, 0, cpu0(1)).aux(1024, 1024, 0, cpu0(0));
  file.auxtrace(0, 0, -1, 0, part(all, 0, 1024));
  const Made made = make(file);
  ASSERT_EQ(made.one().losses.size(), 1U);
  EXPECT_EQ(made.one().losses[0].time, 1);
  EXPECT_EQ(made.one().losses[0].until, kTimeMax);
}

// What is missing behind the last trace is a gap, too, up to the record that announced it.
TEST(AuxStreams, MissingEndIsAGap) {
  PtWriter pt;
  for (int i = 0; i < 4; ++i) {
    pt.psb();
    pt.psbend();
  }
  const Bytes all(pt.bytes().begin(), pt.bytes().end());
  PerfBytes file = start();
  file.aux(0, all.size(), 0, cpu0(10)).auxtrace(0, 0, -1, 0, all).aux(all.size(), 4096, 0, cpu0(50));
  const Made made = make(file);
  const auto segments = x86::make_arch(x86::Config{})->split(made.one(), 0);
  ASSERT_EQ(segments.size(), 5U);
  const Segment& last = segments.back();
  EXPECT_EQ(last.begin, last.end);
  ASSERT_TRUE(last.before.has_value());
  EXPECT_EQ(last.before->code, Code::kTraceBytesMissing);
  EXPECT_EQ(last.before->end - last.before->begin, 4096U);
  EXPECT_EQ(last.before->time, (TimeBounds{10, 50}));
}

TEST(AuxStreams, StreamThatStartsLate) {
  PerfBytes with_both_records = start();
  with_both_records.aux(0, 64, 0, cpu0(1)).aux(64, 64, 0, cpu0(2)).auxtrace(0, 0, -1, 64, trace(64));
  const Stream missing = make(with_both_records).one();
  EXPECT_TRUE(missing.pieces[0].discontinuity);
  ASSERT_EQ(missing.losses.size(), 1U);
  EXPECT_EQ(missing.losses[0].bytes, 64U);
  PerfBytes later_file = start();  // perf record --switch-output: the ring continues in a new file
  later_file.aux(64, 64, 0, cpu0(2)).auxtrace(0, 0, -1, 64, trace(64));
  const Stream joined = make(later_file).one();
  EXPECT_TRUE(joined.pieces[0].discontinuity);
  EXPECT_TRUE(joined.losses.empty());
}

TEST(AuxStreams, TruncatedCutsThePieceAndGivesTheSize) {
  const Bytes all = trace(512);
  PerfBytes file = start();
  file.aux(0, 100, 0, cpu0(1)).aux(100, 100, kTruncated, cpu0(2)).aux(200, 312, 0, cpu0(3));
  file.auxtrace(0, 0, -1, 0, all);
  const Made made = make(file);
  const Stream& stream = made.one();
  ASSERT_EQ(stream.pieces.size(), 2U);
  EXPECT_EQ(stream.pieces[1].offset, 200U);
  EXPECT_TRUE(stream.pieces[1].discontinuity);
  EXPECT_EQ(stream.pieces[1].file_offset, stream.pieces[0].file_offset + 200);
  EXPECT_EQ(made.bytes(), all);
  ASSERT_EQ(stream.losses.size(), 1U);
  EXPECT_EQ(stream.losses[0].offset, 200U);
  EXPECT_FALSE(stream.losses[0].bytes.has_value());  // the ring's offset does not count what was dropped
  EXPECT_EQ(stream.losses[0].time, 2);
  ASSERT_TRUE(notice_of(made.notices, Code::kAuxFull));
  EXPECT_EQ(notice_of(made.notices, Code::kAuxFull)->count, 1U);

  PerfBytes gap = start();
  gap.aux(0, 200, kTruncated, cpu0(2)).aux(200, 0, kTruncated, cpu0(3)).aux(264, 248, 0, cpu0(4));
  gap.auxtrace(0, 0, -1, 0, part(all, 0, 200)).auxtrace(0, 0, -1, 264, part(all, 264, 512));
  const Stream cut = make(gap).one();
  ASSERT_EQ(cut.losses.size(), 1U);  // not both as TRUNCATED and as missing
  EXPECT_EQ(cut.losses[0].bytes, 64U);
  EXPECT_EQ(cut.losses[0].code, Code::kAuxFull);
}

TEST(AuxStreams, CollisionsCutAndHolesDoNot) {
  PerfBytes file = start();
  file.aux(0, 256, kPartial, cpu0(1)).aux(256, 256, kCollision, cpu0(2)).aux(512, 128, 0, cpu0(3));
  file.auxtrace(0, 0, -1, 0, trace(640));
  const Made made = make(file);
  ASSERT_EQ(made.one().pieces.size(), 2U);
  EXPECT_EQ(made.one().pieces[1].offset, 512U);
  EXPECT_TRUE(made.one().pieces[1].discontinuity);
  ASSERT_EQ(made.one().losses.size(), 2U);
  EXPECT_EQ(made.one().losses[0].code, Code::kAuxWithHoles);
  EXPECT_EQ(made.one().losses[1].code, Code::kAuxSamplesCollided);
  EXPECT_TRUE(notice_of(made.notices, Code::kAuxWithHoles));
  EXPECT_TRUE(notice_of(made.notices, Code::kAuxSamplesCollided));
}

TEST(AuxStreams, LostRecordsAreNotices) {
  PerfBytes file = start();
  for (uint64_t i = 0; i < 3; ++i) {
    file.record(2, 0, cpu0(10 + i), [](ByteSink& s) {
      s.u64(5);
      s.u64(100);
    });
  }
  file.record(13, 0, cpu0(20), [](ByteSink& s) { s.u64(7); });
  file.aux(0, 4096, 0, {.time = 30, .cpu = 5, .id = 5});  // a CPU without buffers
  const Made made = make(file);
  ASSERT_TRUE(notice_of(made.notices, Code::kRecordsLost));
  EXPECT_EQ(notice_of(made.notices, Code::kRecordsLost)->count, 3U) << "of LOST records";
  EXPECT_NE(notice_of(made.notices, Code::kRecordsLost)->reason.find("300 records lost"), std::string::npos);
  EXPECT_EQ(notice_of(made.notices, Code::kRecordsLost)->time, 10);
  EXPECT_EQ(notice_of(made.notices, Code::kSamplesLost)->count, 1U);
  ASSERT_TRUE(notice_of(made.notices, Code::kTraceWithoutBuffer));
  EXPECT_NE(notice_of(made.notices, Code::kTraceWithoutBuffer)->reason.find("4096 bytes"), std::string::npos);
}

TEST(AuxStreams, RepeatedAndLyingOffsetsAreReported) {
  const Bytes all = trace(256);
  PerfBytes file = start();
  file.auxtrace(0, 0, -1, 0, part(all, 0, 128)).auxtrace(0, 0, -1, 64, part(all, 64, 256));
  const Made made = make(file);
  EXPECT_EQ(made.bytes(), all);
  EXPECT_TRUE(notice_of(made.notices, Code::kBadTraceBuffers));
  PerfBytes wraps = start();
  wraps.auxtrace(0, 0, -1, 0, trace(64)).auxtrace(0, 0, -1, UINT64_MAX - 8, trace(64));
  const Made cut = make(wraps);
  EXPECT_EQ(cut.one().pieces.size(), 1U);
  EXPECT_TRUE(notice_of(cut.notices, Code::kBadTraceBuffers));
}

}  // namespace
}  // namespace asof::test
