#include "tests/support/truth_counter.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <unordered_map>

#include "decoder/pipeline/pipeline.h"
#include "tests/support/perf_data_writer.h"
#include "textstore/check.h"

namespace asof::test {
namespace {

constexpr size_t kAgree = 32;            // instructions that must agree after a difference without a gap
constexpr size_t kSearch = 8192;         // runs and instructions searched for them
constexpr size_t kPlacements = 32;       // followed in parallel
constexpr uint64_t kMostWorse = 20'000;  // instructions
constexpr size_t kPositions = 2'000;     // positions tried for a stretch that fits nowhere

struct TruthPosition {
  size_t run = 0;
  uint32_t offset = 0;  // bytes
  auto operator<=>(const TruthPosition&) const = default;
};

// The result of one placement of the stretches so far.
struct Placement {
  uint64_t wrong = 0;
  std::array<uint64_t, 5> by_confidence{};
  TruthPosition at;
};

class Counter {
 public:
  Counter(const DecodedFlow& flow, const std::vector<ExecutedRun>& truth) : flow_(flow), truth_(truth) {
    for (size_t i = 0; i < truth.size(); ++i) {
      starts_[truth[i].ip].push_back(i);
      longest_ = std::max(longest_, truth[i].bytes);
    }
    for (const auto& [ip, runs] : starts_) addresses_.push_back(ip);
    std::ranges::sort(addresses_);
  }

  TruthCount count() {
    std::vector<Placement> placements(1);
    for (size_t k = 0; k < flow_.islands.size(); ++k) {
      const size_t end = k + 1 < flow_.islands.size() ? flow_.islands[k + 1] : flow_.ips.size();
      placements = place(flow_.islands[k], end, placements);
    }
    const Placement& best = *std::ranges::min_element(placements, {}, &Placement::wrong);
    TruthCount c;
    c.wrong = best.wrong;
    c.right = flow_.ips.size() - best.wrong;
    for (const ExecutedRun& r : truth_) c.missing += r.count;
    c.missing -= c.right;
    c.wrong_certain = best.by_confidence[static_cast<size_t>(Confidence::kCertain)];
    c.wrong_proved = best.by_confidence[static_cast<size_t>(Confidence::kProved)];
    return c;
  }

 private:
  // Advances while decoded instructions [i, end) are those that ran from `at` on; both are then at the first
  // difference. A run that was walked from its first instruction must have as many as were decoded.
  void walk(size_t& i, size_t end, TruthPosition& at, size_t most = SIZE_MAX) const {
    const size_t first = i;
    while (i < end && at.run < truth_.size() && i - first < most) {
      const ExecutedRun& r = truth_[at.run];
      size_t k = i;
      uint32_t offset = at.offset;
      while (k < end && offset < r.bytes && flow_.ips[k] == r.ip + offset) offset += flow_.lengths[k++];
      if (k == i || offset > r.bytes) return;
      if (offset == r.bytes) {
        if (at.offset == 0 && k - i != r.count) return;
        at = {at.run + 1, 0};
      } else {
        if (at.offset == 0 && k - i > r.count) k = i + r.count;  // the others are not in the run
        at.offset = offset;
        i = k;
        return;
      }
      i = k;
    }
  }

  void pass_over(Placement& placement, size_t from, size_t to) const {
    placement.wrong += to - from;
    for (size_t i = from; i < to; ++i) ++placement.by_confidence[flow_.confidences[i]];
  }

  // After a difference at `i`: skips the fewest instructions and runs until both agree again.
  bool meet(size_t& i, size_t end, TruthPosition& at) const {
    const size_t first_run = at.run + (at.offset != 0 ? 1 : 0);
    size_t best = SIZE_MAX, best_i = 0, best_run = 0;
    for (size_t j = i; j < end && j - i < std::min(best, kSearch); ++j) {
      const auto runs = starts_.find(flow_.ips[j]);
      if (runs == starts_.end()) continue;
      for (auto r = std::ranges::lower_bound(runs->second, first_run); r != runs->second.end(); ++r) {
        const size_t cost = j - i + (*r - at.run);
        if (cost >= best || *r >= first_run + kSearch) break;
        size_t k = j;
        TruthPosition p{*r, 0};
        walk(k, end, p, kAgree);
        if (k - j < kAgree) continue;
        best = cost, best_i = j, best_run = *r;
      }
    }
    if (best == SIZE_MAX) return false;
    i = best_i;
    at = {best_run, 0};
    return true;
  }

