// CallDepths: how many calls are around each. Callers end after those they called, and can be found late, so depths are
// counted when all are known.
#pragma once
#include <tsl/robin_map.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace asof {

class CallDepths {
 public:
  // Ids of one stream are as far apart as there are streams (Slice::id).
  explicit CallDepths(uint64_t streams = 1) : streams_(streams == 0 ? 1 : streams) {}

  // `parent`: 0, or a call that may never be added.
  void add(uint64_t id, uint64_t parent) {
    auto& page = pages_[page_of(id)];
    if (!page) page = std::make_unique<Page>();
    (*page)[id / streams_ % kPage] = {parent, kUnknown};
  }
  void finish() {
    std::vector<Call*> path;
    for (const auto& [number, page] : pages_) {
      for (Call& call : *page) {
        if (call.depth != kUnknown) continue;
        Call* at = &call;
        for (Call* next = nullptr; at->depth == kUnknown && (next = find(at->parent)) != nullptr; at = next) {
          path.push_back(at);
          at->depth = 0;  // whatever the parents are, this ends
        }
        if (at->depth == kUnknown) at->depth = 0;
        for (uint32_t depth = at->depth; !path.empty(); path.pop_back()) path.back()->depth = ++depth;
      }
    }
  }
  uint32_t of(uint64_t id) const {
    const Call* const call = find(id);
    return call == nullptr ? 0 : call->depth;
  }

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX, kAbsent = UINT32_MAX - 1;
  static constexpr uint64_t kPage = 64;
  struct Call {
    uint64_t parent = 0;
    uint32_t depth = kAbsent;
  };
  using Page = std::array<Call, kPage>;

  uint64_t page_of(uint64_t id) const { return id / (streams_ * kPage) * streams_ + id % streams_; }
  Call* find(uint64_t id) const {
    const auto page = pages_.find(page_of(id));
    if (page == pages_.end()) return nullptr;
    Call& call = (*page->second)[id / streams_ % kPage];
    return call.depth == kAbsent ? nullptr : &call;
  }

  uint64_t streams_;
  // By stream and number: a block stream can say that there are any number of calls in between.
  tsl::robin_map<uint64_t, std::unique_ptr<Page>> pages_;
};

}  // namespace asof
