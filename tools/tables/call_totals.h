// CallTotals: calls on the CPUs' tracks, added up by function, version of its text, caller and millisecond while they
// end, so that aggregates need no table of calls: that one is as large as the flow. Calls that begin and end within one
// millisecond may come added up (TimelineSink::sum).
#pragma once
#include <tsl/robin_map.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "decoder/calls/timeline.h"
#include "tools/timeline/out_sqlite.h"

namespace asof {

// Sorts rows with a `total`, and adds up those whose keys are equal.
template <class Row, class Key>
void merge_totals(std::vector<Row>& rows, Key key) {
  std::ranges::sort(rows, {}, key);
  size_t kept = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    if (std::invoke(key, rows[i]) == std::invoke(key, rows[kept])) {
      rows[kept].total += rows[i].total;
    } else {
      rows[++kept] = rows[i];
    }
  }
  if (!rows.empty()) rows.resize(kept + 1);
}

class CallTotals final : public TimelineSink {
 public:
  static constexpr uint32_t kNoCaller = UINT32_MAX;
  struct Key {
    Time time = kTimeMin;  // kTimeMin: not known
    int32_t cpu = -1;
    uint32_t function = 0, version = 1, caller = kNoCaller;
    auto operator<=>(const Key&) const = default;
  };
  struct Total {
    uint64_t calls = 0, self_instructions = 0, instructions = 0;
    uint64_t timed = 0;  // calls whose both ends are known
    uint64_t ns = 0;
    Total& operator+=(const Total& o);
  };
  struct KeyHash {
    size_t operator()(const Key& k) const;
  };
  using Totals = tsl::robin_map<Key, Total, KeyHash>;

  void track(const TimelineTrack& t) override;
  void function(const TimelineFunction& f) override;
  void slice(const Slice& s) override;
  bool takes_sums() const override { return true; }
  bool stopped() const override;
  bool takes_sum(uint32_t track, Time begin, Time end) const override;
  void sum(const CallSums& sums, uint32_t track, uint64_t parent) override;
  // The tracks, and the functions that were called.
  void tell(SqliteSink& to) const;
  // At the end.
  const Totals& totals();
  const std::vector<TimelineFunction>& functions() const { return functions_; }
  bool called(uint32_t function) const { return called_[function]; }

 private:
  struct Entry {
    Key key;
    Total total;
  };
  // Those that a function called while it runs: it is known when it ends.
  struct Called {
    std::vector<Entry> entries;
    size_t next_merge = 64;
    void add(const Key& key, const Total& total);
  };
  void add(Called&& called, uint32_t caller);

  const TimelineTrack* cpu_track(uint32_t id) const;  // nullptr: of a thread

  std::vector<TimelineTrack> tracks_;
  std::vector<TimelineFunction> functions_;
  std::vector<bool> called_;
  tsl::robin_map<uint64_t, Called> open_;  // by the slice that called them
  Totals totals_;
};

}  // namespace asof
