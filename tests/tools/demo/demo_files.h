// What the tests of both demo captures share: the committed files, and decoding with one state of the text.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/decode_capture.h"
#include "tests/support/perf_data_writer.h"

namespace asof::test {

// Other versions of zstd compress differently: the content counts.
inline std::map<std::string, std::vector<uint8_t>> files_below(const std::filesystem::path& root) {
  std::map<std::string, std::vector<uint8_t>> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    std::vector<uint8_t> bytes = read_bytes(entry.path());
    if (entry.path().extension() == ".zst") bytes = zstd_decompress(bytes);
    out[std::filesystem::relative(entry.path(), root).string()] = std::move(bytes);
  }
  return out;
}

// `command` writes the committed files.
inline void expect_committed(const std::filesystem::path& fresh, const std::filesystem::path& committed,
                             const std::string& command) {
  const auto want = files_below(fresh), have = files_below(committed);
  ASSERT_FALSE(want.empty());
  ASSERT_EQ(want.size(), have.size());
  for (const auto& [name, bytes] : want) {
    const auto it = have.find(name);
    ASSERT_NE(it, have.end()) << name;
    EXPECT_TRUE(it->second == bytes) << name << " differs: run " << command << " and look at what changed";
  }
}

// Text that changes cannot be decoded with its first or its last state alone.
inline void expect_one_text_is_not_enough(const std::string& perf_data, const CaptureOptions& capture,
                                          const std::function<std::vector<Executed>(int cpu)>& truth) {
  for (const TextAt at : {TextAt::kFirst, TextAt::kLast}) {
    PipelineOptions options;
    options.decode.text_at = at;
    const auto decoded = decode_capture(perf_data, capture, options);
    ASSERT_TRUE(decoded.has_value()) << decoded.error().reason;
    uint64_t differences = 0, gaps = 0;
    for (const DecodedStream& s : decoded->streams) {
      const Difference d = compare(s.instructions, truth(s.cpu));
      differences += d.wrong + d.missing;
      gaps += s.gaps.size();
    }
    EXPECT_GT(differences, 100U);
    EXPECT_GT(gaps, 1U) << "the trace contradicts the text";
  }
}

}  // namespace asof::test
