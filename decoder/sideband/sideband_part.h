// What a part of the records says by itself, read by any thread. Private to read_side_band().
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "decoder/perf/records.h"
#include "decoder/sideband/record_rings.h"
#include "decoder/sideband/sideband.h"

namespace asof {

struct SideBandPart {
  std::map<int32_t, std::vector<SwitchFact>> switches;  // by CPU
  std::map<RingKey, Time> last;                         // of each ring: its last record that has a time
  std::vector<Poke> pokes;                              // sorted as SideBand's
  // What depends on the records before it, or is reported, in the file's order.
  struct Other {
    Record record;
    std::optional<Time> before;  // the last record of its ring in this part
  };
  std::vector<Other> others;
  std::vector<Time> rounds;  // the latest time before each FINISHED_ROUND, of this part's records
  Time first_time = kTimeMax, last_time = kTimeMin, trace_start = kTimeMax;
};

// `samples`: the event whose samples matter; nullptr: none do.
SideBandPart read_side_band_part(const PerfData& data, size_t part, const uint64_t* samples,
                                 const RingIds& rings);

bool is_guest(const Record& record);
// What keeps a TEXT_POKE record from being true; empty: nothing. No in-tree caller makes one that fails.
std::string poke_fault(const Record& record, const TextPokeRecord& body);
// Why no kernel wrote this record of a mapping in a process; empty: it may have.
std::string user_map_fault(const MmapRecord& body);

inline bool in_poke_order(const Poke& a, const Poke& b) {
  return a.time != b.time ? a.time < b.time : a.file_offset < b.file_offset;
}

}  // namespace asof
