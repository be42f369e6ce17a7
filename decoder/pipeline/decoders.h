// Decoders: the workers' decoders of one capture, for one pass over its trace or several. What they found out about text
// is found once, and the blocks that they made live as long as they do.
#pragma once
#include <memory>
#include <vector>

#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"

namespace asof {

class Decoders {
 public:
  // The capture must outlive it.
  static Result<Decoders> of(const Capture& capture, const DecodeOptions& options);

  const Arch& arch() const { return *arch_; }
  const Capture& capture() const { return *capture_; }
  // There are `workers`.
  void provide(size_t workers);
  SegmentDecoder& operator[](size_t worker) { return *decoders_[worker]; }

 private:
  Decoders(const Capture& capture, std::unique_ptr<Arch> arch, const DecodeOptions& options)
      : capture_(&capture), arch_(std::move(arch)), options_(options) {}

  const Capture* capture_;
  std::unique_ptr<Arch> arch_;
  DecodeOptions options_;
  std::vector<std::unique_ptr<SegmentDecoder>> decoders_;
};

// One pass, as continue_pipeline(). `options.decode` is what the decoders are of.
void run_pass(Decoders& decoders, const PipelineOptions& options, const std::vector<Time>& reached,
              ChunkOrder order, ChunkConsumer& consumer,
              const std::function<void(const PipelineProgress&)>& progress = {});

}  // namespace asof
