#include "decoder/live/record_framer.h"

#include <algorithm>
#include <cstring>

#include "decoder/perf/record_types.h"

namespace asof {
namespace {

constexpr uint64_t kPipeHeader = 16, kRecordHeader = 8;
constexpr uint64_t kMagic = 0x32454c4946524550;  // "PERFILE2"

}  // namespace

void RecordFramer::feed(std::span<const uint8_t> bytes) {
  while (!bytes.empty() && state_ != State::kOther) {
    if (left_ != 0) {
      skip(bytes);
      continue;
    }
    if (state_ == State::kHeader) {
      if (collect(bytes, kPipeHeader)) take_header();
    } else if (collect(bytes, have_ < kRecordHeader ? kRecordHeader : head_.size())) {
      take_record();
    }
  }
}

// Fills head_ up to `size` bytes. True: it has them.
bool RecordFramer::collect(std::span<const uint8_t>& bytes, size_t size) {
  const size_t taken = std::min(bytes.size(), size - have_);
  std::memcpy(head_.data() + have_, bytes.data(), taken);
  have_ += taken;
  pos_ += taken;
  bytes = bytes.subspan(taken);
  return have_ == size;
}

void RecordFramer::skip(std::span<const uint8_t>& bytes) {
  const auto taken = static_cast<size_t>(std::min<uint64_t>(bytes.size(), left_));
  pos_ += taken;
  left_ -= taken;
  // The payload is the end of the record.
  const uint64_t trace = payload_left_ - std::min(payload_left_, left_);
  trace_ += trace;
  payload_left_ -= trace;
  bytes = bytes.subspan(taken);
}

uint64_t RecordFramer::number(size_t at, size_t size) const {
  uint64_t out = 0;
  for (size_t i = 0; i < size; ++i) {
    const size_t byte = swapped_ ? size - 1 - i : i;
    out |= uint64_t{head_[at + i]} << (8 * byte);
  }
  return out;
}

void RecordFramer::take_header() {
  const uint64_t magic = number(0, 8);
  swapped_ = magic == __builtin_bswap64(kMagic);
  may_be_perf_data_ = magic == kMagic || swapped_ || std::memcmp(head_.data(), "PERFFILE", 8) == 0;
  is_pipe_ = (magic == kMagic || swapped_) && number(8, 8) == kPipeHeader;
  state_ = is_pipe_ ? State::kRecords : State::kOther;
  have_ = 0;
}

bool RecordFramer::take_record() {
  const auto type = static_cast<uint32_t>(number(0, 4));
  const uint64_t size = number(6, 2);
  if (size < kRecordHeader) {
    state_ = State::kOther;
    return true;
  }
  uint64_t payload = 0;
  if (type == perf::kAuxtrace || type == perf::kHeaderTracingData) {
    if (size < head_.size()) {
      state_ = State::kOther;
      return true;
    }
    if (have_ < head_.size()) return false;
    payload = type == perf::kAuxtrace ? number(8, 8) : (number(8, 4) + 7) & ~uint64_t{7};
    // More than there can be: nothing follows it.
    payload = std::min(payload, uint64_t{1} << 60U);
  }
  left_ = size - have_ + payload;
  payload_left_ = type == perf::kAuxtrace ? payload : 0;
  if (type == perf::kFinishedRound) {
    ++rounds_;
    round_end_ = pos_ + left_;
  }
  have_ = 0;
  return true;
}

}  // namespace asof
