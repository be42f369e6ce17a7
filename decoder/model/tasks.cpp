// Names of threads over time.
#include <algorithm>

#include "decoder/model/capture.h"
#include "textstore/plain_text.h"

namespace asof {

void TaskTable::add_comm(int32_t pid, int32_t tid, Time from, std::string comm) {
  comms_[tid].push_back({from, pid, is_plain_text(comm) ? std::move(comm) : plain_text(comm)});
}

void TaskTable::finish() {
  for (auto& [tid, list] : comms_) {
    std::stable_sort(list.begin(), list.end(), [](const Comm& a, const Comm& b) { return a.from < b.from; });
  }
}

std::string_view TaskTable::comm(int32_t tid, Time t) const {
  auto thread = comms_.find(tid);
  if (thread == comms_.end() || thread->second.empty()) return {};
  const auto& list = thread->second;
  auto next =
      std::upper_bound(list.begin(), list.end(), t, [](Time at, const Comm& c) { return at < c.from; });
  return next == list.begin() ? list.front().comm : std::prev(next)->comm;
}

}  // namespace asof
