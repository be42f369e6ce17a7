// `asof decode --format blocks`: the flow as a block stream (docs/formats.md).
#pragma once
#include <memory>

#include "decoder/blocks/block_writer.h"
#include "tools/cli/options.h"
#include "tools/decode/live_consumer.h"
#include "tools/output/coverage.h"
#include "tools/output/output.h"

namespace asof {

class BlocksConsumer final : public LiveConsumer {
 public:
  // `calls`: with what calls add up to.
  BlocksConsumer(const Capture& capture, Output& out, const DecodeChoice& choice, bool calls);
  // A part of a plan. `memory`: of the part before it, of the same decoders.
  BlocksConsumer(const Capture& capture, Output& out, const DecodeChoice& choice, blocks::PartCoverage part,
                 bool calls, blocks::BlockWriter::Memory& memory);
  // Of a recording that goes on: move_to().
  BlocksConsumer(const Capture& capture, Output& out, const DecodeChoice& choice,
                 blocks::BlockWriter::Growing);
  ~BlocksConsumer() override;

  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream& stream) override;
  void move_to(const DecodeJob& job, const PipelineOptions& options, bool recording) override;
  void give_out(bool all) override;
  // A stream without an end, which one that was interrupted has not, is known as cut.
  void finish() override;
  Coverage& coverage() override { return coverage_; }

 private:
  struct Calls;

  void write(Chunk& chunk, const Stream& stream, Prepared* prepared) override;
  std::unique_ptr<Prepared> keep(Prepared* /*prepared*/) override { return nullptr; }

  Output& out_;
  Coverage coverage_;
  uint64_t max_errors_;
  Time last_ = kTimeMax;  // that is wanted
  blocks::BlockWriter writer_;
  std::unique_ptr<Calls> calls_;  // nullptr: not wanted
};

// It is binary.
Result<void> check_not_terminal(const Output& out);

}  // namespace asof