  // Follows the rest of a stretch, with its differences.
  Placement follow(size_t begin, size_t end, Placement placement) const {
    size_t i = begin;
    while (true) {
      walk(i, end, placement.at);
      if (i == end) return placement;
      const size_t differs = i;
      TruthPosition at = placement.at;
      if (!meet(i, end, at)) {
        pass_over(placement, differs, end);
        return placement;
      }
      pass_over(placement, differs, i);
      placement.at = at;
    }
  }

  // Runs that hold an instruction at this address, in order.
  const std::vector<size_t>& runs_with(Addr ip) {
    const auto [known, fresh] = holding_.try_emplace(ip);
    std::vector<size_t>& out = known->second;
    if (!fresh) return out;
    auto a = std::ranges::lower_bound(addresses_, ip - std::min<Addr>(ip, longest_));
    for (; a != addresses_.end() && *a <= ip; ++a) {
      for (const size_t r : starts_.at(*a)) {
        if (ip - *a < truth_[r].bytes) out.push_back(r);
      }
    }
    std::ranges::sort(out);
    return out;
  }

  // Places one stretch after each of the placements so far: at the first position where all of it fits, at earlier
  // positions where more and more of its beginning fits, and nowhere.
  std::vector<Placement> place(size_t begin, size_t end, const std::vector<Placement>& placements) {
    const std::vector<size_t>& runs = runs_with(flow_.ips[begin]);
    std::vector<Placement> out;
    for (const Placement& placement : placements) {
      size_t longest = 0, looked_at = 0;
      for (auto r = std::ranges::lower_bound(runs, placement.at.run); r != runs.end(); ++r) {
        const auto offset = static_cast<uint32_t>(flow_.ips[begin] - truth_[*r].ip);
        if (*r == placement.at.run && offset < placement.at.offset) continue;
        Placement next = placement;
        next.at = {*r, offset};
        size_t i = begin;
        TruthPosition at = next.at;
        walk(i, end, at);
        if (i == end) {
          next.at = at;
          out.push_back(next);
          break;
        }
        if (++looked_at == kPositions) break;
        if (i - begin <= longest) continue;
        longest = i - begin;
        out.push_back(follow(begin, end, next));
      }
      out.push_back(placement);
      pass_over(out.back(), begin, end);
    }
    return best_of(std::move(out));
  }

  // Drops each placement that is no better than another one and is further along in the truth. If too many remain,
  // keeps a sample of all kinds: a placement that places a stretch far along looks better until later stretches
  // find no position after it.
  static std::vector<Placement> best_of(std::vector<Placement> placements) {
    std::ranges::stable_sort(placements, {}, [](const Placement& w) { return std::pair(w.wrong, w.at); });
    std::vector<Placement> good;
    for (const Placement& w : placements) {
      if (w.wrong > placements.front().wrong + kMostWorse) break;
      if (good.empty() || w.at < good.back().at) good.push_back(w);
    }
    std::vector<Placement> out;
    const size_t n = std::min(good.size(), kPlacements);
    for (size_t i = 0; i < n; ++i) out.push_back(good[n == 1 ? 0 : i * (good.size() - 1) / (n - 1)]);
    return out;
  }

  const DecodedFlow& flow_;
  const std::vector<ExecutedRun>& truth_;
  std::unordered_map<Addr, std::vector<size_t>> starts_;  // runs by their first address
  std::unordered_map<Addr, std::vector<size_t>> holding_;
  std::vector<Addr> addresses_;
  uint32_t longest_ = 0;
};

class Collector : public ChunkConsumer {
 public:
  std::map<int, DecodedFlow> flows;

