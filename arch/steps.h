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
#include <atomic>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "arch/block.h"
#include "arch/zeroed.h"

namespace asof {

// Blocks that are executed one after the other whenever the first one is; all but the last end in a direct
// jump or call, or straight on. Executed whole. What counting needs is kept apart from the blocks: it is read
// for every entry.
struct Run {
  uint64_t hash = 0;  // sum over i of ip_i * K^(instructions-1-i)
  uint32_t instructions = 0;
  uint16_t branches = 0;
  uint8_t size = 0;                              // blocks
  Confidence confidence = Confidence::kCertain;  // of all its blocks; else kAmbiguous
};

// Runs of all decoders of one capture, by id. Entries never move and never change: any thread may
// read those it was handed ids of while others add new ones.
class RunTable {
 public:
  static constexpr uint32_t kPiece = 1U << 12;
  static constexpr uint32_t kPieces = 1U << 11;
  static constexpr uint32_t kMax = kPiece * kPieces;
  static constexpr uint32_t kFirst = 4;  // the lowest id there is

  // `first`: ids below it are for whoever keeps ids.
  explicit RunTable(uint32_t first = kFirst);
  const Run& operator[](uint32_t id) const { return pieces_[id / kPiece][0].runs[id % kPiece]; }
  // Of the run's `size` blocks.
  const Block* const* blocks(uint32_t id) const { return pieces_[id / kPiece][0].blocks[id % kPiece]; }

  // What one thread adds with. Ids of a piece are of one writer. 0 is no id: the table is full.
  class Writer {
   public:
    explicit Writer(RunTable& table) : table_(table) {}
    uint32_t add(const Run& run, const Block* const* blocks) {
      if (next_ == end_ && !take_piece()) [[unlikely]]
        return 0;
      const uint32_t id = next_++;
      Piece& piece = table_.pieces_[id / kPiece][0];
      piece.runs[id % kPiece] = run;
      piece.blocks[id % kPiece] = blocks;
      return id;
    }

   private:
    bool take_piece();

    RunTable& table_;
    uint32_t next_ = 0;
    uint32_t end_ = 0;
  };

 private:
  struct Piece {
    std::array<Run, kPiece> runs;
    std::array<const Block* const*, kPiece> blocks;
  };
  std::unique_ptr<ZeroedArray<Piece>[]> pieces_;  // of one each: a short trace has few runs
  const uint32_t first_;
  std::atomic<uint32_t> used_;  // pieces
};

// K^n. Runs are short: nearly always one look at a table.
inline constexpr auto kHashPowers = [] {
  std::array<uint64_t, 1024> p{};
  p[0] = 1;
  for (size_t i = 1; i < p.size(); ++i) p[i] = p[i - 1] * kHashFactor;
  return p;
}();
inline uint64_t hash_power(uint32_t n) {
  uint64_t rest = 1;
  constexpr uint32_t kMost = kHashPowers.size() - 1;
  for (; n > kMost; n -= kMost) rest *= kHashPowers[kMost];
  return rest * kHashPowers[n];
}

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
  uint32_t operator[](size_t i) const { return codes_[i]; }
  uint32_t* data() { return codes_.get(); }
  std::span<const uint32_t> all() const { return {codes_.get(), size_}; }
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
  void push_back(uint32_t code) {
    resize(size_ + 1);
    codes_[size_ - 1] = code;
  }

 private:
  void move_to(size_t capacity);

  std::unique_ptr<uint32_t[]> codes_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

class StepList {
 public:
  struct TimeMark {
    uint32_t position;
    Time time;
  };

  static constexpr uint32_t kLoose = UINT32_MAX;
  static constexpr uint32_t kTakenBit = 1;  // of a code
  static constexpr unsigned kRunShift = 4;  // the run's id is above it: what lies between is for whoever
      // keeps sixteen bytes for each run and wants no shift to find them

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
  uint64_t bytes() const;  // of memory

  void reserve(size_t entries, size_t times = 0) {
    codes_.reserve(entries);
    times_.reserve(times);
  }
  void push_back(const Step& step) {
    set_time(step.time, codes_.size());
    codes_.push_back(kLoose);
    loose_.push_back(step);
  }
  // Room for `n` codes of runs of `table`, which stays the same for all of a list. They are written there;
  // what is not needed is given back, before anything else is done with the list.
  uint32_t* open_runs(const RunTable& table, size_t n) {
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

  // Time of the entry at `position`; kTimeMin when unknown.
  Time time_at(size_t position) const;

  // For those who write: entries from `position` on must be loose.
  Step& at(size_t position) { return loose_[loose_.size() - (codes_.size() - position)]; }
  // Drops entries from `position` on; they must be loose.
  void truncate(size_t position);
  // Moves the entries from `position` on to `rest`, which is empty; they must be loose.
  void split(size_t position, StepList& rest);
  // Empties it; its memory stays.
  void clear();
  // For who has read all entries: the memory of their codes goes to `empty`, a list. What may still be asked
  // for is size(), times and loose steps.
  void give_codes(StepList& empty) { codes_.give_memory(empty.codes_); }

  // For those who count: the entries as they are kept. Not after give_codes().
  std::span<const uint32_t> codes() const {
    must_have_codes();
    return codes_.all();
  }
  const std::vector<Step>& loose() const { return loose_; }
  const Run& run(uint32_t code) const { return (*table_)[code >> kRunShift]; }
  const RunTable* table() const { return table_; }  // nullptr: there are no runs
  const Block* const* run_blocks(uint32_t code) const { return table_->blocks(code >> kRunShift); }
  uint64_t instructions_in_runs() const { return in_runs_; }
  // From these entries on; what is before the first has no time.
  std::span<const TimeMark> times() const { return times_; }
  // They lie anywhere in memory: asks for the run of the entry at `position` ahead of its use.
  void prefetch(size_t position) const {
    if (position < codes_.size() && codes_[position] != kLoose) __builtin_prefetch(&run(codes_[position]));
  }

 private:
  void must_have_codes() const;
  [[gnu::always_inline]] void set_time(Time t, size_t position) {
    if (times_.empty() ? t == kTimeMin : times_.back().time == t) return;
    times_.push_back({static_cast<uint32_t>(position), t});
  }

  const RunTable* table_ = nullptr;
  uint64_t in_runs_ = 0;
  CodeBuffer codes_;
  std::vector<Step> loose_;
  std::vector<TimeMark> times_;  // from this entry on
};

}  // namespace asof
