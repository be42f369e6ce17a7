// Reads what the emulator's plugin wrote while a board ran (plugin.c, protocol.h): the blocks of kernel code,
// the order in which the CPUs executed them, and marks of the guest's clock.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "textstore/address.h"

namespace asof::board {

// A stretch of kernel code as the emulator translated it: straight except for its last instruction.
struct Block {
  Addr address = 0;
  std::vector<uint8_t> sizes;  // of the instructions, in bytes
  std::vector<uint8_t> bytes;
};

struct Event {
  enum class Kind : uint8_t { kBlock, kAway, kPause, kResume };
  Kind kind = Kind::kBlock;
  uint64_t count = 0;     // instructions that all CPUs had begun
  uint32_t block = 0;     // of kBlock
  uint32_t executed = 0;  // of its instructions; more than it has: repeated string instructions
  // x86: the words above the first one that was stored here; arm64: address and value of each word stored
  // here.
  std::vector<std::array<uint64_t, 4>> stores;
};

// A 4-byte store of code that writes instructions.
struct Store {
  uint64_t count = 0;
  int cpu = 0;
  uint64_t physical = 0;
  uint32_t value = 0;
};

// The guest's clock as a function of the number of instructions. Between two marks it advances by one
// nanosecond per instruction, as the emulator was configured; a mark gives its value. The residual is the
// difference of a mark from what the mark before it predicted: instructions that the emulator counted
// otherwise, or the jump of an idle machine.
class Clock {
 public:
  explicit Clock(uint64_t ns_per_tick = 1) : ns_per_tick_(ns_per_tick) {}
  void mark(uint64_t count, uint64_t value, bool untraced_before);
  uint64_t ns(uint64_t count) const;  // of the guest's counter since it was zero
  uint64_t ticks(uint64_t count) const { return ns(count) / ns_per_tick_; }

  uint64_t marks() const { return points_.size() + skipped_; }
  uint64_t skipped() const { return skipped_; }
  // Largest residual between marks with nothing but traced or user code between.
  uint64_t error_bound() const { return worst_; }
  uint64_t jumps() const { return jumps_; }

 private:
  struct Point {
    uint64_t count = 0;
    int64_t bias = 0;
  };
  uint64_t ns_per_tick_;
  std::vector<Point> points_;
  uint64_t skipped_ = 0, worst_ = 0, jumps_ = 0;
};

struct Log {
  std::vector<Block> blocks;
  std::vector<std::vector<Event>> cpus;
  std::vector<Store> stores;
  Clock clock;
  uint64_t instructions = 0;
};

// Throws std::runtime_error naming what is wrong with the bytes.
Log read_log(std::span<const uint8_t> log, std::span<const uint8_t> blocks, uint64_t ns_per_tick);

}  // namespace asof::board
