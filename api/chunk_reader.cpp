#include "api/chunk_reader.h"

#include <utility>

#include "textstore/check.h"

namespace asof::v0 {
namespace {

constexpr uint64_t kMostWaiting = 16 << 20;  // bytes of chunks between the pipeline and the reader

uint64_t bytes_of(const asof::Chunk& c) {
  return sizeof c + c.steps.bytes() + c.events.capacity() * sizeof(asof::Event) +
         c.gaps.capacity() * sizeof(asof::Gap);
}

}  // namespace

ChunkReader::ChunkReader(std::shared_ptr<const CaptureData> data, asof::PipelineOptions options,
                         asof::ChunkOrder order)
    : data_(std::move(data)), options_(std::move(options)), order_(order), chunks_(kMostWaiting) {}

ChunkReader::~ChunkReader() {
  closed_ = true;
  chunks_.close();
  if (thread_.joinable()) thread_.join();
}

void ChunkReader::run() {
  std::exception_ptr error;
  try {
    // open() has checked for the backend, which is all that can fail.
    const auto done = asof::run_pipeline(data_->capture, options_, order_, *this);
    ASOF_CHECK(done);
  } catch (...) {
    error = std::current_exception();
  }
  chunks_.end(error);
}

bool ChunkReader::next(asof::Chunk& chunk) {
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  return chunks_.take(chunk);
}

void ChunkReader::give_back(asof::Chunk&& chunk) {
  chunk.clear();
  chunks_.give_back(std::move(chunk));
}

void ChunkReader::deliver(asof::Chunk& chunk, const asof::Stream&, Prepared*) {
  chunks_.give(chunk, bytes_of(chunk));
}

void ChunkReader::finished(const std::exception_ptr& error) {
  chunks_.end(error);
  chunks_.wait_until_closed();
}

}  // namespace asof::v0
