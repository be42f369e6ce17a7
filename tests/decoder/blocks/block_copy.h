// Writes captures as block streams, and holds all that can be seen of what is read back.
#pragma once
#include <gtest/gtest.h>

#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "decoder/blocks/block_writer.h"
#include "decoder/pipeline/pipeline.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/temp_dir.h"

namespace asof::test {

using Bytes = std::vector<uint8_t>;

// All that a consumer can see of one stream, except how it is cut into chunks.
struct Seen {
  uint64_t steps = 0, instructions = 0, events = 0, gaps = 0;
  uint64_t hash = 0;
  bool operator==(const Seen&) const = default;
};

class Watch : public ChunkConsumer {
 public:
  explicit Watch(size_t streams) : streams(streams) {}
  void deliver(Chunk& c, const Stream&, Prepared*) override {
    Seen& s = streams[c.stream];
    size_t event = 0, gap = 0;
    const auto before = [&](size_t position) {
      for (; event < c.events.size() && c.events[event].step <= position; ++event) add(s, c.events[event]);
      for (; gap < c.gaps.size() && c.gaps[gap].step <= position; ++gap) add(s, c.gaps[gap]);
    };
    for (auto it = c.steps.begin(); it != c.steps.end(); ++it) {
      before(it.position());
      add(s, *it);
    }
    before(SIZE_MAX);
    starts_ascend = starts_ascend && c.segment_start >= last_start_;
    last_start_ = c.segment_start;
  }
  std::vector<Seen> streams;
  bool starts_ascend = true;
  bool damage_reported = false;

 private:
  static void mix(Seen& s, uint64_t v) { s.hash = (s.hash ^ v) * 0x9E3779B97F4A7C15ULL ^ s.hash >> 29; }
  static void mix(Seen& s, std::string_view text) {
    for (const char c : text) mix(s, static_cast<uint64_t>(c));
  }
  void add(Seen& s, const Step& step) {
    const Block& b = *step.block;
    ++s.steps;
    s.instructions += step.count;
    const bool taken = b.kind == BranchKind::kCond && (step.flags & Step::kTaken) != 0;
    for (const uint64_t v :
         {b.ip, b.target, uint64_t{b.size}, uint64_t{b.count}, uint64_t{b.mode},
          static_cast<uint64_t>(b.kind), uint64_t{b.space}, uint64_t{b.origin}, static_cast<uint64_t>(b.from),
          static_cast<uint64_t>(b.until), b.hash, b.power, static_cast<uint64_t>(step.time),
          uint64_t{step.count}, static_cast<uint64_t>(step.confidence),
          static_cast<uint64_t>(step.flags & ~Step::kTaken), static_cast<uint64_t>(taken)})
      mix(s, v);
    for (uint32_t i = 0; i < b.size; ++i) mix(s, b.bytes[i]);
    for (uint32_t i = 0; i < b.count; ++i) mix(s, b.lengths[i]);
  }
  void add(Seen& s, const Event& e) {
    ++s.events;
    for (const uint64_t v :
         {static_cast<uint64_t>(e.kind), static_cast<uint64_t>(e.time), e.ip, e.a, e.b, e.offset})
      mix(s, v);
  }
  void add(Seen& s, const Gap& g) {
    ++s.gaps;
    damage_reported = damage_reported || g.code == Code::kBadBlockStream;
    for (const uint64_t v : {g.begin, g.end, static_cast<uint64_t>(g.time.lo),
                             static_cast<uint64_t>(g.time.hi), g.ip, g.resume_ip})
      mix(s, v);
    mix(s, code_text(g.code));
    mix(s, g.reason);
  }
  Time last_start_ = kTimeMin;
};

inline Watch watch(const Capture& capture, const PipelineOptions& options = {}) {
  Watch w(capture.streams.size());
  EXPECT_TRUE(run_pipeline(capture, options, ChunkOrder::kByTime, w).has_value());
  return w;
}

class Record : public ChunkConsumer {
 public:
  explicit Record(const Capture& capture, Time last = kTimeMax)
      : last_(last), writer_(capture, [this](std::span<const uint8_t> b) {
          bytes.insert(bytes.end(), b.begin(), b.end());
        }) {}
  void deliver(Chunk& c, const Stream&, Prepared*) override {
    if (!c.steps.empty() || c.segment_start <= last_) writer_.add(c);
  }
  void finish() { writer_.finish(); }
  void stop() { writer_.stop(); }
  Bytes bytes;

 private:
  const Time last_;  // what is behind it belongs to another part
  blocks::BlockWriter writer_;
};

inline Bytes write(const Capture& capture, PipelineOptions options = {}) {
  Record r(capture, options.time.hi);
  EXPECT_TRUE(run_pipeline(capture, options, ChunkOrder::kByTime, r).has_value());
  r.finish();
  return r.bytes;
}

inline Result<Capture> read(const TempDir& dir, const Bytes& bytes, const std::string& name = "x.blocks") {
  write_bytes(dir.path() / name, bytes);
  return open_capture((dir.path() / name).string(), {});
}

inline Capture open(const std::string& path, const std::string& symfs = {}) {
  CaptureOptions options;
  options.symfs = symfs;
  auto capture = open_capture(path, options);
  if (!capture) throw std::runtime_error(capture.error().reason);
  return std::move(*capture);
}

inline const std::string kData = ASOF_TEST_DATA;
inline Capture open_demo() { return open(kData + "/demo/perf.data", kData + "/demo/symfs"); }

}  // namespace asof::test
