#include "decoder/blocks/block_record.h"

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

void FlowRecord::event(const Event& e) {
  Writer& w = events_.entry(steps);
  w.u8(static_cast<uint8_t>(e.kind));
  w.difference(static_cast<uint64_t>(event_time_), static_cast<uint64_t>(e.time));
  event_time_ = e.time;
  w.varint(e.ip);
  w.varint(e.a);
  w.varint(e.b);
  w.varint(e.offset);
}

void FlowRecord::gap(const Gap& g) {
  Writer& w = gaps_.entry(steps);
  w.varint(g.begin);
  w.difference(g.begin, g.end);
  w.signed_varint(g.time.lo);
  w.signed_varint(g.time.hi);
  w.varint(g.ip);
  w.varint(g.resume_ip);
  w.text(code_text(g.code));
  w.text(g.reason);
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
  return w.data();
}

}  // namespace asof::blocks
