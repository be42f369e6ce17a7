#include "tools/decode/decode_blocks.h"

#include <tbb/enumerable_thread_specific.h>

#include "decoder/calls/call_stub.h"
#include "decoder/core/core_file.h"

namespace asof {
namespace {

blocks::BlockWriter::Write write_to(Output& out) {
  return [&out](std::span<const uint8_t> bytes) {
    out.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
}

struct PreparedCalls : ChunkConsumer::Prepared {
  std::vector<uint8_t> body;
  uint64_t bytes() const override { return body.capacity(); }
};

}  // namespace

struct BlocksConsumer::Calls {
  explicit Calls(const Capture& capture)
      : job(capture, {}), stubs([&capture, this] { return std::make_unique<CallStubs>(capture, job); }) {}
  FlowJob job;
  tbb::enumerable_thread_specific<std::unique_ptr<CallStubs>> stubs;
};

BlocksConsumer::BlocksConsumer(const Capture& capture, Output& out, const DecodeChoice& choice, bool calls)
    : out_(out),
      coverage_(capture, choice.pipeline),
      max_errors_(choice.max_errors),
      last_(choice.pipeline.time.hi),
      writer_(capture, write_to(out), calls),
      calls_(calls ? std::make_unique<Calls>(capture) : nullptr) {}

BlocksConsumer::BlocksConsumer(const Capture& capture, Output& out, const DecodeChoice& choice,
                               blocks::PartCoverage part, bool calls, blocks::BlockWriter::Memory& memory)
    : out_(out),
      coverage_(capture, choice.pipeline),
      max_errors_(choice.max_errors),
      last_(choice.pipeline.time.hi),
      writer_(capture, write_to(out), capture.core->identity(), std::move(part), calls, memory),
      calls_(calls ? std::make_unique<Calls>(capture) : nullptr) {}

BlocksConsumer::BlocksConsumer(const Capture& capture, Output& out, const DecodeChoice& choice,
                               blocks::BlockWriter::Growing growing)
    : out_(out),
      coverage_(capture, choice.pipeline),
      max_errors_(choice.max_errors),
      last_(choice.pipeline.time.hi),
      writer_(capture, write_to(out), growing) {}

BlocksConsumer::~BlocksConsumer() = default;

std::unique_ptr<ChunkConsumer::Prepared> BlocksConsumer::prepare(const Chunk& chunk, const Stream&) {
  if (!calls_) return nullptr;
  auto prepared = std::make_unique<PreparedCalls>();
  prepared->body = calls_->stubs.local()->of(chunk);
  return prepared;
}

void BlocksConsumer::move_to(const DecodeJob& job, const PipelineOptions& options, bool recording) {
  LiveConsumer::move_to(job, options, recording);
  coverage_.move_to(job.capture, options);
  last_ = options.time.hi;
  writer_.move_to(job.capture);
}

void BlocksConsumer::give_out(bool /*all*/) {
  writer_.flush();
  out_.flush();
}

void BlocksConsumer::write(Chunk& chunk, const Stream&, Prepared* prepared) {
  uint64_t instructions = chunk.steps.instructions_in_runs();
  for (const Step& step : chunk.steps.loose()) instructions += step.count;
  coverage_.add(chunk, instructions);
  // The begin of what follows the wanted time is of another part.
  if (chunk.steps.empty() && chunk.segment_start > last_) return;
  if (prepared != nullptr) {
    writer_.add(chunk, static_cast<PreparedCalls&>(*prepared).body);
  } else {
    writer_.add(chunk);
  }
  // While it is recording, a signal may be for the recorder; whoever decodes step by step looks at it.
  const bool interrupt = !recording() && interrupted();
  if (interrupt || out_.closed() || coverage_.errors() > max_errors_) stop();
}

void BlocksConsumer::finish() {
  if (stopped() || recording())
    writer_.stop();
  else
    writer_.finish();
  out_.flush();
}

Result<void> check_not_terminal(const Output& out) {
  if (!out.is_terminal()) return {};
  return fail(Code::kBadOption, "", Error::kNoOffset, "--format blocks is binary, not for a terminal",
              "use -o FILE");
}

}  // namespace asof
