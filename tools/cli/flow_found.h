// Whether anything of a trace could be decoded: the exit status of verbs that count something else.
#pragma once
#include "decoder/pipeline/pipeline.h"
#include "tools/output/exit_code.h"

namespace asof {

struct FlowFound {
  bool instructions = false;
  bool errors = false;        // gaps that are errors
  bool text_missing = false;  // the cause of some
};
ExitCode exit_code_for(const FlowFound& found);

// Passes everything on to `consumer` and takes note.
class FlowWatch final : public ChunkConsumer {
 public:
  FlowWatch(ChunkConsumer& consumer, FlowFound& found) : consumer_(consumer), found_(found) {}

  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream& stream) override {
    return consumer_.prepare(chunk, stream);
  }
  void deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) override;
  void finished(const std::exception_ptr& error) override { consumer_.finished(error); }
  bool delivers_steps() const override { return consumer_.delivers_steps(); }
  bool stopped() const override { return consumer_.stopped(); }

 private:
  ChunkConsumer& consumer_;
  FlowFound& found_;
};

}  // namespace asof
