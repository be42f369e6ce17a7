// A seeded source of numbers that is the same on every machine (splitmix64), unlike those of <random>.
#pragma once
#include <cstdint>

namespace asof::test {

class SimRandom {
 public:
  explicit SimRandom(uint64_t seed = 0) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  // 0 to n - 1.
  uint64_t below(uint64_t n) { return n == 0 ? 0 : next() % n; }
  // lo to hi, inclusive.
  uint64_t between(uint64_t lo, uint64_t hi) { return lo + below(hi - lo + 1); }
  bool chance(uint64_t percent) { return below(100) < percent; }

 private:
  uint64_t state_;
};

}  // namespace asof::test