 private:
  void deliver(Chunk& chunk, const Stream& stream, Prepared*) override {
    DecodedFlow& flow = flows[stream.cpu];
    size_t gap = 0;
    const auto gaps_before = [&](size_t position) {
      for (; gap < chunk.gaps.size() && chunk.gaps[gap].step <= position; ++gap) start_island(flow);
    };
    if (flow.ips.empty()) start_island(flow);
    for (auto step = chunk.steps.begin(); step != chunk.steps.end(); ++step) {
      gaps_before(step.position());
      Addr ip = step->block->ip;
      for (uint32_t i = 0; i < step->count; ++i) {
        flow.ips.push_back(ip);
        flow.lengths.push_back(step->block->lengths[i]);
        flow.confidences.push_back(static_cast<uint8_t>(step->confidence));
        ip += step->block->lengths[i];
      }
    }
    gaps_before(chunk.steps.size());
  }

  static void start_island(DecodedFlow& flow) {
    if (flow.islands.empty() || flow.islands.back() != flow.ips.size())
      flow.islands.push_back(flow.ips.size());
  }
};

std::vector<ExecutedRun> read_truth(const std::filesystem::path& path) {
  constexpr int kWindow = 27;  // 2^27 bytes: the files are compressed with long distances
  constexpr size_t kRecord = 32;
  const std::vector<uint8_t> packed = read_bytes(path);
  std::vector<uint8_t> bytes;
  ZSTD_DCtx* const context = ZSTD_createDCtx();
  ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, kWindow);
  std::vector<uint8_t> piece(ZSTD_DStreamOutSize());
  for (ZSTD_inBuffer in{packed.data(), packed.size(), 0}; in.pos < in.size;) {
    ZSTD_outBuffer out{piece.data(), piece.size(), 0};
    const size_t r = ZSTD_decompressStream(context, &out, &in);
    ASOF_CHECK(ZSTD_isError(r) == 0);
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + static_cast<long>(out.pos));
    while (in.pos == in.size && out.pos == out.size) {  // what is left in the decompressor
      out.pos = 0;
      ZSTD_decompressStream(context, &out, &in);
      bytes.insert(bytes.end(), piece.begin(), piece.begin() + static_cast<long>(out.pos));
    }
  }
  ZSTD_freeDCtx(context);
  std::vector<ExecutedRun> runs(bytes.size() / kRecord);
  for (size_t i = 0; i < runs.size(); ++i) {
    std::memcpy(&runs[i].ip, &bytes[i * kRecord], 8);
    std::memcpy(&runs[i].bytes, &bytes[i * kRecord + 8], 4);
    std::memcpy(&runs[i].count, &bytes[i * kRecord + 12], 4);
  }
  return runs;
}

}  // namespace

TruthCount count_against(const DecodedFlow& flow, const std::vector<ExecutedRun>& truth) {
  return Counter(flow, truth).count();
}

std::map<int, TruthCount> count_capture(const std::string& path, const CaptureOptions& options,
                                        const std::string& truth_directory, TextAt text_at) {
  const auto capture = open_capture(path, options);
  if (!capture) return {};
  Collector collector;
  PipelineOptions pipeline;
  pipeline.decode.text_at = text_at;
  if (!run_pipeline(*capture, pipeline, ChunkOrder::kByStream, collector)) return {};
  std::map<int, TruthCount> counts;
  for (int cpu = 0; cpu < 64; ++cpu) {
    const auto file = std::filesystem::path(truth_directory) / ("cpu" + std::to_string(cpu) + ".blocks.zst");
    if (!std::filesystem::exists(file)) continue;
    DecodedFlow& flow = collector.flows[cpu];
    while (!flow.islands.empty() && flow.islands.back() == flow.ips.size()) flow.islands.pop_back();
    counts[cpu] = count_against(flow, read_truth(file));
  }
  return counts;
}

}  // namespace asof::test
