#include "tests/fuzz/decode_all.h"

#include <string_view>

#include "tests/fuzz/fuzz.h"

namespace asof::fuzz {

// By instruction: where blocks end is no part of the flow.
void FlowSum::deliver(Chunk& chunk, const Stream&, Prepared*) {
  add(chunk.stream);
  for (auto step = chunk.steps.begin(); step != chunk.steps.end(); ++step) {
    FUZZ_CHECK(step->count != 0 && step->count <= step->block->count);
    Addr ip = step->block->ip;
    for (uint32_t i = 0; i < step->count; ++i) {
      add(ip);
      ip += step->block->lengths[i];
    }
    FUZZ_CHECK(ip <= step->block->end());
    instructions_ += step->count;
  }
  for (const Event& e : chunk.events) {
    FUZZ_CHECK(e.step <= chunk.steps.size());
    add_event(e);
  }
  for (const Gap& g : chunk.gaps) {
    FUZZ_CHECK(g.step <= chunk.steps.size() && g.begin <= g.end && g.code != Code::kNone);
    add_gap(g);
  }
}

void FlowSum::add_event(const Event& e) {
  add(static_cast<uint64_t>(e.kind)), add(e.ip), add(e.a), add(e.b), add(e.offset),
      add(static_cast<uint64_t>(e.time));
}

void FlowSum::add_gap(const Gap& g) {
  add(static_cast<uint64_t>(g.code)), add(g.begin), add(g.end), add(g.ip), add(g.resume_ip);
}

FlowSum decode_all(const Capture& capture, const PipelineOptions& options) {
  FlowSum sum;
  const auto done = run_pipeline(capture, options, ChunkOrder::kByStream, sum);
  FUZZ_CHECK(done.has_value());
  return sum;
}

void decode_opened(const Result<Capture>& capture) {
  if (!capture) {
    FUZZ_CHECK(!capture.error().reason.empty());
    return;
  }
  PipelineOptions pipeline;
  pipeline.jobs = 1;
  if (capture->arch()) decode_all(*capture, pipeline);
}

void check_same_flow(const Capture& capture, bool with_threads) {
  PipelineOptions one, four, plain;
  one.jobs = plain.jobs = 1;
  four.jobs = 4;
  plain.decode.block_cache = false;
  const uint64_t sum = decode_all(capture, one).value();
  FUZZ_CHECK(decode_all(capture, plain).value() == sum);
  if (with_threads) FUZZ_CHECK(decode_all(capture, four).value() == sum);
}

}  // namespace asof::fuzz
