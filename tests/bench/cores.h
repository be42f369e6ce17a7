// What the first two processors deliver at the moment. A virtual machine's processors may be two threads of
// one core, and a neighbour may use the other thread of either: then a second thread gets less than a core,
// whatever the program does. A loop that waits for its own last result does not notice; one that keeps all
// adders of a core busy does.
#pragma once
#include <array>
#include <span>
#include <string_view>

namespace asof::bench {

// Additions per nanosecond on each of the two: with the other idle, and with both busy.
struct CoreRates {
  std::array<double, 2> alone{};
  std::array<double, 2> both{};
};

// Takes 60 ms. Throws std::runtime_error where there are no two processors.
CoreRates measure_cores();

enum class Cores {
  kFree,      // two whole cores
  kShared,    // two cores, each with a steady share for this process; neighbours use the rest
  kOne,       // one core for both
  kUnsteady,  // what the cores delivered changed
};
std::string_view name_of(Cores cores);
// The state of the cores over several measurements. `whole`: the rate of a core without a neighbour.
Cores classify(std::span<const CoreRates> looks, double whole);

// The calling thread stays on one of the two processors.
class Pinned {
 public:
  explicit Pinned(unsigned which);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
};

}  // namespace asof::bench
