#include "tests/support/decode_capture.h"

#include <fmt/format.h>

#include <algorithm>

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

constexpr size_t kMeet = 12;         // instructions that must agree to call it met again
constexpr size_t kLookAhead = 8192;  // of the truth

bool agree(std::span<const DecodedInstruction> got, std::span<const Executed> want, size_t count) {
  const size_t n = std::min({got.size(), want.size(), count});
  if (n == 0) return got.empty() && want.empty();
  for (size_t i = 0; i < n; ++i) {
    if (i > 0 && got[i].after_gap) return true;  // what follows need not follow in the truth
    if (got[i].ip != want[i].ip) return false;
  }
  return true;
}

// The smallest total of passed-over instructions after which both sides agree again.
std::optional<std::pair<size_t, size_t>> meet(std::span<const DecodedInstruction> got,
                                              std::span<const Executed> want) {
  for (size_t total = 1; total <= kLookAhead; ++total) {
    const size_t most_wrong = std::min<size_t>(total, 64);
    for (size_t wrong = 0; wrong <= most_wrong; ++wrong) {
      const size_t missing = total - wrong;
      if (wrong > got.size() || missing > want.size()) continue;
      if (agree(got.subspan(wrong), want.subspan(missing), kMeet)) return std::pair(wrong, missing);
    }
  }
  return std::nullopt;
}

}  // namespace

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

Difference compare(std::span<const DecodedInstruction> got, std::span<const Executed> want) {
  Difference d;
  size_t g = 0, w = 0;
  while (g < got.size() || w < want.size()) {
    if (g < got.size() && w < want.size() && got[g].ip == want[w].ip &&
        (!got[g].after_gap || agree(got.subspan(g), want.subspan(w), kMeet))) {
      ++d.right, ++g, ++w;
      continue;
    }
    if (d.first.empty()) {
      d.first = fmt::format("instruction {}: decoded {:#x}, executed {:#x}", w,
                            g < got.size() ? got[g].ip : 0, w < want.size() ? want[w].ip : 0);
    }
    const auto m = meet(got.subspan(g), want.subspan(w)).value_or(std::pair(got.size() - g, want.size() - w));
    for (size_t i = 0; i < m.second; ++i) d.missing_ips.push_back(want[w + i].ip);
    d.wrong += m.first, d.missing += m.second;
    g += m.first, w += m.second;
  }
  return d;
}

}  // namespace asof::test
