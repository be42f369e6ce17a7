#include "tests/bench/cores.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>

namespace asof::bench {
namespace {

// The affinity of the process before any thread was pinned.
const cpu_set_t& allowed() {
  static const cpu_set_t set = [] {
    cpu_set_t s;
    CPU_ZERO(&s);
    sched_getaffinity(0, sizeof s, &s);
    return s;
  }();
  return set;
}

int cpu(unsigned which) {
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &allowed()) && which-- == 0) return i;
  }
  throw std::runtime_error("this needs two processors");
}

// Six independent sums: no core has more adders.
void add(uint32_t n) {
  uint64_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0;
  for (uint32_t i = 0; i < n; ++i) {
    a += i, b += i, c += i, d += i, e += i, f += i;
    asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
  }
}

double rate_now() {
  using Clock = std::chrono::steady_clock;
  constexpr uint32_t kTurn = 20'000;
  constexpr std::chrono::nanoseconds kLong = std::chrono::milliseconds(20);
  const auto start = Clock::now();
  double sums = 0;
  std::chrono::nanoseconds passed{0};
  while (passed < kLong) {
    add(kTurn);
    sums += 6.0 * kTurn;
    passed = Clock::now() - start;
  }
  return sums / static_cast<double>(passed.count());
}

}  // namespace

Pinned::Pinned(unsigned which) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu(which), &one);
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

Pinned::~Pinned() { pthread_setaffinity_np(pthread_self(), sizeof allowed(), &allowed()); }

CoreRates measure_cores() {
  CoreRates rates;
  for (unsigned i = 0; i < 2; ++i) {
    const Pinned here(i);
    rates.alone[i] = rate_now();
  }
  std::atomic<int> ready = 0;
  const auto together = [&](unsigned i) {
    const Pinned here(i);
    ++ready;
    while (ready < 2) {
    }
    rates.both[i] = rate_now();
  };
  std::thread other(together, 1);
  together(0);
  other.join();
  return rates;
}

std::string_view name_of(Cores cores) {
  switch (cores) {
    case Cores::kFree:
      return "two free cores";
    case Cores::kShared:
      return "two cores with neighbours";
    case Cores::kOne:
      return "one core for both";
    default:
      return "changing";
  }
}

Cores classify(std::span<const CoreRates> looks, double whole) {
  double least = whole;
  for (const unsigned i : {0U, 1U}) {
    double low = whole, high = 0;
    for (const CoreRates& r : looks) {
      if (r.both[0] + r.both[1] < 0.8 * (r.alone[0] + r.alone[1])) return Cores::kOne;
      low = std::min({low, r.alone[i], r.both[i]});
      high = std::max({high, r.alone[i], r.both[i]});
    }
    if (low < 0.85 * high) return Cores::kUnsteady;
    least = std::min(least, low);
  }
  return least < 0.9 * whole ? Cores::kShared : Cores::kFree;
}

}  // namespace asof::bench
