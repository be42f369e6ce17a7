// What the choice between versions (arch/walk/hypothesis.h) asks of x86: bounds of time, and what else the
// flow knows of the text.
#include <algorithm>
#include <iterator>

#include "arch/walk/hypothesis_impl.h"
#include "arch/walk/text_impl.h"
#include "arch/x86/flow.h"

namespace asof::x86 {

// The first timing packet after the packet in use: nothing that this packet describes ran later.
Time Flow::ceiling(const State& s) {
  if (ceiling_from_ != nullptr && s.p >= ceiling_from_ && s.p <= ceiling_to_) return ceiling_;
  Clock clock = s.clock;
  uint8_t block_bytes = s.block_bytes;
  const uint8_t* p = s.p;
  ceiling_from_ = p;
  ceiling_ = kTimeMax;
  ceiling_pause_ = false;
  for (;;) {
    if (block_bytes == 0) p = skip_short_tnt(p, end_);
    const Packet k = packets_.next(p, block_bytes);
    if (k.type == Pk::kEnd || k.type == Pk::kBad) break;
    if (clock.update(k) && clock.has_time() && clock.exact()) {
      ceiling_ = clock.ceiling();
      break;
    }
    ceiling_pause_ |= k.type == Pk::kPgd;
    block_bytes = next_block_bytes(k, block_bytes);
    p += k.size;
  }
  ceiling_to_ = p;
  if (ceiling_ == kTimeMax) ceiling_ = stream_->bounds.hi;
  return ceiling_;
}

TimeBounds Flow::bounds(const State& s) {
  TimeBounds b{s.lo == kTimeMin ? stream_->bounds.lo : s.lo, ceiling(s)};
  if (b.hi < b.lo) std::swap(b.lo, b.hi);  // a clock that went backwards
  b = widen(b, options_.clock_error);
  b.lo = std::max(b.lo, s.visits.lo);
  b.hi = std::max(b.hi, b.lo);
  return b;
}

// Leaves those of the life that the flow is in, where its bytes are among them.
void Flow::keep_life(const State& s, std::vector<Variant*>& known) const {
  const auto is_program = [&](OriginRef o) {
    return o != kNoOrigin && !is_poke(o) && text_.origin(o).kind == OriginKind::kBpfImage;
  };
  if (known.size() < 2 || !is_program(s.life)) return;
  if (std::ranges::none_of(known, [&](const Variant* v) { return v->block.origin == s.life; })) return;
  std::erase_if(known,
                [&](const Variant* v) { return v->block.origin != s.life && is_program(v->block.origin); });
}

// Without those that a poke up to visits.poked_lo put other bytes in the place of.
void Flow::drop_poked(const State& s, std::vector<Variant*>& known) {
  if (s.visits.poked_lo == kTimeMin) return;
  const auto is_over = [&](const Variant* v) {
    if (v->block.until >= s.visits.poked_lo) return false;
    return std::ranges::any_of(known, [&](const Variant* next) {
      return is_poke(next->block.origin) && next->block.from == v->block.until + 1;
    });
  };
  std::vector<Variant*> left;
  std::ranges::remove_copy_if(known, std::back_inserter(left), is_over);
  if (!left.empty()) known = std::move(left);
}

bool Flow::narrow(const State& s, std::vector<Variant*>& known) const {
  const size_t all = known.size();
  keep_life(s, known);
  drop_poked(s, known);
  return known.size() < all;
}

void Flow::assume(State& s, const Hypothesis& h) const {
  if (h.returns != Returns::Policy::kUnknown) s.rets.settle(h.returns);
  assume_text(s, h, options_.clock_error);
}

}  // namespace asof::x86

namespace asof::walk {

template class Hypotheses<x86::Flow, x86::FlowTypes>;
template x86::Variant* Hypotheses<x86::Flow, x86::FlowTypes>::text<true>(State&, Trial*, Stop&);
template Stop Hypotheses<x86::Flow, x86::FlowTypes>::idle<true>(State&);
template const x86::Hypothesis* Hypotheses<x86::Flow, x86::FlowTypes>::choose<true>(
    State&, const std::vector<Hypothesis>&, bool, Trial*, Stop&);
template x86::Variant* Hypotheses<x86::Flow, x86::FlowTypes>::text<false>(State&, Trial*, Stop&);
template Stop Hypotheses<x86::Flow, x86::FlowTypes>::idle<false>(State&);
template const x86::Hypothesis* Hypotheses<x86::Flow, x86::FlowTypes>::choose<false>(
    State&, const std::vector<Hypothesis>&, bool, Trial*, Stop&);

}  // namespace asof::walk
