// LostTime: the time of a CPU or a thread in which its flow is not known. Gaps come about in order of time, but not quite:
// a thread's gap on one CPU is told when it ends, which may be after one on another CPU that began later, and two streams
// of one CPU can overlap. Time counts once.
#pragma once
#include <cstdint>
#include <vector>

#include "textstore/time.h"

namespace asof {

class LostTime {
 public:
  void add(Time begin, Time end);
  // Nanoseconds in [begin, end).
  uint64_t within(Time begin, Time end) const { return until(end) - until(begin); }
  // Where the last one ends; kTimeMin: there is none.
  Time latest() const { return blocks_.empty() ? kTimeMin : blocks_.back().stretches.back().end; }

 private:
  struct Stretch {
    Time begin = 0, end = 0;
    uint64_t before = 0;  // time lost in the block until it began
  };
  // Stretches in order, none of which touches another. As many as a late one may move.
  struct Block {
    std::vector<Stretch> stretches;
    uint64_t before = 0;  // time lost until the block began
    uint64_t sum() const;
  };
  static constexpr size_t kMost = 512;
  uint64_t until(Time t) const;
  void insert(Time begin, Time end);
  void split(size_t block);
  void add_up(size_t first);

  std::vector<Block> blocks_;  // none is empty
};

}  // namespace asof
