#include "tools/decode/decode_blocks.h"

#include "decoder/core/core_file.h"

namespace asof {
namespace {

blocks::BlockWriter::Write write_to(Output& out) {
  return [&out](std::span<const uint8_t> bytes) {
    out.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
}

}  // namespace

BlocksConsumer::BlocksConsumer(const Capture& capture, Output& out, const DecodeChoice& choice)
    : out_(out),
      coverage_(capture, choice.pipeline),
      max_errors_(choice.max_errors),
      writer_(capture, write_to(out)) {}

BlocksConsumer::BlocksConsumer(const Capture& capture, Output& out, const DecodeChoice& choice,
                               blocks::PartCoverage part)
    : out_(out),
      coverage_(capture, choice.pipeline),
      max_errors_(choice.max_errors),
      writer_(capture, write_to(out), capture.core->identity(), std::move(part)) {}

void BlocksConsumer::deliver(Chunk& chunk, const Stream&, Prepared*) {
  uint64_t instructions = chunk.steps.instructions_in_runs();
  for (const Step& step : chunk.steps.loose()) instructions += step.count;
  coverage_.add(chunk, instructions);
  writer_.add(chunk);
  if (interrupted() || out_.closed() || coverage_.errors() > max_errors_) stopped_ = true;
}

bool BlocksConsumer::stopped() const { return stopped_; }

void BlocksConsumer::finish() {
  if (stopped_)
    writer_.stop();
  else
    writer_.finish();
  out_.flush();
}

}  // namespace asof
