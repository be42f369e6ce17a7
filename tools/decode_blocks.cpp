#include "tools/decode_blocks.h"

#include "tools/tally.h"

namespace asof {

BlocksConsumer::BlocksConsumer(const Capture& capture, Output& out, uint64_t max_errors)
    : out_(out),
      coverage_(capture),
      max_errors_(max_errors),
      writer_(capture, [&out](std::span<const uint8_t> bytes) {
        out.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      }) {}

std::unique_ptr<ChunkConsumer::Prepared> BlocksConsumer::prepare(const Chunk& chunk, const Stream&) {
  auto tally = std::make_unique<Tally>();
  count_steps(chunk, *tally);
  return tally;
}

void BlocksConsumer::deliver(Chunk& chunk, const Stream&, Prepared* prepared) {
  coverage_.add(chunk, static_cast<const Tally&>(*prepared).ips.count);
  writer_.add(chunk);
  if (interrupted() || out_.closed() || coverage_.errors() > max_errors_) stopped_ = true;
}

bool BlocksConsumer::stopped() const { return stopped_; }

void BlocksConsumer::finish() {
  if (!stopped_) writer_.finish();
  out_.flush();
}

}  // namespace asof
