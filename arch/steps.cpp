#include "arch/steps.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "arch/pooled.h"
#include "textstore/check.h"

namespace asof {
namespace {

void set_executed(Step& step, const Block& b, bool last, bool taken) {
  step.block = &b;
  step.count = b.count;
  step.flags = leaves_by_branch(b.kind, last, taken) ? Step::kTaken : uint8_t{0};
}

bool is_to_address(BranchKind kind) {
  return kind == BranchKind::kJumpInd || kind == BranchKind::kCallInd || kind == BranchKind::kFarCall ||
         kind == BranchKind::kFarRet || kind == BranchKind::kFarJump;
}

}  // namespace

void StepCodeFree::operator()(StepCode* p) const {
  if (bytes >= kPooledAlone)
    PooledFree{bytes}(p);
  else
    std::free(p);
}

CodeBuffer::Memory CodeBuffer::memory(size_t bytes) {
  void* const p = bytes >= kPooledAlone ? pooled(bytes).release() : std::malloc(bytes);
  if (p == nullptr) throw std::bad_alloc();
  return Memory(static_cast<StepCode*>(p), {bytes});
}

void CodeBuffer::move_to(size_t capacity) {
  Memory codes = memory(capacity * sizeof(StepCode));
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

void StepList::Iterator::set_block() { set_executed(step_, *run_[block_], block_ + 1 == blocks_, taken_); }

uint64_t StepList::bytes() const {
  return codes_.capacity() * sizeof(StepCode) + loose_.capacity() * sizeof(Step) +
         times_.capacity() * sizeof(TimeMark) + sums_.capacity() * sizeof(SumMark);
}

void StepList::must_have_codes() const { ASOF_CHECK(codes_.has_memory()); }

Time StepList::time_at(size_t position) const {
  const auto after = std::ranges::upper_bound(times_, position, {}, &TimeMark::position);
  return after == times_.begin() ? kTimeMin : std::prev(after)->time;
}

void StepList::truncate(size_t position) { cut(position, loose_.size() - (codes_.size() - position)); }

void StepList::cut(size_t position, size_t loose) {
  loose_.resize(loose);
  codes_.resize(position);
  while (!times_.empty() && times_.back().position >= position) times_.pop_back();
}

StepList::Place StepList::behind_address(size_t floor, size_t end, uint32_t most) const {
  size_t loose = loose_.size() - (codes_.size() - end);
  for (size_t i = end; i > floor; --i) {
    const StepCode code = codes_[i - 1];
    const bool is_loose = code == StepCode::kLoose;
    const uint32_t blocks = is_loose ? 1 : run(code).size;
    const Block& last = is_loose ? *loose_[--loose].block : *run_blocks(code)[blocks - 1];
    const bool whole = !is_loose || loose_[loose].count == last.count;
    if (whole && is_to_address(last.kind)) return {i, 0};
    if (blocks >= most) return {i - 1, blocks - most};
    most -= blocks;
  }
  return {floor, 0};
}

StepList::Place StepList::back(size_t end, uint32_t most) const {
  for (size_t i = end; i > 0; --i) {
    const StepCode code = codes_[i - 1];
    const uint32_t blocks = code == StepCode::kLoose ? 1 : run(code).size;
    if (blocks >= most) return {i - 1, blocks - most};
    most -= blocks;
  }
  return {};
}

const Block* StepList::last_block() const {
  if (codes_.empty()) return nullptr;
  const StepCode code = codes_[codes_.size() - 1];
  if (code == StepCode::kLoose) return is_complete(loose_.back()) ? loose_.back().block : nullptr;
  return run_blocks(code)[run(code).size - 1];
}

std::vector<uint32_t> StepList::loosen(size_t position) {
  std::vector<uint32_t> begins;
  std::vector<Step> steps;
  size_t loose = loose_.size();
  for (size_t i = position; i < codes_.size(); ++i) loose -= codes_[i] == StepCode::kLoose ? 1 : 0;
  const size_t kept = loose;
  for (size_t i = position; i < codes_.size(); ++i) {
    begins.push_back(static_cast<uint32_t>(position + steps.size()));
    const StepCode code = codes_[i];
    if (code == StepCode::kLoose) {
      steps.push_back(loose_[loose++]);
      continue;
    }
    const Run& r = run(code);
    Step step;
    step.time = time_at(i);
    step.confidence = r.confidence;
    for (uint32_t b = 0; b < r.size; ++b) {
      set_executed(step, *run_blocks(code)[b], b + 1 == r.size, taken_bit(code) != 0);
      steps.push_back(step);
    }
    in_runs_ -= r.instructions;
  }
  begins.push_back(static_cast<uint32_t>(position + steps.size()));
  cut(position, kept);
  while (!sums_.empty() && sums_.back().end > position) sums_.pop_back();
  for (const Step& step : steps) push_back(step);
  return begins;
}

void StepList::split(size_t position, StepList& rest) {
  const auto moved = codes_.all().subspan(position);
  rest.table_ = table_;
  rest.codes_.resize(moved.size());
  std::ranges::copy(moved, rest.codes_.data());
  size_t loose = loose_.size();
  for (const StepCode code : moved) {
    if (code == StepCode::kLoose)
      --loose;
    else
      rest.in_runs_ += run(code).instructions;
  }
  in_runs_ -= rest.in_runs_;
  rest.loose_.assign(loose_.begin() + static_cast<std::ptrdiff_t>(loose), loose_.end());
  if (!moved.empty()) rest.set_time(time_at(position), 0);
  const auto from = [](const auto& marks, size_t at, auto what) {
    return std::ranges::lower_bound(marks, at, {}, what);
  };
  for (auto mark = from(times_, position + 1, &TimeMark::position); mark != times_.end(); ++mark)
    rest.times_.push_back({mark->position - static_cast<uint32_t>(position), mark->time});
  for (auto mark = from(sums_, position, &SumMark::begin); mark != sums_.end(); ++mark) {
    rest.sums_.push_back(*mark);
    rest.sums_.back().begin -= static_cast<uint32_t>(position);
    rest.sums_.back().end -= static_cast<uint32_t>(position);
  }
  while (!sums_.empty() && sums_.back().end > position) sums_.pop_back();
  cut(position, loose);
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
