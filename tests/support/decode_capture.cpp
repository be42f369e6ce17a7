#include "tests/support/decode_capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace asof::test {

namespace {

class Collector : public ChunkConsumer {
 public:
  explicit Collector(std::vector<DecodedStream>& out) : out_(out) {}

  void deliver(Chunk& chunk, const Stream& stream, Prepared*) override {
    if (chunk.stream >= out_.size()) out_.resize(chunk.stream + 1);
    DecodedStream& s = out_[chunk.stream];
    s.name = stream.name, s.cpu = stream.cpu;
    for (const Step& step : chunk.steps) add(s, step);
    s.gaps.insert(s.gaps.end(), chunk.gaps.begin(), chunk.gaps.end());
    s.events.insert(s.events.end(), chunk.events.begin(), chunk.events.end());
  }

 private:
  static void add(DecodedStream& s, const Step& step) {
    const Block& b = *step.block;
    uint32_t at = 0;
    for (uint32_t i = 0; i < step.count; ++i) {
      DecodedInstruction d;
      d.ip = b.ip + at, d.time = step.time, d.confidence = step.confidence, d.length = b.lengths[i];
      d.after_gap = i == 0 && (step.flags & Step::kAfterGap) != 0;
      std::copy_n(b.bytes + at, d.length, d.data.begin());
      s.instructions.push_back(d);
      at += b.lengths[i];
    }
  }

  std::vector<DecodedStream>& out_;
};

constexpr size_t kMeet = 12;         // instructions that must agree after a difference
constexpr size_t kLookAhead = 4096;  // decoded instructions that may be wrong in a row

// Do both agree from here on, up to kMeet instructions or the next gap?
bool agree(std::span<const DecodedInstruction> got, std::span<const Executed> want) {
  const size_t n = std::min({got.size(), want.size(), kMeet});
  if (n == 0) return got.empty() && want.empty();
  for (size_t i = 0; i < n; ++i) {
    if (i > 0 && got[i].after_gap) return true;  // the truth may continue differently here
    if (got[i].ip != want[i].ip) return false;
  }
  return true;
}

// The positions of each address in the truth.
class Positions {
 public:
  explicit Positions(std::span<const Executed> want) {
    for (size_t i = 0; i < want.size(); ++i) at_[want[i].ip].push_back(i);
  }

  // The first position from `from` on, but before `limit`, where the decoded instructions fit.
  std::optional<size_t> find(std::span<const DecodedInstruction> got, std::span<const Executed> want,
                             size_t from, size_t limit) const {
    const auto it = at_.find(got.front().ip);
    if (it == at_.end()) return std::nullopt;
    const auto& all = it->second;
    for (auto p = std::lower_bound(all.begin(), all.end(), from); p != all.end() && *p < limit; ++p) {
      if (agree(got, want.subspan(*p))) return *p;
    }
    return std::nullopt;
  }

