// DecodeLines: chunks to lines in one order of time, for `asof decode`. Lines are made by the workers
// (decode_printer.h) and put in order by one thread (merge.h).
#pragma once
#include <tbb/enumerable_thread_specific.h>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tools/cli/options.h"
#include "tools/decode/live_consumer.h"
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

class DecodeLines final : public LiveConsumer {
 public:
  DecodeLines(const DecodeJob& job, Output& out, Diagnostics& diagnostics, const DecodeChoice& choice);
  ~DecodeLines() override;

  void move_to(const DecodeJob& job, const PipelineOptions& options, bool recording) override;
  void give_out(bool all) override;

  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream& stream) override;
  void finished(const std::exception_ptr& error) override;

  void finish() override;
  Coverage& coverage() override { return coverage_; }

 private:
  struct Printed;
  void write(Chunk& chunk, const Stream& stream, Prepared* prepared) override;
  std::unique_ptr<Prepared> keep(Prepared* prepared) override;
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
  uint64_t selected_ = 0;  // instructions
  bool any_cycles_ = false, any_lines_ = false;
};

}  // namespace asof
