// A block stream of a recording that still goes on. What was decoded of it can be read as soon as it is written: in front
// of it is a description of the recording as it was then, which the next one replaces. Descriptions have all records, so
// what is decoded is held back until all of them together are not larger than what they describe.
#include "decoder/blocks/block_capture.h"
#include "decoder/blocks/block_writer.h"

namespace asof::blocks {

BlockWriter::BlockWriter(const Capture& capture, Write write, Growing)
    : write_(std::move(write)),
      texts_(capture),
      zstd_(nullptr, nullptr),
      capture_(&capture),
      origins_(std::in_place) {
  origins_->move_to(*capture.text);
  const std::vector<uint8_t> body = put_capture(capture, *origins_);
  std::vector<uint8_t> out;
  put_header(kGrowingVersion, identity_of(body), out);
  put_record(RecordType::kCapture, {}, body, out);
  names_ = put_names(out);
  described_ = out.size();
  write_(out);
}

void BlockWriter::move_to(const Capture& capture) {
  if (capture_ == &capture) return;
  flush();
  capture_ = &capture;
  texts_.emplace(capture);
  origins_->move_to(*capture.text);
  description_.clear();
  put_record(RecordType::kCapture, {}, put_capture(capture, *origins_), description_);
  described_names_ = put_names(description_);
  // Blocks and runs of other decoders can have the same places.
  by_pointer_.clear();
  for (Node& node : nodes_) node.block = nullptr;
  table_ = nullptr;
  runs_.clear();
}

void BlockWriter::hold(std::span<const uint8_t> bytes) {
  held_.insert(held_.end(), bytes.begin(), bytes.end());
}

void BlockWriter::give_out() {
  if (!description_.empty()) {
    write_(description_);
    names_ = described_names_;
  }
  described_ += description_.size();
  description_.clear();
  if (!held_.empty()) write_(held_);
  given_out_ += held_.size();
  held_.clear();
}

}  // namespace asof::blocks
