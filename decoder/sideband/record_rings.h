// Which ring a side-band record came from, and when records were lost in it (docs/live-text.md 2).
#pragma once
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "decoder/perf/perf_data.h"
#include "decoder/perf/records.h"
#include "textstore/facts.h"

namespace asof {

using RingKey = std::pair<bool, int64_t>;  // whether it is an index of ID_INDEX or a CPU

// Which ring an event writes to. Not changed after it is made, so that any thread can ask.
class RingIds {
 public:
  explicit RingIds(const PerfData& data);
  RingKey ring_of(const SampleId& id) const;
  bool knows(uint64_t id) const { return ring_of_id_.contains(id); }
  // How many there are, at the most; 0: unknown.
  size_t count() const { return cpus_.empty() ? cpus_recorded_ : cpus_.size(); }
  // Whose ring it is; -1: a thread's, or several CPUs'.
  int32_t cpu_of(RingKey ring) const;

 private:
  std::unordered_map<uint64_t, RingKey> ring_of_id_;
  std::map<RingKey, int32_t> cpus_;  // of those of ID_INDEX
  size_t cpus_recorded_ = 0;
};

class RecordRings {
 public:
  explicit RecordRings(const PerfData& data) : ids_(data) {}

  const RingIds& ids() const { return ids_; }
  // The last record of the ring, up to now, that has a time; LOST_SAMPLES are not the ring's.
  void saw(RingKey ring, Time last);
  // A LOST record. The kernel writes it before the next record that fits: what is missing lies between the
  // record before this one in the same ring (`before`, if saw() does not know it yet) and this one.
  LostRecords lost(const Record& record, uint64_t count, std::optional<Time> before);
  // A LOST_SAMPLES record.
  void counted(const Record& record, uint64_t count);
  // Where more was counted than LOST records say: the rest was lost after the last record that fitted, with
  // no room for a LOST record any more. To be called after all records.
  std::vector<LostRecords> lost_at_ends() const;
  // One for each ring, for --overwrite.
  std::vector<LostRecords> lost_before(Time until) const;
  // One for each ring, if the recording went on where the file ends: none are missing up to `settled`.
  std::vector<LostRecords> lost_behind(Time settled) const;

 private:
  struct Ring {
    Time last = kTimeMin;
    bool seen = false;
    uint64_t reported = 0, counted = 0;  // by LOST records, by LOST_SAMPLES
  };
  uint32_t source_of(RingKey ring) const { return static_cast<uint32_t>(ids_.cpu_of(ring)); }

  RingIds ids_;
  std::map<RingKey, Ring> rings_;
  uint64_t unplaced_ = 0;  // counted, but nothing says in which ring
};

// "cpu 3", or what is known instead.
std::string ring_name(const LostRecords& lost);

}  // namespace asof
