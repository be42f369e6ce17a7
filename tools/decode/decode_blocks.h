// `asof decode --format blocks`: the flow as a block stream (docs/formats.md).
#pragma once
#include "decoder/blocks/block_writer.h"
#include "tools/cli/options.h"
#include "tools/decode/live_consumer.h"
#include "tools/output/coverage.h"
#include "tools/output/output.h"

namespace asof {

class BlocksConsumer final : public LiveConsumer {
 public:
  BlocksConsumer(const Capture& capture, Output& out, const DecodeChoice& choice);
  // A part of a plan.
  BlocksConsumer(const Capture& capture, Output& out, const DecodeChoice& choice, blocks::PartCoverage part);
  // Of a recording that goes on: move_to().
  BlocksConsumer(const Capture& capture, Output& out, const DecodeChoice& choice,
                 blocks::BlockWriter::Growing);

  void move_to(const DecodeJob& job, const PipelineOptions& options, bool recording) override;
  void give_out(bool all) override;
  // A stream without an end, which one that was interrupted has not, is known as cut.
  void finish() override;
  Coverage& coverage() override { return coverage_; }

 private:
  void write(Chunk& chunk, const Stream& stream, Prepared* prepared) override;
  std::unique_ptr<Prepared> keep(Prepared* /*prepared*/) override { return nullptr; }

  Output& out_;
  Coverage coverage_;
  uint64_t max_errors_;
  blocks::BlockWriter writer_;
};

// It is binary.
Result<void> check_not_terminal(const Output& out);

}  // namespace asof
