#include "decoder/pipeline/unjudged.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace asof {
namespace {

class UnjudgedSink final : public ChunkSink {
 public:
  explicit UnjudgedSink(ChunkSink& to) : to_(to) {}
  Chunk spare() override { return to_.spare(); }
  void take(Chunk&& chunk) override {
    StepList steps;
    std::vector<uint32_t> before;  // steps in front of each entry
    for (auto s = chunk.steps.begin(); s != chunk.steps.end(); ++s) {
      if (s.position() == before.size()) before.push_back(static_cast<uint32_t>(steps.size()));
      Step step = *s;
      step.confidence = std::max(step.confidence, Confidence::kAmbiguous);
      steps.push_back(step);
    }
    before.resize(chunk.steps.size() + 1, static_cast<uint32_t>(steps.size()));
    for (Event& e : chunk.events) e.step = before.at(std::min<size_t>(e.step, before.size() - 1));
    for (Gap& g : chunk.gaps) g.step = before.at(std::min<size_t>(g.step, before.size() - 1));
    chunk.steps = std::move(steps);
    to_.take(std::move(chunk));
  }

 private:
  ChunkSink& to_;
};

class UnjudgedDecoder final : public SegmentDecoder {
 public:
  explicit UnjudgedDecoder(std::unique_ptr<SegmentDecoder> decoder) : decoder_(std::move(decoder)) {}
  void decode(const Segment& segment, ChunkSink& sink) override {
    UnjudgedSink unjudged(sink);
    decoder_->decode(segment, unjudged);
  }

 private:
  std::unique_ptr<SegmentDecoder> decoder_;
};

}  // namespace

std::unique_ptr<SegmentDecoder> unjudged(std::unique_ptr<SegmentDecoder> decoder) {
  return std::make_unique<UnjudgedDecoder>(std::move(decoder));
}

}  // namespace asof
