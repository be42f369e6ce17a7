// CallTotals: calls on the CPUs' tracks, added up by function, version of its text, caller and millisecond while they
// end, so that aggregates need no table of calls: that one is as large as the flow.
#pragma once
#include <tsl/robin_map.h>

#include <cstdint>
#include <vector>

#include "decoder/calls/timeline.h"
#include "textstore/result.h"

struct sqlite3;

namespace asof {

class CallTotals final : public TimelineSink {
 public:
  // SQL that tells what its tables are joined with; the table itself, of write(), is call_sums.
  static constexpr const char* kReads = "SELECT id, name, kind, dso FROM functions";

  void track(const TimelineTrack& t) override;
  void slice(const Slice& s) override;
  // The table call_sums: cpu, time, function, version, caller, calls, self_instructions, instructions, ns.
  Result<void> write(sqlite3* db);

 private:
  static constexpr uint32_t kNoCaller = UINT32_MAX;
  struct Key {
    Time time = kTimeMin;  // kTimeMin: not known
    int32_t cpu = -1;
    uint32_t function = 0, version = 1, caller = kNoCaller;
    auto operator<=>(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const;
  };
  struct Total {
    uint64_t calls = 0, self_instructions = 0, instructions = 0;
    uint64_t timed = 0;  // calls whose both ends are known
    Time ns = 0;
    Total& operator+=(const Total& o);
  };
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

  std::vector<bool> cpu_tracks_;
  tsl::robin_map<uint64_t, Called> open_;  // by the slice that called them
  tsl::robin_map<Key, Total, KeyHash> totals_;
};

}  // namespace asof
