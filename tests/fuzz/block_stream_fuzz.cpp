// Malicious block streams: opened, and every walk in them followed. Seeds: the output of `asof decode
// --format blocks` for small captures.
#include <cstdlib>

#include "decoder/blocks/block_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/record_mutator.h"

FUZZ_MUTATES_RECORDS

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
  volatile uint64_t read = sum;
  (void)read;
}
