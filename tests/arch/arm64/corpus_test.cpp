// CoreSight captures recorded by others: instruction ranges per trace unit, compared with the output of
// OpenCSD's lister (expected.json beside each capture). They are not part of the project; without them these
// tests are skipped.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>
#include <sstream>

#include "arch/arm64/insn.h"
#include "arch/arm64/reference.h"
#include "decoder/model/capture.h"
#include "tests/support/sha256.h"
#include "tests/support/skip_without.h"

namespace asof::arm64 {
namespace {

namespace fs = std::filesystem;

// Ranges as OpenCSD prints them: from the address where the flow entered to the first instruction that takes
// an atom, or to where an exception ended it.
struct Ranges final : ChunkSink {
  bool whole = false;  // steps already are ranges of OpenCSD
  bool wfx = false;
  std::vector<std::string> lines;
  std::vector<Gap> gaps;
  Addr begin = 0, end = 0;
  uint64_t count = 0;
  bool open = false;

  void take(Chunk&& c) override {
    size_t event = 0, gap = 0;
    for (auto step = c.steps.begin(); step != c.steps.end(); ++step) {
      const size_t i = step.position();
      for (; event < c.events.size() && c.events[event].step <= i; ++event) {
        const EventKind kind = c.events[event].kind;
        if (kind != EventKind::kPsb && kind != EventKind::kTraceEvent && kind != EventKind::kContext) close();
      }
      for (; gap < c.gaps.size() && c.gaps[gap].step <= i; ++gap) close();
      add(*step);
    }
    if (event < c.events.size() || gap < c.gaps.size()) close();
    for (Gap& g : c.gaps) gaps.push_back(std::move(g));
  }
  void add(const Step& s) {
    const Block& b = *s.block;
    if (!open || b.ip != end) {
      close();
      begin = b.ip;
      open = true;
    }
    end = b.ip;
    for (uint32_t i = 0; i < s.count; ++i) end += b.lengths[i];
    count += s.count;
    if (s.count != b.count || whole || ends_at_waypoint(b)) close();
  }
  bool ends_at_waypoint(const Block& b) const {
    const uint8_t last = b.lengths[b.count - 1];
    Insn insn;
    decode_insn({b.bytes + b.size - last, last}, b.end() - last, b.mode, wfx, insn);
    return insn.waypoint != Waypoint::kNone;
  }
  void close() {
    if (open) lines.push_back(fmt::format("{:x} {:x} {}", begin, end, count));
    open = false;
    count = 0;
  }
  // As `simpleperf inject` writes them: first and last instruction of each, and how often it ran.
  std::vector<std::string> counted(Addr load) const {
    std::map<std::pair<Addr, Addr>, unsigned> times;
    for (const std::string& line : lines) {
      Addr from = 0, to = 0;
      if (std::sscanf(line.c_str(), "%lx %lx", &from, &to) == 2) ++times[{from - load, to - load - 4}];
    }
    std::vector<std::string> out;
    for (const auto& [range, n] : times)
      out.push_back(fmt::format("{:x}-{:x}:{}", range.first, range.second, n));
    return out;
  }
  std::string sha256() const {
    test::Sha256 sha;
    for (const std::string& l : lines) sha.add(l + "\n");
    return test::Sha256(sha).hex();
  }
};

fs::path shared_capture(const std::string& name) { return fs::path(ASOF_SHARED_DIR) / "corpus" / name; }

// Digest and count of the ranges in expected.json for each run and trace unit: of the newest lister where
// present. With several buffers there is a run for each, and one for all of them together.
using Expected = std::map<uint8_t, std::map<std::string, uint64_t>>;
Expected all_expected(const fs::path& dir) {
  Expected out;
  std::ifstream in(dir / "expected.json");
  const nlohmann::json all = nlohmann::json::parse(in);
  for (const char* runs : {"runs_1_8_0", "runs"}) {
    if (!all.contains(runs) || !all[runs].is_array()) continue;
    for (const auto& run : all[runs]) {
      if (!run.contains("by_id")) continue;
      for (const auto& [id, of] : run["by_id"].items()) {
        if (!of.contains("ranges") || of["ranges"] == 0) continue;
        const auto unit = static_cast<uint8_t>(std::stoul(id, nullptr, 16));
        out[unit][of["range_list_sha256"].get<std::string>()] = of["ranges"].get<uint64_t>();
      }
    }
    if (!out.empty()) break;
  }
  return out;
}
std::map<std::string, uint64_t> expected_of(const fs::path& dir, uint8_t trace_id) {
  Expected all = all_expected(dir);
  return std::move(all[trace_id]);
}

std::vector<Ranges> decode(const Capture& capture, bool reference = false) {
  std::vector<Ranges> out;
  const auto arch = capture.arch();
  EXPECT_TRUE(arch);
  if (!arch) return out;
  DecodeOptions options;
  options.reference_engine = reference;
  const auto decoder = (*arch)->decoder(capture.streams, *capture.text, options);
  for (size_t i = 0; i < capture.streams.size(); ++i) {
    Ranges& r = out.emplace_back();
    r.whole = reference || needs_reference(capture.arm64.sources[i].protocol);
    r.wfx = (capture.arm64.sources[i].idr2 >> 31) != 0;
    for (const Segment& s : (*arch)->split(capture.streams[i], i)) decoder->decode(s, r);
    r.close();
  }
  return out;
}

class OpenCsdSnapshot : public testing::TestWithParam<const char*> {};

TEST_P(OpenCsdSnapshot, RangesOfEveryTraceUnit) {
  const fs::path dir = shared_capture(GetParam());
  SKIP_WITHOUT(dir);
  const auto capture = open_capture(dir.string(), {});
  ASSERT_TRUE(capture) << capture.error().reason;
  const std::vector<Ranges> all = decode(*capture);
  ASSERT_FALSE(all.empty());
  std::map<uint8_t, uint64_t> found;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto expected = expected_of(dir, capture->arm64.sources[i].trace_id);
    if (expected.empty() && all[i].lines.empty()) continue;
    const auto hit = expected.find(all[i].sha256());
    EXPECT_TRUE(hit != expected.end())
        << capture->streams[i].name << ": " << all[i].lines.size() << " ranges, "
        << (expected.empty() ? 0 : expected.begin()->second)
        << " expected; first gap: " << (all[i].gaps.empty() ? "none" : all[i].gaps[0].reason);
  }
}

INSTANTIATE_TEST_SUITE_P(Corpus, OpenCsdSnapshot,
                         testing::Values("ocsd-001-ack_test", "ocsd-Snowball", "ocsd-TC2",
                                         "ocsd-a55-test-tpiu", "ocsd-a57_single_step",
                                         "ocsd-armv8_1m_branches", "ocsd-ete-bc-instr", "ocsd-ete-ite-instr",
                                         "ocsd-ete-wfet", "ocsd-ete_mem", "ocsd-ete_spec_1",
                                         "ocsd-event_test", "ocsd-init-short-addr", "ocsd-juno-uname-001",
                                         "ocsd-juno-uname-002", "ocsd-maxspec0_commopt1", "ocsd-rme_test",
                                         "ocsd-s_9001", "ocsd-ss_ib_el1ns", "ocsd-test-file-mem-offsets",
                                         "ocsd-tme_simple", "ocsd-tme_tcancel", "ocsd-trace_cov_a15",
                                         "ocsd-trace_file_cid_vmid", "ocsd-ts_bit64_set", "ocsd-ts_marker"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// The same program recorded four times, in user space.
TEST(RicsecBranches, RangesOfEachRecording) {
  const fs::path dir = shared_capture("ricsec-branches");
  SKIP_WITHOUT(dir);
  std::ifstream in(dir / "expected.json");
  const nlohmann::json all = nlohmann::json::parse(in);
  for (const char* name : {"trace1", "trace2", "trace3", "trace4"}) {
    const auto capture = open_capture((dir / name).string(), {});
    ASSERT_TRUE(capture) << capture.error().reason;
    const std::vector<Ranges> ranges = decode(*capture);
    ASSERT_EQ(ranges.size(), 1U);
    const auto& expected = all[name]["summary"]["by_id"]["10"];
    EXPECT_EQ(ranges[0].lines.size(), expected["ranges"].get<size_t>());
    EXPECT_EQ(ranges[0].sha256(), expected["range_list_sha256"].get<std::string>()) << name;
  }
}

// A phone's ETMv4.2 in frames, and ETE through TRBE without them, both of one small program: the ranges that
// OpenCSD lists, and those that simpleperf itself produced (`simpleperf inject`).
TEST(Simpleperf, RangesOfEachRecording) {
  const fs::path dir = shared_capture("simpleperf-etm");
  SKIP_WITHOUT(dir);
  std::ifstream in(dir / "expected.json");
  const nlohmann::json all = nlohmann::json::parse(in);
  const auto& recordings = all.at("trc_pkt_lister_1.3.3");
  ASSERT_FALSE(recordings.empty());
  for (const auto& [name, expected] : recordings.items()) {
    SCOPED_TRACE(name);
    CaptureOptions options;
    options.symfs = dir.string();
    options.host_files = false;
    const auto capture = open_capture((dir / name).string(), options);
    ASSERT_TRUE(capture) << capture.error().reason;
    EXPECT_TRUE(capture->exclude_kernel);
    const std::vector<Ranges> ranges = decode(*capture);
    ASSERT_EQ(ranges.size(), 1U);
    EXPECT_TRUE(ranges[0].gaps.empty()) << ranges[0].gaps[0].reason;
    size_t units = 0;
    for (const auto& [id, of] : expected["trc_pkt_lister"]["by_id"].items()) {
      if (of["ranges"] == 0) continue;
      ++units;
      EXPECT_EQ(ranges[0].lines.size(), of["ranges"].get<size_t>());
      EXPECT_EQ(ranges[0].sha256(), of["range_list_sha256"].get<std::string>());
    }
    EXPECT_EQ(units, 1U);
    EXPECT_EQ(ranges[0].counted(std::stoull(expected["load_address"].get<std::string>(), nullptr, 16)),
              expected["ranges_minus_load"].get<std::vector<std::string>>());
  }
}

// Ranges in the output of OpenCSD's lister.
std::vector<std::string> listed_ranges(const fs::path& listing, const std::string& id) {
  std::vector<std::string> out;
  std::ifstream in(listing);
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find("INSTR_RANGE(exec range=0x");
    if (at == std::string::npos || line.find("ID:" + id + ";") == std::string::npos) continue;
    Addr begin = 0, end = 0;
    unsigned count = 0;
    if (std::sscanf(line.c_str() + at, "INSTR_RANGE(exec range=0x%lx:[0x%lx] num_i(%u)", &begin, &end,
                    &count) == 3)
      out.push_back(fmt::format("{:x} {:x} {}", begin, end, count));
  }
  return out;
}

// OpenCSD walks from the instruction after an indirect branch without a target to an exception: 9,131
// instructions, ignoring all branches in between. Here the target is unknown, which is a gap; the rest is
// equal.
TEST(OpenCsdDifferences, ExceptionAfterAnUnknownTarget) {
  const fs::path dir = shared_capture("ocsd-ete_ip");
  SKIP_WITHOUT(dir);
  const auto capture = open_capture(dir.string(), {});
  ASSERT_TRUE(capture);
  const std::vector<Ranges> all = decode(*capture);
  ASSERT_EQ(all.size(), 1U);
  std::vector<std::string> listed = listed_ranges(dir / "golden" / "ete_ip_src_addr_N.ppl", "2");
  ASSERT_EQ(std::erase(listed, "1aa948 1b37f4 9131"), 1U);
  EXPECT_EQ(all[0].lines, listed);
  EXPECT_TRUE(std::ranges::any_of(
      all[0].gaps, [](const Gap& g) { return g.ip == 0x1aa948 && g.code == Code::kReturnWithoutItsCall; }));
}

// The kernel dumps of these snapshots are not of the kernel that ran: OpenCSD continues over N atoms at
// returns and calls. Here these are contradictions, so the rest is a part of OpenCSD's output, in its order.
TEST(OpenCsdDifferences, WrongKernelIsNoticed) {
  for (const char* name : {"ocsd-juno_r1_1", "ocsd-infrastructure"}) {
    SCOPED_TRACE(name);
    const fs::path dir = shared_capture(name);
    SKIP_WITHOUT(dir);
    const auto capture = open_capture(dir.string(), {});
    ASSERT_TRUE(capture);
    const std::vector<Ranges> ours = decode(*capture), reference = decode(*capture, true);
    ASSERT_EQ(ours.size(), reference.size());
    size_t compared = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      const auto expected = expected_of(dir, capture->arm64.sources[i].trace_id);
      if (expected.empty()) continue;
      EXPECT_TRUE(expected.contains(reference[i].sha256())) << "OpenCSD as a part of this project";
      auto at = reference[i].lines.begin();
      for (const std::string& line : ours[i].lines) {
        at = std::find(at, reference[i].lines.end(), line);
        ASSERT_TRUE(at != reference[i].lines.end()) << line;
        ++at;
        ++compared;
      }
      EXPECT_TRUE(std::ranges::any_of(ours[i].gaps,
                                      [](const Gap& g) { return g.code == Code::kTraceContradictsText; }));
    }
    EXPECT_GT(compared, 2000U);
  }
}

}  // namespace
}  // namespace asof::arm64
