// DecodeLines: chunks to lines in one order of time, for `asof decode`. Lines are made by the workers
// (decode_printer.h) and put in order by one thread (merge.h).
#pragma once
#include <tbb/enumerable_thread_specific.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "decoder/pipeline/pipeline.h"
#include "tools/cli/options.h"
#include "tools/decode/decode_printer.h"
#include "tools/output/coverage.h"
#include "tools/output/diagnostics.h"
#include "tools/output/merge.h"
#include "tools/output/output.h"

namespace asof {

// Memory of written lines, for later lines: there is so much text that new pages from the system would cost
// more than making it.
class LinePool {
 public:
  TimedText take();
  void give(TimedText&& lines);

 private:
  static constexpr size_t kMaxBytes = 64 << 20;
  std::mutex mutex_;
  std::vector<TimedText> free_;
  size_t bytes_ = 0;
};

class DecodeLines final : public ChunkConsumer {
 public:
  DecodeLines(const DecodeJob& job, Output& out, Diagnostics& diagnostics, const DecodeChoice& choice);
  ~DecodeLines() override;

  // What follows is of the same recording with more of it there; `job` must outlive it. `recording`: it still goes
  // on, and no signal ends it here.
  void move_to(const DecodeJob& job, const PipelineOptions& options, bool recording);

  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream& stream) override;
  void deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) override;
  void finished(const std::exception_ptr& error) override;
  bool stopped() const override { return stopped_; }

  void finish();
  Coverage& coverage() { return coverage_; }

  // While it is recording, a segment counts when all of it is there. Of one in which no text was known somewhere, more
  // records may say more: nothing of it is written, and nothing that comes after it.
  struct Reached {
    std::optional<size_t> segment;  // index of the last one that was written
    Time start = kTimeMin;
  };
  const std::vector<Reached>& reached() const { return reached_; }  // by stream
  bool text_missing() const { return text_missing_; }

 private:
  struct Printed;
  struct Held;
  void write(Chunk& chunk, const Stream& stream, Printed& printed);
  void hold(Chunk& chunk, const Stream& stream, Printed& printed);
  struct KeptBlock {
    Block block;
    std::vector<uint8_t> bytes, lengths;
  };

  const DecodeJob* job_;
  Output& out_;
  Diagnostics& diagnostics_;
  uint64_t max_errors_;
  Coverage coverage_;
  std::vector<DecodePrinter::Last> last_;         // by stream
  std::vector<std::unique_ptr<KeptBlock>> kept_;  // what last_ points to between two runs, by stream
  LinePool pool_;
  Merger merger_;
  std::unique_ptr<tbb::enumerable_thread_specific<DecodePrinter>> printers_;
  std::vector<Held> held_;  // of the segment that is being delivered
  std::vector<Reached> reached_;
  bool recording_ = false, text_missing_ = false, any_cycles_ = false;
  std::atomic<bool> stopped_ = false;
};

}  // namespace asof
