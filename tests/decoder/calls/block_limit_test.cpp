// BlockLimit: straight runs that a sink does not take are counted, and nothing else changes.
#include "decoder/calls/block_limit.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <tuple>
#include <vector>

#include "tests/decoder/capture_test_util.h"
#include "tests/support/pt_writer.h"

namespace asof {
namespace {

using namespace test;

constexpr Addr kCode = 0xffffffff81000000;
// main: call f; jmp main; ...; f: nop; ret
const Bytes kText = {0xe8, 0x02, 0x00, 0x00, 0x00, 0xeb, 0xf9, 0x90, 0xc3};

// A trace without times; `damage`: with a gap in it.
Capture loop(const TempDir& dir, size_t rounds, bool damage = false) {
  PtWriter w;
  for (size_t i = 0; i < rounds; ++i) {
    if (i % 50 == 0) {
      PsbPlus group;
      group.ip = kCode;
      w.psb_plus(group);
    }
    if (damage && i == rounds / 2) w.tip(kCode + 0x5000);
    w.tnt(true);
  }
  w.flush();
  w.tip_pgd();
  write_bytes(dir / "trace.pt", w.bytes());
  write_bytes(dir / "text.img", kText);
  write_text(dir / "bundle.json",
             R"({"format": "asof-bundle", "version": 1, "arch": "x86-64",
                 "streams": [{"file": "trace.pt", "cpu": 0}],
                 "text": [{"file": "text.img", "address": "0xffffffff81000000"}]})");
  auto capture = open_capture((dir / "bundle.json").string(), closed_options());
  if (!capture) throw std::runtime_error(capture.error().reason);
  return *std::move(capture);
}

using SliceKey =
    std::tuple<uint64_t, uint64_t, uint32_t, Time, Time, uint64_t, uint64_t, uint32_t, Confidence>;
SliceKey key_of(const Slice& s) {
  return {s.id,    s.parent,    s.function, s.begin, s.end, s.instructions, s.self_instructions,
          s.flags, s.confidence};
}

class Seen final : public TimelineSink {
 public:
  void slice(const Slice& s) override { slices.push_back(key_of(s)); }
  void gap(const GapSlice& g) override { gaps.emplace_back(g.begin, g.end, g.code); }
  void block(const BlockSlice&) override { ++blocks; }
  std::vector<SliceKey> slices;
  std::vector<std::tuple<Time, Time, Code>> gaps;
  uint64_t blocks = 0;
};

TimelineOptions all_of_it(unsigned jobs) {
  TimelineOptions options;
  options.pipeline.jobs = jobs;
  options.detail = true;
  return options;
}

TEST(BlockLimit, NothingButTheRunsIsLeftOut) {
  for (const bool damage : {false, true}) {
    const TempDir dir;
    const Capture capture = loop(dir, 1000, damage);
    Seen all;
    ASSERT_TRUE(run_timeline(capture, all_of_it(1), all));
    EXPECT_GT(all.blocks, damage ? 2000U : 2990U);
    EXPECT_EQ(all.gaps.empty(), !damage);
    for (const unsigned jobs : {1U, 3U}) {
      Seen rest;
      BlockLimit limit;
      limit.full = true;
      ASSERT_TRUE(run_timeline_limited(capture, all_of_it(jobs), rest, limit, {}));
      EXPECT_EQ(rest.blocks, 0U);
      EXPECT_EQ(limit.left_out, all.blocks);
      EXPECT_EQ(rest.slices, all.slices);
      EXPECT_EQ(rest.gaps, all.gaps);
    }
  }
}

TEST(BlockLimit, TimelinesKeepTheFirstOnes) {
  const TempDir dir;
  const Capture capture = loop(dir, 1000);
  const auto all = make_timeline(capture, all_of_it(1));
  ASSERT_TRUE(all);
  ASSERT_EQ(all->blocks_left_out, 0U);
  for (const unsigned jobs : {1U, 2U, 4U}) {
    const auto some = make_timeline(capture, all_of_it(jobs), {.blocks = 100});
    ASSERT_TRUE(some);
    ASSERT_EQ(some->blocks.size(), 100U);
    EXPECT_EQ(some->blocks_left_out, all->blocks.size() - 100);
    for (size_t i = 0; i < 100; ++i) {
      EXPECT_EQ(some->blocks[i].id, all->blocks[i].id);
      EXPECT_EQ(some->blocks[i].piece.ip, all->blocks[i].piece.ip);
      EXPECT_EQ(some->blocks[i].begin, all->blocks[i].begin);
      EXPECT_EQ(some->blocks[i].end, all->blocks[i].end);
    }
    ASSERT_EQ(some->slices.size(), all->slices.size());
    for (size_t i = 0; i < all->slices.size(); ++i)
      EXPECT_EQ(key_of(some->slices[i]), key_of(all->slices[i]));
  }
}

}  // namespace
}  // namespace asof
