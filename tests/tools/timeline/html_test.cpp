// The HTML view's data: positions of what has no time of its own, packed numbers, and text from hostile
// files. tests/browser tests what the page does with them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/sim_random.h"
#include "tests/tools/timeline/html_unpack.h"
#include "tools/timeline/html_json.h"
#include "tools/timeline/html_pack.h"
#include "tools/timeline/html_spread.h"

namespace asof::test {
namespace {

Slice slice(uint64_t id, uint64_t parent, uint32_t depth, Time begin, Time end, uint64_t self = 10) {
  Slice s;
  s.id = id;
  s.parent = parent;
  s.depth = depth;
  s.begin = begin;
  s.end = end;
  s.self_instructions = self;
  s.cpu = 0;
  return s;
}

Timeline on_one_cpu(Time begin, Time end) {
  Timeline t;
  t.summary.begin = begin;
  t.summary.end = end;
  t.tracks.push_back({0, TimelineTrack::Kind::kCpu, 0, -1, -1, "CPU 0"});
  return t;
}

TEST(HtmlSpread, WhatHappenedBetweenTwoTimesIsSpreadInOrder) {
  Timeline t = on_one_cpu(1000, 2000);
  t.slices = {slice(1, 0, 0, 1000, 1100, 10), slice(2, 1, 1, 1000, 1000, 30), slice(3, 1, 1, 1000, 1000, 30),
              slice(4, 0, 0, 1100, 2000)};
  const TimelineSpread s(t);
  EXPECT_EQ(s.slices[0].begin, 0u);
  EXPECT_GT(s.slices[1].begin, s.slices[0].begin);
  EXPECT_GT(s.slices[1].end, s.slices[1].begin) << "30 instructions must be visible";
  EXPECT_GT(s.slices[2].begin, s.slices[1].end);
  EXPECT_LT(s.slices[2].end, 100 * kHtmlUnit) << "before the next time";
  EXPECT_EQ(s.slices[0].end, 100 * kHtmlUnit);
  EXPECT_NEAR(static_cast<double>(s.slices[3].begin), 100 * kHtmlUnit, kHtmlUnit) << "just after that end";
  EXPECT_EQ(s.slices[3].end, 1000 * kHtmlUnit);
}

TEST(HtmlSpread, ASleepIsNotFilledWithWhatRanBefore) {
  Timeline t = on_one_cpu(0, 10'000'000);
  t.slices = {slice(1, 0, 0, 0, 10'000'000, 100), slice(2, 1, 1, 0, 0, 20)};
  const TimelineSpread s(t);
  EXPECT_LT(s.slices[1].end, 1000 * kHtmlUnit) << "20 instructions do not take 10 ms";
  EXPECT_EQ(s.slices[0].end, 10'000'000 * kHtmlUnit);
}

TEST(HtmlSpread, StraightRunsTellWhereCallsAre) {
  Timeline t = on_one_cpu(0, 1000);
  t.slices = {slice(1, 0, 0, 0, 1000, 40), slice(2, 1, 1, 0, 0, 10)};
  for (const auto& [in, count] : {std::pair{1, 30}, {2, 10}, {1, 10}}) {
    BlockSlice b;
    b.cpu = 0;
    b.in = static_cast<uint64_t>(in);
    b.piece.lengths.assign(static_cast<size_t>(count), 1);
    t.blocks.push_back(b);
  }
  const TimelineSpread s(t);
  EXPECT_LE(s.blocks[0].end, s.slices[1].begin);
  EXPECT_GE(s.blocks[1].begin, s.slices[1].begin);
  EXPECT_LE(s.blocks[1].end, s.slices[1].end);
  EXPECT_GE(s.blocks[2].begin, s.slices[1].end);
  const auto length = [&](size_t i) { return static_cast<double>(s.blocks[i].end - s.blocks[i].begin); };
  EXPECT_NEAR(length(0) / length(1), 3, 0.1) << "by instructions";
}

// Whatever the times are, order and nesting are kept, and nothing leaves its interval.
TEST(HtmlSpread, RandomTreesStayInOrderAndNested) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SimRandom random(seed);
    Timeline t = on_one_cpu(500, 500);
    t.tracks.push_back({1, TimelineTrack::Kind::kThread, -1, 1, 1, "thread"});
    for (uint32_t track = 0; track < 2; ++track) {
      std::vector<size_t> open;
      Time now = 500;
      for (int i = 0; i < 200 || !open.empty(); ++i) {
        now += random.chance(30) ? static_cast<Time>(random.below(100)) : 0;
        if (i < 200 && (open.empty() || random.chance(52))) {
          Slice s = slice(t.slices.size() + 1, open.empty() ? 0 : t.slices[open.back()].id,
                          static_cast<uint32_t>(open.size()), now, now, random.below(50));
          s.track = track;
          open.push_back(t.slices.size());
          t.slices.push_back(s);
        } else {
          t.slices[open.back()].end = now;
          open.pop_back();
        }
      }
      t.summary.end = std::max(t.summary.end, now);
    }
    const TimelineSpread s(t);
    for (size_t i = 0; i < t.slices.size(); ++i) {
      EXPECT_LE(s.slices[i].begin, s.slices[i].end);
      EXPECT_GE(s.slices[i].begin, html_position(t.summary, t.slices[i].begin));
      EXPECT_LE(s.slices[i].end, html_position(t.summary, t.summary.end));
      if (t.slices[i].parent != 0) {
        const Span parent = s.slices[t.slices[i].parent - 1];
        EXPECT_GE(s.slices[i].begin, parent.begin);
        EXPECT_LE(s.slices[i].end, parent.end);
      }
      const bool same = i > 0 && t.slices[i].track == t.slices[i - 1].track;
      if (same) {
        EXPECT_GE(s.slices[i].begin, s.slices[i - 1].begin);
      }
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST(HtmlSpread, TimesOfDamagedCapturesStayInOrder) {
  Timeline t = on_one_cpu(kTimeMin + 5, kTimeMax - 5);
  t.slices = {slice(1, 0, 0, kTimeMin + 5, kTimeMax - 5), slice(2, 1, 1, 0, kTimeMax - 6)};
  const TimelineSpread s(t);
  EXPECT_LE(s.slices[0].begin, s.slices[1].begin);
  EXPECT_LE(s.slices[1].begin, s.slices[1].end);
  EXPECT_LE(s.slices[1].end, s.slices[0].end);
}

TEST(HtmlPack, NumbersAndBase64) {
  PackedNumbers p;
  EXPECT_EQ(base64(p.bytes()), "");
  p.number(0);
  EXPECT_EQ(base64(p.bytes()), "AA==");
  p.number(300);  // ac 02
  EXPECT_EQ(base64(p.bytes()), "AKwC");
  p.signed_number(-1);
  EXPECT_EQ(base64(p.bytes()), "AKwCAQ==");
  p.number(UINT64_MAX);
  EXPECT_EQ(p.size(), 4u + 10u);
}

TEST(HtmlPack, PackedIsGzipInBase64) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += fmt::format("</script>{}", i % 7);
  const std::string page = packed(text);
  EXPECT_LT(page.size(), text.size() / 50);
  EXPECT_EQ(page.find('<'), std::string::npos) << "nothing in it can end the script";
  EXPECT_EQ(unpacked(page), text);
  EXPECT_EQ(unpacked(packed("")), "");
}

TEST(HtmlJson, HostileNamesAreStrings) {
  const std::string name = "</script><!--\xff\x01\"\\\xe2\x80\xa8";
  HtmlJson json;
  json.open('{')
      .pair("a", name)
      .key("list")
      .open('[')
      .number(1)
      .null()
      .text("<b>")
      .close(']')
      .pair_number("z", -3)
      .close('}');
  const auto doc = nlohmann::json::parse(json.all());
  EXPECT_TRUE(doc["a"].get<std::string>().starts_with("</script><!--?"));
  EXPECT_EQ(doc["list"].dump(), "[1,null,\"<b>\"]");
  EXPECT_EQ(doc["z"], -3);
}

}  // namespace
}  // namespace asof::test
