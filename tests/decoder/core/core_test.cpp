// The core of a plan: what is read back is the capture; damaged ones are refused or harmless.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "decoder/blocks/block_capture.h"
#include "decoder/core/core_file.h"
#include "decoder/io/content_hash.h"
#include "decoder/io/thrown_error.h"
#include "tests/support/captures_of.h"
#include "tests/support/decode_capture.h"
#include "tests/support/temp_dir.h"

namespace asof::test {
namespace {

CaptureOptions demo_options() {
  CaptureOptions options;
  options.symfs = std::string(ASOF_TEST_DATA) + "/demo/symfs";
  return options;
}

std::string demo_path(const std::string& demo) {
  return std::string(ASOF_TEST_DATA) + "/" + demo + "/perf.data";
}

std::string core_of(const Capture& capture, const std::string& folder) {
  std::string out;
  const auto done = CoreFile::write(capture, folder, [&](std::span<const uint8_t> bytes) {
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  EXPECT_TRUE(done) << done.error().reason;
  return out;
}

void write_core(const TempDir& dir, const std::string& bytes) {
  std::ofstream(dir / "core.asof", std::ios::binary | std::ios::trunc) << bytes;
}

// All that is decoded of a capture, as text.
std::string flow_of(const std::string& path, const CaptureOptions& options) {
  const auto decoded = decode_capture(path, options);
  if (!decoded) return decoded.error().reason;
  std::string out;
  for (const DecodedStream& s : decoded->streams) {
    out += s.name;
    for (const DecodedInstruction& i : s.instructions)
      out += std::to_string(i.ip) + "@" + std::to_string(i.time) + "," +
             std::to_string(static_cast<int>(i.confidence)) + "," + std::to_string(i.data[0]) + "\n";
    for (const Gap& g : s.gaps) out += std::string(code_text(g.code)) + g.reason;
  }
  return out;
}

class Core : public testing::TestWithParam<const char*> {};

TEST_P(Core, IsTheCapture) {
  const TempDir dir;
  auto capture = open_capture(demo_path(GetParam()), demo_options());
  ASSERT_TRUE(capture);
  const std::string bytes = core_of(*capture, dir.path());
  write_core(dir, bytes);
  const auto back = open_capture(dir.path(), {});
  ASSERT_TRUE(back) << back.error().reason;
  EXPECT_EQ(blocks::put_capture(*back), blocks::put_capture(*capture));
  EXPECT_EQ(blocks::put_symbols(*back), blocks::put_symbols(*capture));
  EXPECT_EQ(back->core->identity(), blocks::identity_of(blocks::put_capture(*capture)));
  EXPECT_EQ(back->code.mappings.size(), capture->code.mappings.size());
  EXPECT_EQ(back->modules.size(), capture->modules.size());
  const std::string flow = flow_of(dir.path(), {});
  EXPECT_TRUE(flow == flow_of(demo_path(GetParam()), demo_options()));
  EXPECT_GT(flow.size(), 1000U);
  // A plan of a plan is the same plan.
  EXPECT_TRUE(core_of(*back, dir.path()) == bytes);
}

TEST_P(Core, OnlyStreamsOfAShardAreRead) {
  const TempDir dir;
  const auto capture = open_capture(demo_path(GetParam()), demo_options());
  ASSERT_TRUE(capture);
  write_core(dir, core_of(*capture, dir.path()));
  CaptureOptions options;
  options.shards = Shards{0, 0, static_cast<uint32_t>(2 * capture->streams.size())};
  const auto back = open_capture(dir.path(), options);
  ASSERT_TRUE(back) << back.error().reason;
  ASSERT_EQ(back->streams.size(), capture->streams.size());
  EXPECT_FALSE(back->streams[0].pieces.empty());
  if (capture->streams.size() > 1) {
    EXPECT_TRUE(back->streams.back().pieces.empty());
    EXPECT_EQ(back->streams.back().cpu, capture->streams.back().cpu);
  }
}

// With hashes that fit: what reads a section must stand what is in it.
std::string with_good_hashes(std::string bytes) {
  const auto number = [&](size_t at, size_t n) {
    uint64_t v = 0;
    std::memcpy(&v, bytes.data() + at, n);
    return v;
  };
  const auto hash = [&](size_t at, size_t n) { return hash_text(std::string_view(bytes).substr(at, n), 0); };
  const uint64_t sections = number(12, 4), table = number(24, 8);
  for (uint64_t i = 0; i < sections; ++i) {
    const size_t entry = table + i * core::kEntrySize;
    if (entry + core::kEntrySize > bytes.size()) return bytes;
    const uint64_t at = number(entry + 8, 8), size = number(entry + 16, 8);
    if (at > bytes.size() || size > bytes.size() - at) return bytes;
    const uint64_t value = hash(at, size);
    std::memcpy(bytes.data() + entry + 24, &value, sizeof value);
  }
  const uint64_t value = hash(table, sections * core::kEntrySize);
  std::memcpy(bytes.data() + 32, &value, sizeof value);
  return bytes;
}

TEST_P(Core, DamageIsRefusedOrHarmless) {
  const TempDir dir;
  const auto capture = open_capture(demo_path(GetParam()), demo_options());
  ASSERT_TRUE(capture);
  const std::string good = core_of(*capture, dir.path());
  std::mt19937_64 random(3);
  size_t refused = 0;
  for (uint64_t i = 0; i < captures_of(400); ++i) {
    std::string bad = good;
    if (i % 8 == 0)
      bad.resize(random() % bad.size());
    else
      bad[random() % bad.size()] ^= static_cast<char>(1 + random() % 255);
    write_core(dir, bad);
    const auto back = open_capture(dir.path(), {});
    if (!back) {
      ++refused;
      EXPECT_EQ(back.error().code, Code::kBadPlan) << back.error().reason;
      EXPECT_FALSE(back.error().where.empty());
    }
  }
  EXPECT_GT(refused, captures_of(400) * 9 / 10);
}

TEST_P(Core, LyingSectionsAreRefusedOrHarmless) {
  const TempDir dir;
  const auto capture = open_capture(demo_path(GetParam()), demo_options());
  ASSERT_TRUE(capture);
  const std::string good = core_of(*capture, dir.path());
  std::mt19937_64 random(4);
  size_t opened = 0;
  for (uint64_t i = 0; i < captures_of(300); ++i) {
    std::string bad = good;
    for (uint64_t k = 1 + random() % 3; k > 0; --k)
      bad[40 + random() % (bad.size() - 40)] ^= static_cast<char>(1 << random() % 8);
    write_core(dir, with_good_hashes(bad));
    try {
      opened += decode_capture(dir.path(), {}).has_value();
    } catch (const ThrownError& e) {
      EXPECT_EQ(e.error().code, Code::kTraceChanged) << e.error().reason;
    }
  }
  EXPECT_GT(opened, 0U);
}

// Of trace in frames: the index is not believed where frames say something else.
TEST(CoreFile, AForgedIndexOfFramesIsRefused) {
  const TempDir dir;
  const auto capture = open_capture(demo_path("demo-arm64"), demo_options());
  ASSERT_TRUE(capture);
  const std::string good = core_of(*capture, dir.path());
  const auto number = [&](size_t at, size_t n) {
    uint64_t v = 0;
    std::memcpy(&v, good.data() + at, n);
    return v;
  };
  size_t from = 0, to = 0;
  for (uint64_t i = 0, table = number(24, 8); i < number(12, 4); ++i) {
    const size_t entry = table + i * core::kEntrySize;
    if (number(entry, 4) != static_cast<uint64_t>(core::Section::kFrameIndex)) continue;
    from = number(entry + 8, 8);
    to = from + number(entry + 16, 8);
  }
  ASSERT_LT(from, to);
  const std::string want = flow_of(demo_path("demo-arm64"), demo_options());
  size_t refused = 0, thrown = 0;
  for (size_t at = from; at < to; ++at) {
    std::string bad = good;
    bad[at] ^= 1;
    write_core(dir, with_good_hashes(bad));
    try {
      const auto back = open_capture(dir.path(), {});
      if (!back) {
        EXPECT_EQ(back.error().code, Code::kBadPlan) << back.error().reason;
        ++refused;
      } else {
        EXPECT_TRUE(flow_of(dir.path(), {}) == want) << at - from;
      }
    } catch (const ThrownError& e) {
      EXPECT_EQ(e.error().code, Code::kTraceChanged) << e.error().reason;
      EXPECT_NE(e.error().offset, Error::kNoOffset);
      ++thrown;
    }
  }
  EXPECT_GT(refused, 0U);
  EXPECT_GT(thrown, 0U);
}

INSTANTIATE_TEST_SUITE_P(Demo, Core, testing::Values("demo", "demo-arm64"));

TEST(CoreFile, TraceThatChangedIsRefused) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "a");
  std::filesystem::create_directory(dir / "plan");
  std::filesystem::copy(demo_path("demo"), dir / "a/perf.data", std::filesystem::copy_options::recursive);
  {
    const auto capture = open_capture(dir / "a/perf.data", demo_options());
    ASSERT_TRUE(capture);
    std::ofstream(dir / "plan/core.asof", std::ios::binary) << core_of(*capture, dir / "plan");
  }
  EXPECT_TRUE(open_capture(dir / "plan", {}));
  // Moved together, the trace is found beside the plan.
  std::filesystem::create_directory(dir / "moved");
  std::filesystem::rename(dir / "a", dir / "moved/a");
  std::filesystem::rename(dir / "plan", dir / "moved/plan");
  EXPECT_TRUE(open_capture(dir / "moved/plan", {}));
  std::ofstream(dir / "moved/a/perf.data/data", std::ios::binary | std::ios::app) << "x";
  const auto changed = open_capture(dir / "moved/plan", {});
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().code, Code::kTraceChanged);
}

}  // namespace
}  // namespace asof::test