 private:
  std::unordered_map<Addr, std::vector<size_t>> at_;
};

// The smallest total of skipped instructions after which both sides agree again: (wrong, missing).
std::pair<size_t, size_t> meet(const Positions& positions, std::span<const DecodedInstruction> got,
                               std::span<const Executed> want, size_t g, size_t w) {
  std::pair best(got.size() - g, want.size() - w);
  for (size_t wrong = 0; wrong < std::min(got.size() - g, kLookAhead); ++wrong) {
    const size_t total = best.first + best.second;
    if (wrong >= total) break;
    const auto p = positions.find(got.subspan(g + wrong), want, w, w + (total - wrong));
    if (p) best = {wrong, *p - w};
  }
  return best;
}

// Which of `got` belong to a longest common subsequence with `want`, and vice versa. For short stretches.
std::pair<std::vector<bool>, std::vector<bool>> common(std::span<const DecodedInstruction> got,
                                                       std::span<const Executed> want) {
  const size_t columns = want.size() + 1;
  std::vector<uint32_t> length((got.size() + 1) * columns, 0);
  for (size_t i = got.size(); i-- > 0;) {
    for (size_t j = want.size(); j-- > 0;) {
      length[i * columns + j] = got[i].ip == want[j].ip
                                    ? length[(i + 1) * columns + j + 1] + 1
                                    : std::max(length[(i + 1) * columns + j], length[i * columns + j + 1]);
    }
  }
  std::vector<bool> in_got(got.size()), in_want(want.size());
  for (size_t i = 0, j = 0; i < got.size() && j < want.size();) {
    if (got[i].ip == want[j].ip) {
      in_got[i++] = in_want[j++] = true;
    } else if (length[(i + 1) * columns + j] >= length[i * columns + j + 1]) {
      ++i;
    } else {
      ++j;
    }
  }
  return {std::move(in_got), std::move(in_want)};
}

constexpr size_t kMostCells = 16'000'000;

void count_difference(std::span<const DecodedInstruction> got, std::span<const Executed> want,
                      Difference& d) {
  std::vector<bool> in_got(got.size()), in_want(want.size());
  if (got.size() * want.size() <= kMostCells) std::tie(in_got, in_want) = common(got, want);
  for (size_t i = 0; i < got.size(); ++i) {
    if (in_got[i]) {
      ++d.right;
    } else {
      ++d.wrong;
      ++d.wrong_by_confidence[static_cast<size_t>(got[i].confidence)];
    }
  }
  for (size_t i = 0; i < want.size(); ++i) {
    if (in_want[i]) continue;
    ++d.missing;
    d.missing_ips.push_back(want[i].ip);
  }
}

// `number`: the number of the first of `want` among all executed instructions.
void compare_part(std::span<const DecodedInstruction> got, std::span<const Executed> want, size_t number,
                  Difference& d) {
  const Positions positions(want);
  size_t g = 0, w = 0;
  while (g < got.size() || w < want.size()) {
    if (g < got.size() && w < want.size() && got[g].ip == want[w].ip &&
        (!got[g].after_gap || agree(got.subspan(g), want.subspan(w)))) {
      ++d.right, ++g, ++w;
      continue;
    }
    if (d.first.empty()) {
      d.first = fmt::format("instruction {}: decoded {:#x}, executed {:#x}", number + w,
                            g < got.size() ? got[g].ip : 0, w < want.size() ? want[w].ip : 0);
    }
    const auto m = meet(positions, got, want, g, w);
    count_difference(got.subspan(g, m.first), want.subspan(w, m.second), d);
    g += m.first, w += m.second;
  }
}

// Where the flow changes between user and kernel code. Each such change has an address in the trace, so both
// sides have the same ones unless something is missing. In loops, equal addresses alone do not prove that
// both sides are at the same point again: a decoder that has followed one loop for too long would be compared
// with the next system call.
template <class Instruction>
std::vector<size_t> changes_of_half(std::span<const Instruction> all) {
  std::vector<size_t> out;
  for (size_t i = 1; i < all.size(); ++i) {
    if (is_kernel_address(all[i].ip) != is_kernel_address(all[i - 1].ip)) out.push_back(i);
  }
  out.push_back(all.size());
  return out;
}

}  // namespace

Difference compare(std::span<const DecodedInstruction> got, std::span<const Executed> want) {
  Difference d;
  const auto got_ends = changes_of_half(got), want_ends = changes_of_half(want);
  if (got_ends.size() != want_ends.size()) {
    compare_part(got, want, 0, d);
    return d;
  }
  for (size_t i = 0, g = 0, w = 0; i < got_ends.size(); g = got_ends[i], w = want_ends[i], ++i)
    compare_part(got.subspan(g, got_ends[i] - g), want.subspan(w, want_ends[i] - w), w, d);
  return d;
}

Result<DecodedCapture> decode_capture(const std::string& path, const CaptureOptions& capture,
                                      const PipelineOptions& pipeline) {
  auto opened = open_capture(path, capture);
  if (!opened) return std::unexpected(opened.error());
  DecodedCapture out{std::move(*opened), {}};
  out.streams.resize(out.capture.streams.size());
  Collector collector(out.streams);
  const auto done = run_pipeline(out.capture, pipeline, ChunkOrder::kByStream, collector);
  if (!done) return std::unexpected(done.error());
  return out;
}

}  // namespace asof::test
