// RunMerger: sorts what comes as sorted runs that overlap only a little, in nearly linear time and without a copy
// of all of it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace asof {

template <class T, class Less>
class RunMerger {
 public:
  explicit RunMerger(Less less) : less_(less) {}

  // Behind what is equal to it in `all`, which changes only here.
  void add(std::vector<T>& all, const std::vector<T>& run) {
    if (run.empty()) return;
    const size_t sorted = all.size();
    all.insert(all.end(), run.begin(), run.end());
    if (scattered_) return;
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(sorted);
    const auto first = std::upper_bound(all.begin(), middle, *middle, less_);
    if (first == middle) return;
    merged_ += static_cast<uint64_t>(all.end() - first);
    std::inplace_merge(first, middle, all.end(), less_);
    scattered_ = merged_ > kMostMerges * all.size() + kFree;
  }

  void finish(std::vector<T>& all) {
    if (scattered_) std::stable_sort(all.begin(), all.end(), less_);
  }

 private:
  // Runs that overlap so much that all is merged more often than this are sorted in the end.
  static constexpr uint64_t kMostMerges = 8, kFree = 1U << 16U;
  Less less_;
  uint64_t merged_ = 0;
  bool scattered_ = false;
};

}  // namespace asof
