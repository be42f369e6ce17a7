// LiveConsumer: what can be given out of a recording that still goes on, segment by segment. While it goes on, a segment
// counts when all of it is there. Of one in which no text was known somewhere, more records may say more: nothing of it is
// written, and nothing that comes after it.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "decoder/pipeline/pipeline.h"
#include "tools/decode/decode_printer.h"
#include "tools/output/coverage.h"

namespace asof {

class LiveConsumer : public ChunkConsumer {
 public:
  struct Reached {
    std::optional<size_t> segment;  // index of the last one that was written
    Time start = kTimeMin;
  };

  // What follows is of the same recording with more of it there; `job` must outlive it. `recording`: it still goes
  // on, and no signal ends it here.
  virtual void move_to(const DecodeJob& job, const PipelineOptions& options, bool recording);
  // What was delivered so far is to be where it can be read. `all`: nothing else will be delivered.
  virtual void give_out(bool all) = 0;
  virtual void finish() = 0;
  virtual Coverage& coverage() = 0;

  void deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) final;
  // Blocks go with the run that made them.
  void finished(const std::exception_ptr& error) override;
  bool stopped() const final { return stopped_; }
  const std::vector<Reached>& reached() const { return reached_; }  // by stream
  bool text_missing() const { return text_missing_; }

 protected:
  virtual void write(Chunk& chunk, const Stream& stream, Prepared* prepared) = 0;
  // Of what was prepared, an object that stays.
  virtual std::unique_ptr<Prepared> keep(Prepared* prepared) = 0;
  void stop() { stopped_ = true; }
  bool recording() const { return recording_; }

 private:
  struct Held {
    Chunk chunk;
    const Stream* stream;
    std::unique_ptr<Prepared> prepared;
  };

  std::vector<Held> held_;  // of the segment that is being delivered
  std::vector<Reached> reached_;
  bool recording_ = false, text_missing_ = false;
  std::atomic<bool> stopped_ = false;
};

}  // namespace asof
