// Malicious block streams: opened, every walk in them followed, and their calls added up. Seeds: the output of
// `asof decode --format blocks` for small captures, with and without --calls.
#include <cstdlib>

#include "decoder/blocks/block_file.h"
#include "decoder/calls/call_span.h"
#include "decoder/calls/timeline.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/record_mutator.h"

FUZZ_MUTATES_RECORDS

namespace {

// Every third span is followed instead.
class Sums final : public asof::TimelineSink {
 public:
  void slice(const asof::Slice& s) override { told += s.instructions; }
  bool takes_sums() const override { return true; }
  bool takes_sum(uint32_t, asof::Time, asof::Time) const override { return ++asked_ % 3 != 0; }
  void sum(const asof::CallSums& sums, uint32_t, uint64_t) override { told += sums.span.sums.size(); }
  uint64_t told = 0;

 private:
  mutable uint64_t asked_ = 0;
};

}  // namespace

FUZZ_TARGET(block_stream) {
  const auto capture = asof::blocks::BlockFile::open(asof::fuzz::as_file(bytes));
  if (!capture) return;
  uint64_t sum = 0;
  for (size_t i = 0; i < capture->streams.size(); ++i) {
    for (const auto& frame : capture->blocks->frames(i)) {
      const asof::Chunk chunk = capture->blocks->read(i, frame);
      for (auto step = chunk.steps.begin(); step != chunk.steps.end(); ++step) {
        FUZZ_CHECK(step->count != 0 && step->count <= step->block->count);
        sum += step->block->bytes[step->block->size - 1];
      }
      for (const asof::Event& e : chunk.events) FUZZ_CHECK(e.step <= chunk.steps.size());
    }
  }
  if (capture->blocks->has_calls()) {
    Sums sums;
    asof::TimelineOptions options;
    options.pipeline.jobs = 1;
    (void)asof::run_timeline(*capture, options, sums);
    sum += sums.told;
  }
  volatile uint64_t read = sum;
  (void)read;
}
