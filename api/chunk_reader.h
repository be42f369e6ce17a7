// ChunkReader: the pipeline as a source. It runs on a thread of its own and the chunks are pulled from it.
#pragma once
#include <atomic>
#include <memory>
#include <thread>

#include "api/capture_data.h"
#include "api/handover.h"
#include "decoder/pipeline/pipeline.h"

namespace asof::v0 {

// The thread starts at the first next(). It is not done before close(), as all Blocks live as long as the
// pipeline runs: what was read stays valid as long as the ChunkReader.
class ChunkReader final : private asof::ChunkConsumer {
 public:
  ChunkReader(std::shared_ptr<const CaptureData> data, asof::PipelineOptions options, asof::ChunkOrder order);
  ~ChunkReader() override;

  // In the order of the pipeline. False: that was all.
  bool next(asof::Chunk& chunk);
  // A chunk that was read, for its memory.
  void give_back(asof::Chunk&& chunk);

 private:
  void deliver(asof::Chunk& chunk, const asof::Stream& stream, Prepared* prepared) override;
  void finished(const std::exception_ptr& error) override;
  bool stopped() const override { return closed_; }
  void run();

  const std::shared_ptr<const CaptureData> data_;
  const asof::PipelineOptions options_;
  const asof::ChunkOrder order_;
  Handover<asof::Chunk> chunks_;
  std::atomic<bool> closed_ = false;
  std::thread thread_;
};

}  // namespace asof::v0
