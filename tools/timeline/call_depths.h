// CallDepths: how many calls are around each. Callers end after those they called, and can be found late, so depths are
// counted when all are known.
#pragma once
#include <cstdint>
#include <vector>

namespace asof {

class CallDepths {
 public:
  // `parent`: 0, or a call that may never be added.
  void add(uint64_t id, uint64_t parent) {
    if (parents_.size() <= id) parents_.resize(id + 1, kAbsent);
    parents_[id] = parent;
  }
  void finish() {
    depths_.assign(parents_.size(), kUnknown);
    std::vector<uint64_t> path;
    for (uint64_t id = 0; id < parents_.size(); ++id) {
      if (parents_[id] == kAbsent) continue;
      uint64_t at = id;
      for (; depths_[at] == kUnknown && is_there(parents_[at]); at = parents_[at]) {
        path.push_back(at);
        depths_[at] = 0;  // whatever the parents are, this ends
      }
      if (depths_[at] == kUnknown) depths_[at] = 0;
      for (uint32_t depth = depths_[at]; !path.empty(); path.pop_back()) depths_[path.back()] = ++depth;
    }
    parents_ = {};
  }
  uint32_t of(uint64_t id) const { return id < depths_.size() ? depths_[id] : 0; }

 private:
  static constexpr uint64_t kAbsent = UINT64_MAX;
  static constexpr uint32_t kUnknown = UINT32_MAX;
  bool is_there(uint64_t id) const { return id < parents_.size() && parents_[id] != kAbsent; }

  std::vector<uint64_t> parents_;  // by id
  std::vector<uint32_t> depths_;
};

}  // namespace asof
