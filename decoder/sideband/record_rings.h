// Which ring a side-band record came from, and when records were lost in it (docs/live-text.md 2).
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "decoder/perf/perf_data.h"
#include "decoder/perf/records.h"
#include "textstore/facts.h"

namespace asof {

class RecordRings {
 public:
  explicit RecordRings(const PerfData& data);

  // Each record with a time, in the order of its ring; LOST_SAMPLES are not the ring's.
  void saw(const Record& record);
  // A LOST record. The kernel writes it before the next record that fits: what is missing lies between the
  // record before this one in the same ring and this one.
  LostRecords lost(const Record& record, uint64_t count);
  // A LOST_SAMPLES record.
  void counted(const Record& record, uint64_t count);
  // Where more was counted than LOST records say: the rest was lost after the last record that fitted, with
  // no room for a LOST record any more. To be called after all records.
  std::vector<LostRecords> lost_at_ends() const;
  // One for each ring, for --overwrite.
  std::vector<LostRecords> lost_before(Time until) const;

 private:
  struct Ring {
    int32_t cpu = -1;  // whose ring it is; -1: a thread's, or several CPUs'
    Time last = kTimeMin;
    bool seen = false;
    uint64_t reported = 0, counted = 0;  // by LOST records, by LOST_SAMPLES
  };
  using Key = std::pair<bool, int64_t>;  // whether it is an index of ID_INDEX or a CPU

  Ring& ring_of(const SampleId& id);

  std::map<Key, Ring> rings_;
  std::unordered_map<uint64_t, Ring*> ring_of_id_;
  uint64_t unplaced_ = 0;  // counted, but nothing says in which ring
};

// "cpu 3", or what is known instead.
std::string ring_name(const LostRecords& lost);

}  // namespace asof
