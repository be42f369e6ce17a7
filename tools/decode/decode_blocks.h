// `asof decode --format blocks`: the flow as a block stream (docs/formats.md).
#pragma once
#include <atomic>
#include <memory>

#include "decoder/blocks/block_writer.h"
#include "decoder/pipeline/pipeline.h"
#include "tools/cli/options.h"
#include "tools/output/coverage.h"
#include "tools/output/output.h"

namespace asof {

class BlocksConsumer final : public ChunkConsumer {
 public:
  // `calls`: with what calls add up to.
  BlocksConsumer(const Capture& capture, Output& out, const DecodeChoice& choice, bool calls);
  // A part of a plan.
  BlocksConsumer(const Capture& capture, Output& out, const DecodeChoice& choice, blocks::PartCoverage part,
                 bool calls);
  ~BlocksConsumer() override;
  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream& stream) override;
  void deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) override;
  bool stopped() const override;
  // Not after an interrupt: a stream without an end is known as cut.
  void finish();
  Coverage& coverage() { return coverage_; }

 private:
  struct Calls;

  Output& out_;
  Coverage coverage_;
  uint64_t max_errors_;
  blocks::BlockWriter writer_;
  std::unique_ptr<Calls> calls_;  // nullptr: not wanted
  std::atomic<bool> stopped_ = false;
};

}  // namespace asof
