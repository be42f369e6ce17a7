// Decoders that are not asof's own, in children: what they give arrives as it was; one that dies costs its segment, and that is
// told.
#include "arch/forked_decoder.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <string>
#include <thread>

namespace asof::test {
namespace {

constexpr std::array<uint8_t, 5> kBytes{0x90, 0x75, 0x02, 0x0f, 0x1f};
constexpr std::array<uint8_t, 3> kLengths{1, 2, 2};

class Foreign final : public SegmentDecoder {
 public:
  Foreign() {
    block_.ip = 0x401000, block_.size = 5, block_.count = 3, block_.kind = BranchKind::kCond,
    block_.target = 0x401010;
    block_.bytes = kBytes.data(), block_.lengths = kLengths.data(), block_.space = 7;
  }
  void decode(const Segment& s, ChunkSink& sink) override {
    if (s.index == 1) raise(SIGSEGV);
    Chunk chunk;
    chunk.stream = s.stream;
    chunk.segment = s.index;
    if (s.before) chunk.gaps.push_back(*s.before);
    for (uint32_t count : {3U, 1U, 3U}) {
      Step step;
      step.block = &block_, step.time = 100 + count, step.count = count, step.flags = Step::kTaken;
      step.confidence = Confidence::kProved;
      chunk.steps.push_back(step);
    }
    chunk.events.push_back({EventKind::kPtwrite, 2, 55, 0x401003, 1, 8, 99});
    if (s.index == 2) {
      sink.take(std::move(chunk));
      abort();
    }
    if (s.index == 3) _exit(0);
    Gap gap;
    gap.step = 3, gap.begin = 5, gap.end = 9, gap.code = Code::kNoBytes, gap.reason = "a reason";
    gap.time = {1, 2}, gap.ip = 4, gap.resume_ip = 6;
    chunk.gaps.push_back(gap);
    chunk.last = true;
    sink.take(std::move(chunk));
  }

 private:
  Block block_;
};

struct Kept final : ChunkSink {
  void take(Chunk&& chunk) override { chunks.push_back(std::move(chunk)); }
  std::vector<Chunk> chunks;
};

Segment segment(size_t index) {
  Segment s;
  s.stream = 2, s.index = index, s.begin = 10 * index, s.end = 10 * index + 10, s.start_time = 50;
  Gap& before = s.before.emplace();
  before.begin = 1;
  before.end = 2;
  before.code = Code::kAuxFull;
  before.reason = "before";
  return s;
}

void expect_whole(const std::vector<Chunk>& chunks) {
  ASSERT_EQ(chunks.size(), 1U);
  const Chunk& c = chunks[0];
  EXPECT_EQ(c.stream, 2U);
  EXPECT_TRUE(c.last);
  std::vector<Step> steps;
  for (const Step& s : c.steps) steps.push_back(s);
  ASSERT_EQ(steps.size(), 3U);
  const Block& b = *steps[0].block;
  EXPECT_EQ(steps[2].block, &b);
  EXPECT_EQ(b.ip, 0x401000U);
  EXPECT_EQ(b.target, 0x401010U);
  EXPECT_EQ(b.space, 7U);
  EXPECT_EQ(b.kind, BranchKind::kCond);
  EXPECT_TRUE(std::equal(kBytes.begin(), kBytes.end(), b.bytes));
  EXPECT_TRUE(std::equal(kLengths.begin(), kLengths.end(), b.lengths));
  // 0x401000, 0x401001, 0x401003.
  EXPECT_EQ(b.hash, (0x401000 * kHashFactor + 0x401001) * kHashFactor + 0x401003);
  EXPECT_EQ(b.power, kHashFactor * kHashFactor * kHashFactor);
  EXPECT_EQ(steps[1].count, 1U);
  EXPECT_EQ(steps[1].time, 101);
  EXPECT_EQ(steps[1].flags, Step::kTaken);
  EXPECT_EQ(steps[1].confidence, Confidence::kProved);
  ASSERT_EQ(c.events.size(), 1U);
  EXPECT_EQ(c.events[0].kind, EventKind::kPtwrite);
  EXPECT_EQ(c.events[0].offset, 99U);
  ASSERT_EQ(c.gaps.size(), 2U);
  EXPECT_EQ(c.gaps[0].code, Code::kAuxFull);
  EXPECT_EQ(c.gaps[1].reason, "a reason");
  EXPECT_EQ(c.gaps[1].resume_ip, 6U);
}

TEST(ForkedDecoder, GivesWhatTheDecoderGives) {
  const auto decoder = in_children(std::make_unique<Foreign>(), "other");
  for (int i = 0; i < 2; ++i) {
    Kept kept;
    decoder->decode(segment(0), kept);
    expect_whole(kept.chunks);
  }
}

TEST(ForkedDecoder, ADeathIsAGapAndTheNextSegmentIsDecoded) {
  const auto decoder = in_children(std::make_unique<Foreign>(), "other");
  for (const auto& [index, why] : {std::pair(1, "other crashed (signal 11)"),
                                   {2, "other crashed (signal 6)"},
                                   {3, "ended without an answer"}}) {
    Kept kept;
    decoder->decode(segment(static_cast<size_t>(index)), kept);
    const size_t before = index == 2 ? 1 : 0;  // what it had given of the segment
    ASSERT_EQ(kept.chunks.size(), before + 1);
    const Chunk& c = kept.chunks.back();
    EXPECT_TRUE(c.last);
    ASSERT_EQ(c.gaps.size(), 2 - before);
    EXPECT_EQ(c.gaps.back().code, Code::kBadPacket);
    EXPECT_NE(c.gaps.back().reason.find(why), std::string::npos) << c.gaps.back().reason;
    EXPECT_EQ(c.gaps.back().begin, 10U * static_cast<unsigned>(index));
    EXPECT_EQ(c.gaps.back().end, 10U * static_cast<unsigned>(index) + 10);
    Kept next;
    decoder->decode(segment(0), next);
    expect_whole(next.chunks);
  }
}

TEST(ForkedDecoder, FromSeveralThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      const auto decoder = in_children(std::make_unique<Foreign>(), "other");
      for (size_t i = 0; i < 20; ++i) {
        Kept kept;
        decoder->decode(segment(i % 4), kept);
        EXPECT_TRUE(!kept.chunks.empty() && kept.chunks.back().last);
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace asof::test
