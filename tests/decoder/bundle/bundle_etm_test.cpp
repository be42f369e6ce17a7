// Raw bundles of ETM trace: registers, frames shared by several streams, time; and what is refused.
#include <gtest/gtest.h>

#include "decoder/bundle/bundle.h"
#include "tests/decoder/capture_test_util.h"
#include "tests/decoder/coresight/cs_test_util.h"

namespace asof::test {
namespace {

Result<Capture> open_text(const TempDir& dir, const std::string& body) {
  write_bytes(dir.path() / "etf.bin", framed({{0x10, noise(1, 200)}, {0x12, noise(2, 100)}}));
  write_bytes(dir.path() / "raw.bin", noise(3, 50));
  write_bytes(dir.path() / "text.img", noise(4, 64));
  write_text(dir.path() / "bundle.json",
             R"({"format": "asof-bundle", "version": 1, "arch": "arm64", "text": [], )" + body + "}");
  return open_bundle((dir.path() / "bundle.json").string(), closed_options());
}

TEST(BundleEtm, SourcesFramesAndTime) {
  const TempDir dir;
  const auto capture = open_text(
      dir,
      R"("etm": {"configr": "0x801", "idr0": "0x28000ea1", "time_shift": 21, "time_mult": 33554432, "time_zero": 5},
         "streams": [{"file": "etf.bin", "frames": true, "cpu": 0, "etm": {"trace_id": 16}},
                     {"file": "etf.bin", "frames": true, "cpu": 1, "etm": {"traceidr": 18, "protocol": "ete"}},
                     {"file": "raw.bin", "cpu": 2, "etm": {"configr": 1, "a32_only": true}}])");
  ASSERT_TRUE(capture.has_value()) << capture.error().reason;
  ASSERT_EQ(capture->streams.size(), 3U);
  EXPECT_EQ(capture->machine, "aarch64");
  EXPECT_EQ(stream_bytes(capture->streams[0]), noise(1, 200));
  EXPECT_EQ(stream_bytes(capture->streams[1]), noise(2, 100));
  EXPECT_EQ(stream_bytes(capture->streams[2]), noise(3, 50));
  const auto& sources = capture->arm64.sources;
  EXPECT_EQ(sources[0].configr, 0x801U);
  EXPECT_EQ(sources[1].trace_id, 0x12);
  EXPECT_EQ(sources[1].protocol, arm64::Protocol::kEte);
  EXPECT_EQ(sources[2].configr, 1U);
  EXPECT_TRUE(sources[2].armv7);
  ASSERT_TRUE(capture->arm64.time.has_value());
  EXPECT_EQ(capture->arm64.time->to_perf(100), 1605);
}

TEST(BundleEtm, Refused) {
  const TempDir dir;
  for (const char* body :
       {R"("etm": {"protocol": "etm9"}, "streams": [])", R"("etm": {"confgr": 1}, "streams": [])",
        R"("etm": {"time_mult": 1}, "streams": [])",
        R"("streams": [{"file": "raw.bin", "cpu": 0, "etm": {"trace_id": 112}}])",
        R"("streams": [{"file": "raw.bin", "cpu": 0, "etm": {"idr0": "0x100000000"}}])",
        R"("streams": [{"file": "raw.bin", "cpu": 0, "frames": 1}])"}) {
    EXPECT_FALSE(open_text(dir, body).has_value()) << body;
  }
}

}  // namespace
}  // namespace asof::test
