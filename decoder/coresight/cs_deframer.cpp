#include "decoder/coresight/cs_deframer.h"

#include <algorithm>

namespace asof {
namespace {

constexpr std::array<uint8_t, 4> kFsync = {0xff, 0xff, 0xff, 0x7f};
constexpr std::array<uint8_t, 16> kBarrier = {0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f,
                                              0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f};

bool starts_with(std::span<const uint8_t> bytes, std::span<const uint8_t> what) {
  return bytes.size() >= what.size() && std::equal(what.begin(), what.end(), bytes.begin());
}

}  // namespace

Deframer::Item Deframer::next() {
  run_count_ = 0;
  data_count_ = 0;
  return alignment_ == FrameAlignment::kMemory ? next_in_memory() : next_from_port();
}

Deframer::Item Deframer::skip(Item item, uint64_t from, uint64_t to) {
  skipped_at_ = from;
  skipped_ = to - from;
  offset_ = to;
  return item;
}

Deframer::Item Deframer::next_in_memory() {
  const uint64_t left = bytes_.size() - offset_;
  if (left == 0) return Item::kEnd;
  if (left < kFrameSize) return skip(Item::kPartial, offset_, bytes_.size());
  const auto frame = bytes_.subspan(offset_, kFrameSize);
  const uint64_t base = offset_;
  offset_ += kFrameSize;
  if (starts_with(frame, kBarrier)) {
    id_ = kUnknownTraceId;
    return Item::kBarrier;
  }
  std::copy(frame.begin(), frame.end(), frame_.begin());
  for (uint8_t i = 0; i < kFrameSize; ++i) place_of_[i] = i;
  unpack(base);
  return Item::kFrame;
}

// Frames of a trace port: FSYNC packets between frames, HSYNC packets between the halfwords of one. Neither
// can be data: their first byte would be the reserved ID 0x7f.
Deframer::Item Deframer::next_from_port() {
  if (!synced_) return search_sync();
  while (starts_with(bytes_.subspan(offset_), kFsync)) offset_ += kFsync.size();
  if (offset_ == bytes_.size()) return Item::kEnd;
  const uint64_t base = offset_;
  if (gather_frame()) {
    unpack(base);
    return Item::kFrame;
  }
  const uint64_t stopped = offset_;
  if (bytes_.size() - stopped < 2) return skip(Item::kPartial, base, bytes_.size());
  synced_ = false;
  id_ = kUnknownTraceId;
  return skip(Item::kUnsynced, base, stopped);
}

Deframer::Item Deframer::search_sync() {
  const auto rest = bytes_.subspan(offset_);
  const auto hit = std::search(rest.begin(), rest.end(), kFsync.begin(), kFsync.end());
  const uint64_t from = offset_;
  if (hit == rest.end()) {
    if (rest.empty()) return Item::kEnd;
    return skip(Item::kUnsynced, from, bytes_.size());
  }
  synced_ = true;
  const uint64_t at = from + static_cast<uint64_t>(hit - rest.begin());
  if (at == from) return next_from_port();
  return skip(Item::kUnsynced, from, at);
}

// Fills frame_ from offset_ on, stepping over HSYNC. False, with offset_ where it stopped: the data ends, or
// an FSYNC or a reserved ID is within the frame. More HSYNCs than a counter can hold cannot be trace: the
// frame is given up then.
bool Deframer::gather_frame() {
  const uint64_t base = offset_;
  for (size_t filled = 0; filled < kFrameSize;) {
    if (bytes_.size() - offset_ < 2) return false;
    const uint8_t first = bytes_[offset_], second = bytes_[offset_ + 1];
    if (first == 0xff && second == 0x7f) {
      offset_ += 2;
      continue;
    }
    if (first == 0xff || offset_ - base > UINT8_MAX - 2) return false;
    frame_[filled] = first;
    frame_[filled + 1] = second;
    place_of_[filled] = static_cast<uint8_t>(offset_ - base);
    place_of_[filled + 1] = static_cast<uint8_t>(offset_ - base + 1);
    filled += 2;
    offset_ += 2;
  }
  return true;
}

void Deframer::add(uint8_t id, uint8_t value, uint8_t place) {
  const size_t at = data_count_++;
  data_[at] = value;
  places_[at] = place;
  if (run_count_ == 0 || runs_[run_count_ - 1].id != id) {
    runs_[run_count_++] = {.id = id, .count = 0, .data = data_.data() + at, .places = places_.data() + at};
  }
  ++runs_[run_count_ - 1].count;
}

// Even bytes hold seven bits of data, their lowest bit is in the last byte, or, with bit 0 set, a new ID. It
// counts from the next byte on, or, with the bit in the last byte set, from the one after.
void Deframer::unpack(uint64_t base) {
  const uint8_t flags = frame_[15];
  for (uint8_t i = 0; i < 14; i += 2) {
    const uint8_t flag = (flags >> (i / 2U)) & 1U;
    const uint8_t old_id = id_;
    if ((frame_[i] & 1U) != 0) {
      id_ = frame_[i] >> 1U;
    } else {
      add(id_, frame_[i] | flag, place_of_[i]);
    }
    const bool late = (frame_[i] & 1U) != 0 && flag != 0;
    add(late ? old_id : id_, frame_[i + 1], place_of_[i + 1]);
  }
  if ((frame_[14] & 1U) != 0) {
    id_ = frame_[14] >> 1U;
  } else {
    add(id_, static_cast<uint8_t>(frame_[14] | ((flags >> 7U) & 1U)), place_of_[14]);
  }
  for (size_t i = 0; i < run_count_; ++i) runs_[i].base = base;
}

}  // namespace asof
