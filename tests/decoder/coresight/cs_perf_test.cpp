// cs_etm recordings: metadata of each version, trace IDs from registers and records, formatted and raw rings,
// per CPU and per thread, losses, damage; and recordings of real tools and boards.
#include <gtest/gtest.h>

#include <set>

#include <filesystem>
#include <random>
#include <tuple>

#include "decoder/model/capture.h"
#include "tests/decoder/capture_test_util.h"
#include "tests/decoder/coresight/cs_test_util.h"
#include "tests/decoder/perf/perf_bytes.h"
#include "tests/support/skip_without.h"

namespace asof::test {
namespace {

using Traces = std::map<std::string, Bytes>;

struct Made {
  std::shared_ptr<const PerfData> data;
  CsStreams streams;
  std::vector<Notice> notices;
  Traces traces() const {
    Traces out;
    for (const Stream& stream : streams.streams) out[stream.name] = stream_bytes(stream);
    return out;
  }
  const Stream& stream(const std::string& name) const {
    for (const Stream& stream : streams.streams) {
      if (stream.name == name) return stream;
    }
    ADD_FAILURE() << "no stream " << name;
    static const Stream kNone;
    return kNone;
  }
  bool has_notice(Code code) const {
    return std::any_of(notices.begin(), notices.end(), [&](const Notice& n) { return n.code == code; });
  }
};

Made make(const Bytes& file) {
  Made out;
  out.data = open_bytes(file);
  NoticeBook notices;
  if (out.data->auxtrace_info()) out.streams = make_cs_streams(*out.data, notices);
  out.notices = notices.take();
  return out;
}
Made make(const CsRecording& recording) { return make(recording.writer.file_bytes()); }

// The event type is in the upper half of the second word of AUXTRACE_INFO. For user code alone, changes of
// kernel text do not matter.
TEST(CsPerf, UserCodeOnly) {
  for (const bool user_only : {false, true}) {
    CsRecording recording(1, {etm4_block(0, 0x10)},
                          attr_flag::kSampleIdAll | (user_only ? attr_flag::kExcludeKernel : 0));
    recording.aux(0, 5000, framed({{0x10, noise(1, 100)}}));
    const TempDir dir;
    recording.writer.write_file(dir / "x.data");
    const auto capture = open_capture((dir / "x.data").string(), closed_options());
    ASSERT_TRUE(capture) << capture.error().reason;
    EXPECT_EQ(capture->exclude_kernel, user_only);
    const Notice* const nothing_tells = find_notice(*capture, Code::kNoTextChangeSource);
    EXPECT_EQ(nothing_tells == nullptr, user_only);
    // There is no copy of kcore, so no kernel text is known.
    if (nothing_tells != nullptr) {
      EXPECT_NE(nothing_tells->reason.find("no copy of kcore"), std::string::npos) << nothing_tells->reason;
    }
    EXPECT_EQ(capture->arm64.unrecorded_changes, !user_only);
  }
}

TEST(CsPerf, HeaderVersionsAndProtocols) {
  for (const uint64_t version : {0U, 1U, 2U}) {
    const std::vector<CsBlock> blocks = {{kEtm3Magic, 0, {0x1000, 0x10, 0x34c01ac2, 0x410cf250}},
                                         {kEtm3Magic, 1, {0x1001, 0x12, 0x34c01ac2, 0x411cf312}},
                                         {kEtm4Magic, 2, {0x801, 0x14, 1, 2, 3, 4, 5}},
                                         {kEteMagic, 3, {0x881, 0x16, 11, 12, 13, 14, 15, 0x47705a13}}};
    AuxtraceInfo info;
    info.type = 3;
    info.priv = cs_info(version, blocks);
    NoticeBook notices;
    const auto units = read_cs_units(info, notices);
    ASSERT_TRUE(units.has_value()) << version;
    ASSERT_EQ(units->size(), 4U);
    using arm64::Protocol;
    const Protocol protocols[] = {Protocol::kEtm3, Protocol::kPtm, Protocol::kEtm4, Protocol::kEte};
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ((*units)[i].source.protocol, protocols[i]);
      EXPECT_EQ((*units)[i].cpu, static_cast<int32_t>(i));
      EXPECT_EQ((*units)[i].source.trace_id, 0x10 + 2 * i);
    }
    EXPECT_EQ((*units)[1].source.etmidr, 0x411cf312U);
    EXPECT_EQ((*units)[2].source.configr, 0x801U);
    EXPECT_EQ((*units)[2].source.idr8, 4U);
    EXPECT_EQ((*units)[3].source.devarch, 0x47705a13U);
    EXPECT_EQ((*units)[2].clock, CsUnit::Clock::kUnknown);
    EXPECT_EQ((*units)[3].clock, CsUnit::Clock::kVirtual);  // Linux chooses no other for ETE
    EXPECT_TRUE(notices.take().empty());
  }
}

// What a newer perf appends is skipped; what it states about the timestamps is read.
TEST(CsPerf, TimestampSourceAndLongerBlocks) {
  std::vector<CsBlock> blocks = {etm4_block(0, 0x10), {kEteMagic, 1, {1, 0x12, 2, 3, 4, 5, 6, 7, 1, 99, 98}}};
  blocks[0].params.push_back(static_cast<uint64_t>(-1));
  blocks.push_back(etm4_block(2, 0x14));
  blocks[2].params.push_back(3);
  blocks.push_back({kEteMagic, 3, {1, 0x16, 2, 3, 4, 5, 6, 7, static_cast<uint64_t>(-1)}});
  blocks.push_back({kEteMagic, 4, {1, 0x18, 2, 3, 4, 5, 6, 7, 3}});
  AuxtraceInfo info;
  info.priv = cs_info(1, blocks);
  NoticeBook notices;
  const auto units = read_cs_units(info, notices);
  ASSERT_TRUE(units.has_value());
  ASSERT_EQ(units->size(), 5U);
  using Clock = CsUnit::Clock;
  constexpr Clock kClocks[] = {Clock::kUnknown, Clock::kVirtual, Clock::kOther, Clock::kVirtual,
                               Clock::kOther};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ((*units)[i].clock, kClocks[i]) << i;
}

TEST(CsPerf, CutOrUnknownMetadata) {
  AuxtraceInfo info;
  info.priv = cs_info(1, {etm4_block(0, 0x10), etm4_block(1, 0x12)});
  const std::vector<uint64_t> whole = info.priv;
  for (size_t size = 0; size < whole.size(); ++size) {
    info.priv.assign(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    NoticeBook notices;
    const auto units = read_cs_units(info, notices);
    EXPECT_EQ(units.has_value(), size >= 13);
    if (units) {
      EXPECT_EQ(units->size(), 1U);
      EXPECT_EQ(notices.take().at(0).code, Code::kUndescribedTraceUnit);
    }
  }
  info.priv = whole;
  info.priv[0] = 3;
  NoticeBook notices;
  EXPECT_EQ(read_cs_units(info, notices).error().code, Code::kTraceUnitsUnknown);
  info.priv = whole;
  info.priv[5] = ~0ULL;  // an excessive count
  EXPECT_FALSE(read_cs_units(info, notices).has_value());
}

TEST(CsPerf, FormattedRingsOfCpus) {
  CsRecording r(1, {etm4_block(0, 0x10), etm4_block(1, 0x12)});
  r.start(0, 10);
  r.start(1, 12);
  const Bytes a = noise(1, 1001), b = noise(2, 77), c = noise(3, 500);
  r.aux(0, 100, framed({{0x10, a}}));
  r.aux(1, 110, framed({{0x12, c}}));
  r.aux(0, 200, framed({{0x10, b}}));
  const Made made = make(r);
  ASSERT_EQ(made.streams.streams.size(), 2U);
  Bytes both = a;
  both.insert(both.end(), b.begin(), b.end());
  EXPECT_EQ(made.traces(), (Traces{{"cpu0", both}, {"cpu1", c}}));
  const Stream& stream = made.stream("cpu0");
  EXPECT_EQ(stream.cpu, 0);
  ASSERT_EQ(stream.pieces.size(), 2U);
  EXPECT_FALSE(stream.pieces[1].discontinuity);
  EXPECT_EQ(stream.pieces[0].time, (TimeBounds{10, 100}));
  EXPECT_EQ(stream.pieces[1].time, (TimeBounds{100, 200}));
  EXPECT_EQ(made.streams.units[1].source.trace_id, 0x12);
  EXPECT_TRUE(made.notices.empty());
}

// CPUs that share a sink: the one that empties it gets the trace of all.
TEST(CsPerf, SharedSinkIsJoinedByTime) {
  CsRecording r(1, {etm4_block(0, 0x10), etm4_block(1, 0x12)});
  const Bytes a = noise(1, 100), b = noise(2, 90), c = noise(3, 80), d = noise(4, 70);
  r.aux(0, 100, framed({{0x10, a}, {0x12, b}}));
  r.aux(1, 200, framed({{0x12, c}, {0x10, d}}));
  const Made made = make(r);
  Bytes first = a, second = b;
  first.insert(first.end(), d.begin(), d.end());
  second.insert(second.end(), c.begin(), c.end());
  EXPECT_EQ(made.traces(), (Traces{{"cpu0", first}, {"cpu1", second}}));
  EXPECT_TRUE(made.stream("cpu0").pieces.at(1).discontinuity);
}

TEST(CsPerf, RawRings) {
  CsRecording r(1, {etm4_block(0, 0x10), etm4_block(1, 0x12)});
  const Bytes a = noise(1, 1001), b = noise(2, 77);
  r.aux(0, 100, a, kRawFlag);
  r.aux(1, 110, b, kRawFlag);
  const Made made = make(r);
  EXPECT_EQ(made.traces(), (Traces{{"cpu0", a}, {"cpu1", b}}));
  EXPECT_EQ(made.streams.units[1].cpu, 1);
}

// Snapshots of a ring that is overwritten: many more AUX records than snapshots, each with the offset where its
// bytes end. What a snapshot has was made before the record that ends there, not before the first one of all.
TEST(CsPerf, SnapshotsHaveTheTimeOfTheRecordThatEndsThere) {
  constexpr uint64_t kOverwrite = 2;
  const Bytes a = noise(1, 1001), b = noise(2, 96);
  for (const bool ordered : {true, false}) {
    CsRecording r(1, {etm4_block(0, 0x10)});
    r.start(0, 50);
    const std::pair<uint64_t, uint64_t> records[] = {{4096, 100},        {8192, ordered ? 200 : 60},
                                                     {8192 + 1001, 300}, {12288, 400},
                                                     {16384, 500},       {16480, 600}};
    for (const auto& [end, time] : records)
      r.writer.aux(end, 4096, kRawFlag | kOverwrite, r.trailer(0, time));
    Bytes padded = a;
    padded.resize(1008);
    r.writer.auxtrace({.offset = 8192, .reference = 1, .idx = 0, .cpu = 0}, padded);
    r.writer.auxtrace({.offset = 16384, .reference = 1, .idx = 0, .cpu = 0}, b);
    const Made made = make(r);
    const Stream& stream = made.stream("cpu0");
    ASSERT_EQ(stream.pieces.size(), 2U);
    EXPECT_EQ(stream.pieces[0].time.hi, ordered ? 300 : kTimeMax);
    EXPECT_EQ(stream.pieces[1].time.hi, ordered ? 600 : kTimeMax);
    EXPECT_EQ(stream.pieces[1].time.lo, kTimeMin);
  }
}

// A snapshot in which the trace was stopped by a full buffer and went on later: what follows does not continue it.
TEST(CsPerf, SnapshotsAreCutWhereTheTraceStopped) {
  constexpr uint64_t kTruncated = 1, kOverwrite = 2, kCollision = 8;
  const Bytes a = noise(1, 4096);
  CsRecording r(1, {etm4_block(0, 0x10)});
  r.start(0, 50);
  const std::tuple<uint64_t, uint64_t, uint64_t> records[] = {
      {8192, 100, kCollision},  {9000, 200, kCollision},  {10000, 300, 0},
      {11000, 400, kTruncated}, {12288, 500, kCollision}, {13000, 600, kCollision}};
  for (const auto& [end, time, flags] : records)
    r.writer.aux(end, 1000, kRawFlag | kOverwrite | flags, r.trailer(0, time));
  r.writer.auxtrace({.offset = 8192, .reference = 1, .idx = 0, .cpu = 0}, a);
  const Made made = make(r);
  EXPECT_EQ(made.traces(), (Traces{{"cpu0", a}}));
  const Stream& stream = made.stream("cpu0");
  ASSERT_EQ(stream.pieces.size(), 3U);
  const uint64_t sizes[] = {808, 2000, 1288};
  const Time before[] = {200, 400, 500};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(stream.pieces[i].bytes.size(), sizes[i]);
    EXPECT_EQ(stream.pieces[i].time.hi, before[i]);
    EXPECT_TRUE(stream.pieces[i].discontinuity);
  }
}

// A thread's ring: raw trace belongs to the CPU that wrote the record, framed trace to the IDs in it.
TEST(CsPerf, RingsOfThreads) {
  CsRecording r(1, {etm4_block(0, 0x10), etm4_block(1, 0x12)});
  const Bytes a = noise(1, 100), b = noise(2, 90), c = noise(3, 80), d = noise(4, 70);
  r.aux(0, 100, a, kRawFlag, 42);
  r.aux(1, 200, b, kRawFlag, 42);
  r.aux(0, 300, c, kRawFlag, 42);
  r.aux(1, 250, framed({{0x12, d}}), 0, 43);
  const Made made = make(r);
  Bytes joined = a;
  joined.insert(joined.end(), c.begin(), c.end());
  EXPECT_EQ(made.traces(), (Traces{{"tid42:cpu0", joined}, {"tid42:cpu1", b}, {"tid43", d}}));
  EXPECT_TRUE(made.stream("tid42:cpu0").pieces.at(1).discontinuity);
  EXPECT_EQ(made.stream("tid43").tid, 43);
  EXPECT_EQ(made.stream("tid43").cpu, -1);
}

// perf 6.1 records no CPU with a thread's trace. Which one it was does not matter where all units are alike.
TEST(CsPerf, ThreadWithoutCpus) {
  CsRecording alike(1, {etm4_block(0, 0x10), etm4_block(1, 0x12)});
  const Bytes a = noise(1, 100), b = noise(2, 90);
  alike.aux(-1, 100, a, kRawFlag, 42);
  alike.aux(-1, 200, b, kRawFlag, 42);
  const Made made = make(alike);
  Bytes joined = a;
  joined.insert(joined.end(), b.begin(), b.end());
  EXPECT_EQ(made.traces(), (Traces{{"tid42", joined}}));
  EXPECT_TRUE(made.stream("tid42").pieces.at(1).discontinuity);

  CsBlock other = etm4_block(1, 0x12);
  other.params.at(0) ^= 1U << 12U;  // TRCCONFIGR
  CsRecording different(1, {etm4_block(0, 0x10), other});
  different.aux(-1, 100, a, kRawFlag, 42);
  EXPECT_TRUE(make(different).traces().empty());
  EXPECT_TRUE(make(different).has_notice(Code::kTraceWithoutOwner));
}

TEST(CsPerf, TraceIdsFromRecords) {
  const auto blocks = std::vector<CsBlock>{etm4_block(0, 1ULL << 31U), etm4_block(1, 1ULL << 31U)};
  const Bytes a = noise(1, 100), b = noise(2, 90);
  CsRecording r(2, blocks);
  r.hw_id(0, 0x21);
  r.hw_id(1, 0x23);
  r.aux(0, 100, framed({{0x21, a}}));
  r.aux(1, 100, framed({{0x23, b}}));
  EXPECT_EQ(make(r).traces(), (Traces{{"cpu0", a}, {"cpu1", b}}));
  EXPECT_EQ(make(r).streams.units[0].source.trace_id, 0x21);

  // The same ID on two sinks.
  CsRecording sinks(2, blocks);
  sinks.hw_id(0, 0x21 | uint64_t{7} << 8U | uint64_t{1} << 56U);
  sinks.hw_id(1, 0x21 | uint64_t{9} << 8U | uint64_t{1} << 56U);
  sinks.aux(0, 100, framed({{0x21, a}}));
  sinks.aux(1, 100, framed({{0x21, b}}));
  EXPECT_EQ(make(sinks).traces(), (Traces{{"cpu0", a}, {"cpu1", b}}));

  // Two CPUs, one ID, one sink: reported, and the first keeps it. An unknown version: reported.
  CsRecording clash(2, blocks);
  clash.hw_id(0, 0x21);
  clash.hw_id(1, 0x21);
  clash.hw_id(1, uint64_t{5} << 56U | 0x22);
  clash.aux(0, 100, framed({{0x21, a}}));
  const Made made = make(clash);
  EXPECT_EQ(made.traces(), (Traces{{"cpu0", a}}));
  EXPECT_TRUE(made.has_notice(Code::kBadTraceIdRecord));
}

TEST(CsPerf, TraceOfNobody) {
  CsRecording r(1, {etm4_block(0, 0x10)});
  const Bytes a = noise(1, 100);
  r.aux(0, 100, framed({{0x10, a}, {0x55, noise(2, 33)}}));
  r.aux(3, 100, noise(3, 50), kRawFlag);
  const Made made = make(r);
  EXPECT_EQ(made.traces(), (Traces{{"cpu0", a}}));
  EXPECT_TRUE(made.has_notice(Code::kTraceWithoutOwner));
}

// A sink that wraps around in its buffer loses the beginning of what it hands over.
TEST(CsPerf, Truncated) {
  CsRecording r(1, {etm4_block(0, 0x10)});
  const Bytes a = noise(1, 100), b = noise(2, 90), c = noise(3, 80);
  r.aux(0, 100, framed({{0x10, a}}));
  r.aux(0, 200, framed({{0x10, b}}), kTruncatedFlag);
  r.aux(0, 300, framed({{0x10, c}}));
  const Made made = make(r);
  const Stream& stream = made.stream("cpu0");
  ASSERT_EQ(stream.pieces.size(), 3U);
  EXPECT_TRUE(stream.pieces[1].discontinuity);
  EXPECT_TRUE(stream.pieces[2].discontinuity);
  ASSERT_EQ(stream.losses.size(), 1U);
  EXPECT_EQ(stream.losses[0].offset, stream.pieces[1].offset);
  EXPECT_EQ(stream.losses[0].code, Code::kAuxFull);
}

// Whatever is changed in the file, no byte of trace is invented, and opening terminates.
TEST(CsPerf, Mutations) {
  CsRecording r(2, {etm4_block(0, 0x10), etm4_block(1, 0x12)});
  r.hw_id(0, 0x10);
  r.hw_id(1, 0x12);
  r.start(0, 10);
  for (uint32_t i = 0; i < 6; ++i) {
    r.aux(static_cast<int32_t>(i % 2), 100 + i, framed({{0x10, noise(i, 150)}, {0x12, noise(i + 9, 40)}}),
          i == 3   ? kTruncatedFlag
          : i == 4 ? kRawFlag
                   : 0);
  }
  const Bytes whole = r.writer.file_bytes();
  const TempFile file(whole);
  std::mt19937 random(5);
  for (int round = 0; round < 1500; ++round) {
    Bytes bytes = whole;
    for (auto i = 1 + random() % 6; i != 0; --i)
      bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    if (round % 10 == 0) bytes.resize(bytes.size() - random() % 200);
    file.rewrite(bytes);
    const auto data = PerfData::open(file.path());
    if (!data || !(*data)->auxtrace_info() || (*data)->auxtrace_info()->type != 3) continue;
    NoticeBook notices;
    const CsStreams streams = make_cs_streams(**data, notices);
    ASSERT_EQ(streams.streams.size(), streams.units.size());
    uint64_t total = 0;
    for (const Stream& stream : streams.streams) {
      uint64_t end = 0;
      for (const StreamPiece& piece : stream.pieces) {
        ASSERT_EQ(piece.offset, end);
        end += piece.size();
      }
      total += stream_bytes(stream).size();
    }
    EXPECT_LE(total, bytes.size() * 2);  // changed offsets may make rings overlap
  }
}

std::filesystem::path shared(const std::string& name) {
  return std::filesystem::path(ASOF_SHARED_DIR) / name;
}
Capture open_shared(const std::filesystem::path& path) {
  CaptureOptions options;
  options.host_files = false;
  auto capture = open_capture(path.string(), options);
  EXPECT_TRUE(capture.has_value()) << capture.error().reason;
  return std::move(*capture);
}

// The same trace with frames and without, apart from what fills the end of each record (Ignore packets).
TEST(CsPerfCorpus, BoardWithFramesAndRaw) {
  const auto folder = shared("captures/arm64-board-tiny");
  SKIP_WITHOUT(folder);
  const Capture frames = open_shared(folder / "poke.data"), raw = open_shared(folder / "poke-rawaux.data");
  ASSERT_EQ(frames.streams.size(), 2U);
  ASSERT_EQ(raw.streams.size(), 2U);
  const auto without_filling = [](const Stream& stream) {
    Bytes bytes = stream_bytes(stream);
    std::erase_if(bytes, [](uint8_t byte) { return byte == 0 || byte == 0x70; });
    return bytes;
  };
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(frames.streams[i].cpu, raw.streams[i].cpu);
    EXPECT_EQ(frames.arm64.sources[i].trace_id, 0x10 + 2 * i);
    EXPECT_GT(frames.streams[i].end(), 850000U);
    EXPECT_EQ(without_filling(frames.streams[i]), without_filling(raw.streams[i]));
  }
  EXPECT_FALSE(frames.arm64.unrecorded_changes);
}

