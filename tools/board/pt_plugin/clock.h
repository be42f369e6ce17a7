// The guest's TSC at any instruction. With -icount shift=0 it advances by one with each instruction of any CPU, and by
// more when all CPUs sleep; so it is a count of instructions plus a base, which is found again at each interruption
// (from the emulator's own clock) and each RDTSC. In between it may be off by an instruction that was begun twice.
#pragma once
#include <cstdint>

namespace asof::pt {

class Clock {
 public:
  // `count`: instructions begun by all CPUs.
  uint64_t tsc(uint64_t count) const { return base_ + count; }
  // The emulator's clock in ns.
  void interruption(uint64_t count, uint64_t ns) {
    count_ = count;
    ns_ = ns;
    if (offset_known_) base_ = ns + offset_ - count;
  }
  // A RDTSC that began at `count` gave `tsc`.
  void rdtsc(uint64_t count, uint64_t tsc) {
    const uint64_t guess = ns_ + (count - count_) + offset_;
    const uint64_t off = tsc > guess ? tsc - guess : guess - tsc;
    if (!offset_known_ || off > kReset) {
      // No jump is seen between the interruption and this only if the CPUs did not sleep; the guest sets its TSC rarely.
      offset_ = tsc - ns_ - (count - count_);
      offset_known_ = true;
    }
    base_ = tsc - count;
  }

 private:
  static constexpr uint64_t kReset = 1'000'000;
  uint64_t base_ = 0, count_ = 0, ns_ = 0, offset_ = 0;
  bool offset_known_ = false;
};

}  // namespace asof::pt
