#include "tools/decode/live_consumer.h"

#include <algorithm>
#include <utility>

namespace asof {

void LiveConsumer::move_to(const DecodeJob& job, const PipelineOptions& /*options*/, bool recording) {
  recording_ = recording;
  if (text_missing_ && !recording) stopped_ = false;  // that was while it was recording
  reached_.resize(std::max(reached_.size(), job.capture.streams.size()));
}

void LiveConsumer::deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) {
  if (!recording_) return write(chunk, stream, prepared);
  text_missing_ |=
      std::ranges::any_of(chunk.gaps, [](const Gap& g) { return family_of(g.code) == CodeFamily::kText; });
  if (text_missing_) {
    held_.clear();
    stopped_ = true;
    return;
  }
  const bool last = chunk.last;
  const Reached reached{chunk.segment, chunk.segment_start};
  const size_t index = chunk.stream;
  held_.push_back({std::move(chunk), &stream, keep(prepared)});
  if (!last) return;
  for (Held& h : held_) write(h.chunk, *h.stream, h.prepared.get());
  reached_[index] = reached;
  held_.clear();
}

void LiveConsumer::finished(const std::exception_ptr& /*error*/) { held_.clear(); }

}  // namespace asof