// AUX records of raw trace are late: they leave milliseconds of the clock open, which is reported.
TEST(CsPerfCorpus, CoarseClockIsReported) {
  const auto folder = shared("captures/arm64-board-tiny");
  SKIP_WITHOUT(folder);
  const auto codes = [&](const char* name) {
    std::set<Code> out;
    for (const Notice& n : open_shared(folder / name).notices) out.insert(n.code);
    return out;
  };
  EXPECT_TRUE(codes("poke-rawaux.data").contains(Code::kCoarseDerivedClock));
  EXPECT_FALSE(codes("poke.data").contains(Code::kCoarseDerivedClock));
  EXPECT_TRUE(codes("poke.data").contains(Code::kDerivedClock));
}

TEST(CsPerfCorpus, Simpleperf) {
  const auto folder = shared("corpus/simpleperf-etm");
  SKIP_WITHOUT(folder);
  const Capture frames = open_shared(folder / "perf_etm.data");
  ASSERT_EQ(frames.streams.size(), 1U);
  EXPECT_EQ(frames.streams[0].cpu, 7);
  EXPECT_EQ(frames.arm64.sources[0].trace_id, 0x1e);
  EXPECT_EQ(frames.machine, "aarch64");
  const Capture raw = open_shared(folder / "perf_with_unformatted_trace.data");
  ASSERT_EQ(raw.streams.size(), 1U);
  EXPECT_EQ(raw.arm64.sources[0].protocol, arm64::Protocol::kEte);
  EXPECT_EQ(raw.streams[0].end(), 76U);  // of 80: four are padding
}

}  // namespace
}  // namespace asof::test
