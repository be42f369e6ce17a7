#include "decoder/bundle/bundle_returns.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "arch/arch.h"

namespace asof {
namespace {

constexpr uint64_t kSample = 2048;  // bytes of trace from one sync point
constexpr size_t kSamples = 16;
// Where returns are compressed, nearly all are that go to a call behind the sync point.
constexpr size_t kEnough = 256;

class ReturnCount final : public ChunkSink {
 public:
  void take(Chunk&& chunk) override {
    compressed_ = compressed_ || std::ranges::any_of(chunk.gaps, [](const Gap& gap) {
                    return gap.code == Code::kReturnWithoutItsCall;
                  });
    for (const Step& step : chunk.steps)
      if (took_branch(step) && step.block->kind == BranchKind::kRet) ++returns_;
  }
  bool compressed() const { return compressed_; }
  bool enough() const { return returns_ >= kEnough; }

 private:
  bool compressed_ = false;
  size_t returns_ = 0;
};

bool all_returns_have_tips(const Capture& capture) {
  const auto arch = capture.arch();
  if (!arch) return false;
  const auto decoder = (*arch)->decoder(capture.streams, *capture.text, {});
  ReturnCount count;
  size_t samples = 0;
  for (size_t i = 0; i < capture.streams.size() && samples < kSamples; ++i) {
    const auto segments = (*arch)->segments(capture.streams[i], i, 0);
    for (; samples < kSamples; ++samples) {
      auto segment = segments->next();
      if (!segment) break;
      segment->before.reset();
      segment->end = std::min(segment->end, segment->begin + kSample);
      segment->tail_end = std::min(segment->tail_end, segment->begin + kSample);
      decoder->decode(*segment, count);
      if (count.compressed() || count.enough()) return !count.compressed();
    }
  }
  return false;
}

}  // namespace

void settle_return_compression(Capture& capture) {
  capture.x86.no_ret_compression = true;
  capture.x86.no_ret_compression = all_returns_have_tips(capture);
}

}  // namespace asof
