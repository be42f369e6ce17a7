// Single calls of a block stream in parts: joined, they are what one run gives; and block streams that lie about calls.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>

#include "decoder/blocks/block_file.h"
#include "decoder/calls/call_part.h"
#include "decoder/calls/call_stub.h"
#include "tests/tools/recordings.h"
#include "tools/timeline/out_slices.h"
#include "tools/timeline/out_sqlite.h"

namespace asof::test {
namespace {

class CallParts : public RecordingTest {
 protected:
  // `steps`: of a flow record.
  static void write_blocks(const Capture& capture, const std::string& path, bool calls, size_t steps) {
    auto out = Output::open(path);
    ASSERT_TRUE(out);
    DecodeChoice choice;
    choice.pipeline.decode.chunk_steps = steps;
    BlocksConsumer consumer(capture, *out, choice, calls);
    ASSERT_TRUE(run_pipeline(capture, choice.pipeline, ChunkOrder::kByStream, consumer));
    consumer.finish();
    ASSERT_TRUE(out->finish());
  }
};

struct Rows {
  std::string text;
  uint64_t gaps = 0;
  std::optional<Error> error;
};

Rows rows_of(const Capture& capture, std::optional<Shard> part, SliceSink::Format format, unsigned jobs = 2) {
  Rows out;
  SliceSink sink(
      format, [&](std::string_view row) { out.text += row; }, [] { return false; }, nullptr,
      !part || part->index == 0);
  TimelineOptions options;
  options.pipeline.jobs = jobs;
  const auto done =
      part ? run_timeline_part(capture, options, *part, sink) : run_timeline(capture, options, sink);
  if (!done) {
    out.error = done.error();
    return out;
  }
  EXPECT_EQ(done->slices, sink.slices());
  out.gaps = done->gaps;
  return out;
}

// What is in the table of calls, by id.
std::vector<std::string> calls_of(const Capture& capture, std::optional<Shard> part) {
  auto sink = SqliteSink::open(":memory:", false, false);
  EXPECT_TRUE(sink);
  (*sink)->keep_only({"calls", "depth"});
  TimelineOptions options;
  const AroundPart around = [&](uint64_t id, uint64_t parent) { (*sink)->around(id, parent); };
  EXPECT_TRUE(part ? run_timeline_part(capture, options, *part, **sink, around)
                   : run_timeline(capture, options, **sink));
  EXPECT_TRUE((*sink)->finish());
  std::vector<std::string> out;
  sqlite3_stmt* s = nullptr;
  EXPECT_EQ(sqlite3_prepare_v2((*sink)->database(), "SELECT * FROM calls ORDER BY id", -1, &s, nullptr),
            SQLITE_OK);
  while (sqlite3_step(s) == SQLITE_ROW) {
    std::string& row = out.emplace_back();
    for (int i = 0; i < sqlite3_column_count(s); ++i) {
      const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(s, i));
      row += fmt::format("{}|", text == nullptr ? "null" : text);
    }
  }
  sqlite3_finalize(s);
  return out;
}

TEST_P(CallParts, JoinedAreOneRun) {
  const auto capture = open();
  ASSERT_TRUE(capture) << capture.error().reason;
  for (const bool calls : {true, false}) {
    const std::string blocks = dir_.path() / (calls ? "calls.blocks" : "flow.blocks");
    write_blocks(*capture, blocks, calls, 2000);
    const auto read = open_capture(blocks, {});
    ASSERT_TRUE(read) << read.error().reason;
    for (const auto format : {SliceSink::Format::kCsv, SliceSink::Format::kJsonLines}) {
      const Rows want = rows_of(*read, std::nullopt, format);
      // As of the recording, too.
      EXPECT_TRUE(want.text == rows_of(*capture, std::nullopt, format).text);
      for (const uint32_t n : calls ? std::vector<uint32_t>{1, 2, 5, 40} : std::vector<uint32_t>{3}) {
        if (format == SliceSink::Format::kJsonLines && n != 5) continue;
        Rows got;
        for (uint32_t k = 0; k < n; ++k) {
          const Rows part = rows_of(*read, Shard{k, n}, format, 1 + k % 3);
          ASSERT_FALSE(part.error) << part.error->reason;
          got.text += part.text;
          got.gaps += part.gaps;
        }
        EXPECT_TRUE(got.text == want.text) << n << " of " << got.text.size() << " " << want.text.size();
        EXPECT_EQ(got.gaps, want.gaps);
      }
    }
  }
}

TEST_P(CallParts, TablesHaveTheSameRows) {
  const auto capture = open();
  ASSERT_TRUE(capture) << capture.error().reason;
  const std::string blocks = dir_.path() / "calls.blocks";
  write_blocks(*capture, blocks, true, 2000);
  const auto read = open_capture(blocks, {});
  ASSERT_TRUE(read) << read.error().reason;
  const std::vector<std::string> want = calls_of(*read, std::nullopt);
  EXPECT_FALSE(want.empty());
  std::vector<std::string> got;
  constexpr uint32_t kParts = 7;
  for (uint32_t k = 0; k < kParts; ++k)
    std::ranges::move(calls_of(*read, Shard{k, kParts}), std::back_inserter(got));
  const auto number = [](const std::string& row) { return std::stoull(row); };
  std::ranges::sort(got, {}, number);
  EXPECT_TRUE(got == want) << got.size() << " " << want.size();
  EXPECT_TRUE(std::ranges::adjacent_find(got, {}, number) == got.end());
}

INSTANTIATE_TEST_SUITE_P(Captures, CallParts, kSmallerRecordings, RecordingTest::name);

// Changes what a block stream says of the calls of one flow record, with checksums that fit.
void lie(const std::string& path, const Capture& read, size_t which,
         const std::function<void(CallSpan&)>& change) {
  const std::string file = read_file(path);
  const bool has_time = timeline_clock(read) == TimelineSummary::Clock::kNanoseconds;
  std::string out = file.substr(0, blocks::kHeaderSize);
  for (size_t at = blocks::kHeaderSize, number = 0; at < file.size();) {
    uint32_t size = 0, raw = 0;
    std::memcpy(&size, file.data() + at + 8, sizeof size);
    std::memcpy(&raw, file.data() + at + 12, sizeof raw);
    std::string record = file.substr(at, blocks::kRecordHeader + size);
    at += record.size();
    const size_t body = blocks::kRecordHeader + static_cast<uint8_t>(record[5]);
    if (record[4] == static_cast<char>(blocks::RecordType::kCalls) && number++ == which) {
      std::vector<uint8_t> said(raw);
      ASSERT_EQ(ZSTD_decompress(said.data(), raw, record.data() + body, record.size() - body), raw);
      FlowOps ops;
      ASSERT_TRUE(take_calls(said, read.symbols.all(), has_time, ops));
      ASSERT_FALSE(ops.spans.empty());
      change(ops.spans.front());
      said = put_calls(ops, has_time);
      std::string packed(ZSTD_compressBound(said.size()), '\0');
      packed.resize(ZSTD_compress(packed.data(), packed.size(), said.data(), said.size(), 1));
      record = record.substr(0, body) + packed;
      size = static_cast<uint32_t>(record.size() - blocks::kRecordHeader);
      raw = static_cast<uint32_t>(said.size());
      std::memcpy(record.data() + 8, &size, sizeof size);
      std::memcpy(record.data() + 12, &raw, sizeof raw);
    }
    out += record;
  }
  std::ofstream(path, std::ios::binary) << out;
}

class LyingCalls : public CallParts {
 protected:
  // Parts of it, and which are refused.
  struct Parts {
    std::string text;
    std::vector<uint32_t> refused;
  };
  Parts parts_after(const std::function<void(CallSpan&)>& change) {
    const auto capture = open();
    EXPECT_TRUE(capture);
    const std::string blocks = dir_.path() / "calls.blocks";
    write_blocks(*capture, blocks, true, 2000);
    {
      const auto read = open_capture(blocks, {});
      EXPECT_TRUE(read);
      want_ = rows_of(*read, std::nullopt, SliceSink::Format::kCsv).text;
      lie(blocks, *read, kRecord, change);
    }
    const auto read = open_capture(blocks, {});
    EXPECT_TRUE(read);
    Parts out;
    for (uint32_t k = 0; k < kParts; ++k) {
      const Rows part = rows_of(*read, Shard{k, kParts}, SliceSink::Format::kCsv, 1 + k % 3);
      out.text += part.text;
      if (!part.error) continue;
      out.refused.push_back(k);
      EXPECT_EQ(part.error->code, Code::kBadBlockStream);
      EXPECT_NE(part.error->offset, Error::kNoOffset);
    }
    return out;
  }
  static constexpr size_t kRecord = 3;
  static constexpr uint32_t kParts = 4;
  std::string want_;
};

// Ids of later parts would repeat those of calls that it does not count.
TEST_P(LyingCalls, ThePartThatHasTheFlowRefuses) {
  EXPECT_EQ(parts_after([](CallSpan& s) { --s.calls; }).refused.size(), 1U);
  EXPECT_EQ(parts_after([](CallSpan& s) { s.instructions += 1; }).refused.size(), 1U);
}

// More calls than ops: that is damage, and every part reads the flow instead.
TEST_P(LyingCalls, MoreThanThereCanBeAreNotBelieved) {
  const Parts parts = parts_after([](CallSpan& s) { s.calls = UINT64_MAX; });
  EXPECT_TRUE(parts.refused.empty());
  EXPECT_TRUE(parts.text == want_);
}

INSTANTIATE_TEST_SUITE_P(Captures, LyingCalls,
                         ::testing::Values(TestRecording{"tailcall_612",
                                                         "machine-6.12/kernel-tailcall.tar.xz", "perf.data"},
                                           TestRecording{"userkernel", "x86-board-userkernel", "perf.data"}),
                         RecordingTest::name);

}  // namespace
}  // namespace asof::test
