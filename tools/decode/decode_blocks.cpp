#include "tools/decode/decode_blocks.h"

namespace asof {

BlocksConsumer::BlocksConsumer(const Capture& capture, Output& out, const DecodeChoice& choice)
    : out_(out),
      coverage_(capture, choice.pipeline),
      max_errors_(choice.max_errors),
      writer_(capture, [&out](std::span<const uint8_t> bytes) {
        out.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      }) {}

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
