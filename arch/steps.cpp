#include "arch/steps.h"

#include <algorithm>

#include "textstore/check.h"

namespace asof {

void CodeBuffer::move_to(size_t capacity) {
  auto codes = std::make_unique_for_overwrite<StepCode[]>(capacity);
  std::copy_n(codes_.get(), size_, codes.get());
  codes_ = std::move(codes);
  capacity_ = capacity;
}

void StepList::Iterator::next_entry() {
  const StepList& list = *list_;
  if (++position_ >= list.codes_.size()) {
    position_ = list.codes_.size();
    return;
  }
  const StepCode code = list.codes_[position_];
  if (code == StepCode::kLoose) {
    block_ = 0;
    blocks_ = 1;
    step_ = list.loose_[loose_++];
    return;
  }
  while (time_ < list.times_.size() && list.times_[time_].position <= position_) ++time_;
  step_ = Step{};
  step_.time = time_ == 0 ? kTimeMin : list.times_[time_ - 1].time;
  run_ = list.run_blocks(code);
  blocks_ = list.run(code).size;
  step_.confidence = list.run(code).confidence;
  taken_ = taken_bit(code) != 0;
  block_ = 0;
  set_block();
}

void StepList::Iterator::set_block() {
  const Block* b = run_[block_];
  step_.block = b;
  step_.count = b->count;
  step_.flags = leaves_by_branch(b->kind, block_ + 1 == blocks_, taken_) ? Step::kTaken : uint8_t{0};
}

uint64_t StepList::bytes() const {
  return codes_.capacity() * sizeof(StepCode) + loose_.capacity() * sizeof(Step) +
         times_.capacity() * sizeof(TimeMark) + sums_.capacity() * sizeof(SumMark);
}

void StepList::must_have_codes() const { ASOF_CHECK(codes_.has_memory()); }

Time StepList::time_at(size_t position) const {
  const auto after = std::ranges::upper_bound(times_, position, {}, &TimeMark::position);
  return after == times_.begin() ? kTimeMin : std::prev(after)->time;
}

void StepList::truncate(size_t position) {
  loose_.resize(loose_.size() - (codes_.size() - position));
  codes_.resize(position);
  while (!times_.empty() && times_.back().position >= position) times_.pop_back();
}

void StepList::split(size_t position, StepList& rest) {
  const size_t n = codes_.size() - position;
  for (size_t i = loose_.size() - n; i < loose_.size(); ++i) rest.push_back(loose_[i]);
  truncate(position);
}

void StepList::clear() {
  table_ = nullptr;
  in_runs_ = 0;
  codes_.resize(0);
  loose_.clear();
  times_.clear();
  sums_.clear();
}

}  // namespace asof
