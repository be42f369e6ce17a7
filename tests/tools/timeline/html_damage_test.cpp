// Pages of damaged captures: whatever bytes change, a page is written, its JSON is valid, and its arrays have
// the sizes that the JSON states.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/support/sim_random.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/timeline/html_unpack.h"
#include "tools/timeline/out_html.h"

namespace asof::test {
namespace {

std::string between(const std::string& text, std::string_view begin, std::string_view end) {
  const size_t from = text.find(begin);
  if (from == std::string::npos) return {};
  const size_t at = from + begin.size();
  return text.substr(at, text.find(end, at) - at);
}

void expect_whole(const std::string& page) {
  const auto meta = nlohmann::json::parse(page_meta(page), nullptr, false);
  ASSERT_FALSE(meta.is_discarded());
  const size_t bytes = unpacked(between(page, "id=\"bytes\">", "</script>")).size();
  const auto functions = meta["functions"].size();
  uint64_t used = 0;
  for (const auto& t : meta["tracks"]) used += t["slices"][1].get<uint64_t>();
  for (const auto& c : meta["cpus"]) {
    for (const char* part : {"runs", "blocks", "points"}) used += c[part]["place"][1].get<uint64_t>();
    for (const auto& gap : c["gaps"]) EXPECT_LT(gap.get<size_t>(), meta["gaps"].size());
  }
  EXPECT_EQ(used, bytes);
  for (const auto& f : meta["functions"]) {
    if (!f.contains("changes")) continue;
    for (const auto& change : f["changes"])
      EXPECT_LT(change[1].get<int64_t>(), static_cast<int64_t>(meta["pokes"].size()));
  }
  EXPECT_TRUE(meta["tracks"].empty() || functions > 0);
}

TEST(HtmlDamage, PagesOfDamagedCapturesAreWhole) {
  namespace fs = std::filesystem;
  const TempDir dir;
  const fs::path capture_path = dir.path() / "perf.data";
  fs::copy(fs::path(ASOF_TEST_DATA) / "demo/perf.data", capture_path, fs::copy_options::recursive);
  std::ifstream in(capture_path / "data", std::ios::binary);
  const std::string original{std::istreambuf_iterator<char>(in), {}};
  unsigned written = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SimRandom random(seed);
    std::string bytes = original;
    // Seed 0: no damage.
    for (uint64_t n = seed == 0 ? 0 : random.between(1, 60); n > 0; --n) {
      bytes[random.below(bytes.size())] =
          static_cast<char>(random.chance(50) ? random.next() : random.below(2) * 255);
    }
    std::ofstream(capture_path / "data", std::ios::binary) << bytes;
    CaptureOptions options;
    options.symfs = (fs::path(ASOF_TEST_DATA) / "demo/symfs").string();
    options.host_files = false;
    const auto capture = open_capture(capture_path.string(), options);
    if (!capture) continue;
    TimelineOptions wanted;
    wanted.detail = true;
    const auto timeline = make_timeline(*capture, wanted, {.slices = 3000, .events = 100, .blocks = 2000});
    if (!timeline) continue;  // the damage hit the name of the machine
    std::string page;
    write_html(*capture, *timeline, {.title = "", .command = "asof timeline", .detail = {TimeBounds{}}},
               [&](std::string_view text) { page += text; });
    expect_whole(page);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    ++written;
  }
  EXPECT_GT(written, 100u);
}

}  // namespace
}  // namespace asof::test
