// Pipeline: all segments of all streams decoded in parallel, delivered in order.
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "arch/arch.h"
#include "decoder/model/capture.h"

namespace asof {

struct PipelineOptions {
  unsigned jobs = 0;  // 0: as many as CPUs
  DecodeOptions decode{};
  std::vector<int> cpus{};                           // streams to decode; empty: all
  std::vector<int> tids{};                           // of per-thread streams
  TimeBounds time{};                                 // segments wholly outside are not decoded
  std::optional<std::vector<StreamRange>> ranges{};  // only these, at most one of each stream
  uint64_t max_memory = 0;  // bytes for decoded output that waits for delivery; 0: a default
};

// Receives chunks in one order that depends on the capture alone: by stream and segment. Called by one thread
// at a time. Heavy per-chunk work belongs in prepare().
class ChunkConsumer {
 public:
  // Per-worker half: runs in parallel, before the chunk waits for delivery. The returned object is passed to
  // deliver().
  struct Prepared {
    virtual ~Prepared() = default;
    virtual uint64_t bytes() const { return 0; }  // memory it holds, for the budget
  };
  virtual ~ChunkConsumer() = default;
  virtual std::unique_ptr<Prepared> prepare(const Chunk&, const Stream&) { return nullptr; }
  virtual void deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) = 0;
  // Whether deliver() reads the entries of a chunk's steps. If only prepare() does, their memory is reused at
  // once, while it is in a cache, and does not wait (StepList::give_codes). Called by all workers.
  virtual bool delivers_steps() const { return true; }
  // After the last deliver(), while all Blocks still live. `error`: what ended the work, if anything did.
  virtual void finished(const std::exception_ptr& /*error*/) {}
  // Return true to stop early (closed pipe, limit reached). Called by all workers, also while another one
  // delivers.
  virtual bool stopped() const { return false; }
};

enum class ChunkOrder : uint8_t {
  kByStream,  // stream 0 from start to end, then stream 1, ...
  kByTime,    // segments of all streams by their start time
};

struct PipelineProgress {
  uint64_t done_bytes = 0, total_bytes = 0;
};

// Decodes. The SegmentDecoders (and with them all Blocks) live until it returns.
Result<void> run_pipeline(const Capture& capture, const PipelineOptions& options, ChunkOrder order,
                          ChunkConsumer& consumer,
                          const std::function<void(const PipelineProgress&)>& progress = {});

}  // namespace asof
