#include "decoder/blocks/block_record.h"

#include <algorithm>

#include "decoder/blocks/block_items.h"

namespace asof::blocks {
namespace {

// What a reader assumes of a step.
bool is_plain(const Step& step) {
  return is_complete(step) && step.confidence == Confidence::kCertain && (step.flags & ~Step::kTaken) == 0;
}

}  // namespace

void BitList::add_many(uint64_t bits, unsigned n) {
  const unsigned shift = count_ % 8;
  if (n == 0) return;
  if (shift == 0) bytes_.push_back(0);
  bytes_.back() |= static_cast<uint8_t>(bits << shift);
  for (unsigned done = 8 - shift; done < n; done += 8) bytes_.push_back(static_cast<uint8_t>(bits >> done));
  count_ += n;
}

void FlowRecord::name_block(uint32_t block_number) {
  Writer& w = blocks_.entry(steps);
  w.difference(last_block_, block_number);
  last_block_ = block_number;
  quiet = 0;
}

void FlowRecord::at(Time t) {
  if (t == time_) return;
  times_.entry(steps).difference(static_cast<uint64_t>(time_), static_cast<uint64_t>(t));
  time_ = t;
}

void FlowRecord::attributes(const Step& step) {
  at(step.time);
  if (is_plain(step)) return;
  Writer& w = odd_.entry(steps);
  w.varint(step.count);
  // Except for conditional branches the flag means nothing, and not every walk sets it.
  w.u8(step.block->kind == BranchKind::kCond ? step.flags : step.flags & ~Step::kTaken & 0xff);
  w.u8(static_cast<uint8_t>(step.confidence));
}

void FlowRecord::event(const Event& e) { put_event(events_.entry(steps), e, event_time_); }

void FlowRecord::gap(const Gap& g) {
  put_gap(gaps_.entry(steps), g);
  gaps_after_.push_back(g.after);
}

std::vector<uint8_t> FlowRecord::body(std::span<const uint8_t> prefix) const {
  Writer w;
  w.bytes(prefix);
  w.varint(steps);
  for (const List* list : {&blocks_, &odd_, &times_, &events_, &gaps_}) {
    w.varint(list->count);
    w.bytes(list->content.data());
  }
  w.varint(bits_.count());
  w.bytes(bits_.bytes());
  if (std::ranges::any_of(gaps_after_, [](uint32_t n) { return n != 0; })) {
    for (const uint32_t n : gaps_after_) w.varint(n);
  }
  return w.data();
}

}  // namespace asof::blocks
