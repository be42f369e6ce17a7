// StepList: what a segment executed, in order, small enough that writing it down does not cost more than
// finding it out. Nearly every entry is a *run*: blocks that follow each other without a decision of the
// trace, up to the branch that needs one. Runs are known to the decoders' table, so four bytes describe it.
// Everything else (part of a block, a version in doubt, a flag) is a whole Step, kept beside.
//
//   codes   run 7 taken | run 9 | loose | run 7 taken | run 8 ...
//   loose                          Step
//   times   from entry 0 on: t0        from entry 3 on: t1
//
// Reading gives Steps again: one for each block of a run. Positions (Event::step, Gap::step) count
// entries, so nothing happens inside a run.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "arch/block.h"
#include "arch/run_table.h"

namespace asof {

// K^n. Runs are short: nearly always one look at a table.
inline constexpr auto kHashPowers = [] {
  std::array<uint64_t, 1024> p{};
  p[0] = 1;
  for (size_t i = 1; i < p.size(); ++i) p[i] = p[i - 1] * kHashFactor;
  return p;
}();
inline uint64_t hash_power(uint64_t n) {
  uint64_t rest = 1;
  constexpr uint64_t kMost = kHashPowers.size() - 1;
  for (; n > kMost; n -= kMost) rest *= kHashPowers[kMost];
  return rest * kHashPowers[n];
}

// An entry of a StepList, as it is kept: a run and the bit of its last branch, or kLoose.
enum class StepCode : uint32_t { kLoose = UINT32_MAX };
inline constexpr uint32_t kTakenBit = 1;
// The run's id is above it: what lies between is for whoever keeps sixteen bytes for each run and wants no
// shift to find them.
inline constexpr unsigned kRunShift = 4;

constexpr StepCode step_code(RunId run, uint32_t bit) { return StepCode{index_of(run) << kRunShift | bit}; }
constexpr RunId run_of(StepCode code) { return RunId{std::to_underlying(code) >> kRunShift}; }
constexpr uint32_t taken_bit(StepCode code) { return std::to_underlying(code) & kTakenBit; }

// Whether a block of a run leaves by the branch at its end. Only the last block's branch may be conditional with
// an outcome of its own, which is in the code.
constexpr bool leaves_by_branch(BranchKind kind, bool last, bool outcome) {
  return last && kind == BranchKind::kCond ? outcome : kind != BranchKind::kNone;
}

// Much memory is from what decoders share (pooled.h), little from the heap.
struct StepCodeFree {
  size_t bytes = 0;
  void operator()(StepCode* p) const;
};

// A vector that leaves what it grows by as it is, to be written next.
class CodeBuffer {
 public:
  CodeBuffer() = default;
  CodeBuffer(CodeBuffer&& other) noexcept
      : codes_(std::move(other.codes_)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  CodeBuffer& operator=(CodeBuffer&& other) noexcept {
    codes_ = std::move(other.codes_);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  size_t capacity() const { return capacity_; }
  StepCode operator[](size_t i) const { return codes_[i]; }
  StepCode* data() { return codes_.get(); }
  std::span<const StepCode> all() const { return {codes_.get(), size_}; }
  bool has_memory() const { return size_ == 0 || codes_ != nullptr; }
  // The memory goes to `empty`; this one keeps its size only.
  void give_memory(CodeBuffer& empty) {
    empty.codes_ = std::move(codes_);
    empty.size_ = 0;
    empty.capacity_ = std::exchange(capacity_, 0);
  }

  void reserve(size_t n) {
    if (n > capacity_) move_to(n);
  }
  void resize(size_t n) {
    if (n > capacity_) [[unlikely]]
      move_to(std::max(n, 2 * capacity_));
    size_ = n;
  }
  void push_back(StepCode code) {
    resize(size_ + 1);
    codes_[size_ - 1] = code;
  }

 private:
  using Memory = std::unique_ptr<StepCode[], StepCodeFree>;

  static Memory memory(size_t bytes);
  void move_to(size_t capacity);

  Memory codes_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

// What entries in a row add up to, all of them runs.
struct RunSum {
  uint64_t hash = 0;  // as Run::hash, over all of them
  uint64_t instructions = 0;
  uint64_t branches = 0;
};

class StepList {
 public:
  struct TimeMark {
    uint32_t position;
    Time time;
  };

  // The sum of the entries from `begin` on, up to `end`.
  struct SumMark {
    uint32_t begin, end;
    RunSum sum;
    Confidence confidence = Confidence::kCertain;  // of all of them
  };

  // Gives Steps by value, held inside: valid until the next ++.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Step;
    using difference_type = std::ptrdiff_t;
    using pointer = const Step*;
    using reference = const Step&;

    Iterator() = default;
    const Step& operator*() const { return step_; }
    const Step* operator->() const { return &step_; }
    Iterator& operator++() {
      if (++block_ < blocks_)
        set_block();
      else
        next_entry();
      return *this;
    }
    void operator++(int) { ++*this; }
    size_t position() const { return position_; }
    bool operator==(std::default_sentinel_t) const { return position_ == list_->size(); }

   private:
    friend class StepList;
    explicit Iterator(const StepList& list) : list_(&list), position_(SIZE_MAX) { next_entry(); }
    void next_entry();
    void set_block();

    const StepList* list_ = nullptr;
    Step step_;
    const Block* const* run_ = nullptr;
    bool taken_ = false;  // the run's last branch
    size_t position_ = 0;
    size_t loose_ = 0;
    size_t time_ = 0;
    uint32_t block_ = 0;
    uint32_t blocks_ = 0;
  };

  // Not after give_codes().
  Iterator begin() const {
    must_have_codes();
    return Iterator(*this);
  }
  std::default_sentinel_t end() const { return {}; }

  size_t size() const { return codes_.size(); }  // entries
  bool empty() const { return codes_.empty(); }
  size_t capacity() const { return codes_.capacity(); }  // entries, before memory is needed
  uint64_t bytes() const;                                // of memory

  void reserve(size_t entries, size_t times = 0) {
    codes_.reserve(entries);
    times_.reserve(times);
  }
  void push_back(const Step& step) {
    set_time(step.time, codes_.size());
    codes_.push_back(StepCode::kLoose);
    loose_.push_back(step);
  }
  // Room for `n` codes of runs of `table`, which stays the same for all of a list. They are written there;
  // what is not needed is given back, before anything else is done with the list.
  StepCode* open_runs(const RunTable& table, size_t n) {
    table_ = &table;
    codes_.resize(codes_.size() + n);
    return codes_.data() + codes_.size() - n;
  }
  // The codes from `from` on, of the room that is open, are of this time.
  [[gnu::always_inline]] void time_runs(size_t room, size_t from, Time time) {
    set_time(time, codes_.size() - room + from);
  }
  // The same for many: positions are those in the room, and each has another time than the one before.
  void time_runs(size_t room, std::span<const TimeMark> marks) {
    if (marks.empty()) return;
    const auto base = static_cast<uint32_t>(codes_.size() - room);
    set_time(marks.front().time, base + marks.front().position);
    const size_t known = times_.size();
    times_.resize(known + marks.size() - 1);
    for (size_t i = 1; i < marks.size(); ++i)
      times_[known + i - 1] = {base + marks[i].position, marks[i].time};
  }
  // `instructions`: in all runs written.
  void close_runs(size_t room, size_t written, uint64_t instructions) {
    codes_.resize(codes_.size() - room + written);
    in_runs_ += instructions;
  }

  // The last `n` codes of runs, of equal confidence, add up to `sum`.
  void add_sum(size_t n, const RunSum& sum, Confidence confidence) {
    const auto end = static_cast<uint32_t>(codes_.size());
    sums_.push_back({end - static_cast<uint32_t>(n), end, sum, confidence});
  }

  // Time of the entry at `position`; kTimeMin when unknown.
  Time time_at(size_t position) const;

  // For those who write: entries from `position` on must be loose.
  Step& at(size_t position) { return loose_[loose_.size() - (codes_.size() - position)]; }
  // Drops entries from `position` on; they must be loose.
  void truncate(size_t position);
  // The block of a StepList at which something begins: in the entry at `position`, behind `blocks` of it.
  struct Place {
    size_t position = 0;
    uint32_t blocks = 0;
  };
  // Behind the last block of the entries from `floor` to `end` whose target the trace gave as an address, but not more
  // than `most` blocks in front of `end`, behind which all entries are loose. `floor`: there is none. Of returns it
  // cannot be seen.
  Place behind_address(size_t floor, size_t end, uint32_t most) const;
  // `most` blocks in front of `end`, or where the list begins. Behind `end` all entries are loose.
  Place back(size_t end, uint32_t most) const;
  // That the list ends with; nullptr: it is empty, or only a part of that block ran.
  const Block* last_block() const;
  // Makes all entries from `position` on loose, each block by itself. Returns where each of them begins now, and
  // the new size.
  std::vector<uint32_t> loosen(size_t position);
  // Moves the entries from `position` on to `rest`, which is empty. A sum of entries on both sides goes.
  void split(size_t position, StepList& rest);
  // Empties it; its memory stays.
  void clear();
  // For who has read all entries: the memory of their codes goes to `empty`, a list. What may still be asked
  // for is size(), times and loose steps.
  void give_codes(StepList& empty) { codes_.give_memory(empty.codes_); }

  // For those who count: the entries as they are kept. Not after give_codes().
  std::span<const StepCode> codes() const {
    must_have_codes();
    return codes_.all();
  }
  const std::vector<Step>& loose() const { return loose_; }
  const Run& run(StepCode code) const { return (*table_)[run_of(code)]; }
  const RunTable* table() const { return table_; }  // nullptr: there are no runs
  const Block* const* run_blocks(StepCode code) const { return table_->blocks(run_of(code)); }
  uint64_t instructions_in_runs() const { return in_runs_; }
  // From these entries on; what is before the first has no time.
  std::span<const TimeMark> times() const { return times_; }
  // In order, no entry in two of them; others are not summed (DecodeOptions::sum_runs).
  std::span<const SumMark> sums() const { return sums_; }
  // They lie anywhere in memory: asks for the run of the entry at `position` ahead of its use.
  void prefetch(size_t position) const {
    if (position < codes_.size() && codes_[position] != StepCode::kLoose)
      __builtin_prefetch(&run(codes_[position]));
  }

 private:
  void must_have_codes() const;
  // Drops entries from `position` on; `loose` loose ones are in front of it.
  void cut(size_t position, size_t loose);
  [[gnu::always_inline]] void set_time(Time t, size_t position) {
    if (times_.empty() ? t == kTimeMin : times_.back().time == t) return;
    times_.push_back({static_cast<uint32_t>(position), t});
  }

  const RunTable* table_ = nullptr;
  uint64_t in_runs_ = 0;
  CodeBuffer codes_;
  std::vector<Step> loose_;
  std::vector<TimeMark> times_;  // from this entry on
  std::vector<SumMark> sums_;
};

}  // namespace asof
