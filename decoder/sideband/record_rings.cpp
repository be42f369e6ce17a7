#include "decoder/sideband/record_rings.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "decoder/perf/record_types.h"

namespace asof {
namespace {

uint64_t sum(uint64_t a, uint64_t b) { return b > UINT64_MAX - a ? UINT64_MAX : a + b; }

}  // namespace

// Events of several CPUs in one ring (--per-thread) leave it without a CPU of its own.
RingIds::RingIds(const PerfData& data) : cpus_recorded_(data.nr_cpus()) {
  for (const PerfData::IdIndex& entry : data.id_index()) {
    const RingKey ring{true, static_cast<int64_t>(entry.idx)};
    if (entry.id == 0 || !ring_of_id_.emplace(entry.id, ring).second) continue;
    const auto [cpu, fresh] = cpus_.try_emplace(ring, entry.cpu);
    if (!fresh && cpu->second != entry.cpu) cpu->second = -1;
  }
}

RingKey RingIds::ring_of(const SampleId& id) const {
  const auto known = ring_of_id_.find(id.id);
  return known != ring_of_id_.end() ? known->second : RingKey{false, id.cpu};
}

int32_t RingIds::cpu_of(RingKey ring) const {
  if (!ring.first) return static_cast<int32_t>(ring.second);
  const auto known = cpus_.find(ring);
  return known == cpus_.end() ? -1 : known->second;
}

void RecordRings::saw(RingKey key, Time last) {
  Ring& ring = rings_[key];
  ring.last = last;
  ring.seen = true;
}

LostRecords RecordRings::lost(const Record& record, uint64_t count, std::optional<Time> before) {
  const RingKey key = ids_.ring_of(record.id);
  Ring& ring = rings_[key];
  ring.seen = true;
  ring.reported = sum(ring.reported, count);
  LostRecords out{.source = source_of(key), .after = before.value_or(ring.last), .count = count};
  if (record.time() != kTimeMin) out.until = std::max(record.time(), out.after);
  return out;
}

// What perf (6.1 and later, where the kernel has PERF_FORMAT_LOST) reads from each event when it ends: all
// that did not fit into the ring, records of every type (kernel/events/ring_buffer.c __perf_output_begin()).
// perf writes it with the event's id and a time and CPU of 0 (__record__save_lost_samples() in
// builtin-record.c), so that only the id says in which ring it was.
// A kernel's own record of samples that hardware lost looks the same but for its time; it is counted as more.
void RecordRings::counted(const Record& record, uint64_t count) {
  const bool placed = record.time() != kTimeMin || ids_.knows(record.id.id);
  uint64_t& all = placed ? rings_[ids_.ring_of(record.id)].counted : unplaced_;
  all = sum(all, count);
}

// No ring counts less than its LOST records say. So where some counts are of an unknown ring, the sums of all
// are compared: if they are equal, no ring lost more, and else any may have.
std::vector<LostRecords> RecordRings::lost_at_ends() const {
  std::vector<LostRecords> out;
  uint64_t counted = unplaced_, reported = 0;
  Time first = std::numeric_limits<Time>::max();
  for (const auto& [key, ring] : rings_) {
    counted = sum(counted, ring.counted), reported = sum(reported, ring.reported);
    if (ring.seen) first = std::min(first, ring.last);
    if (unplaced_ != 0 || ring.counted <= ring.reported) continue;
    out.push_back({.source = source_of(key), .after = ring.last, .count = ring.counted - ring.reported});
  }
  if (unplaced_ != 0 && counted > reported) {
    out.push_back({.source = kAnyRing,
                   .after = first == std::numeric_limits<Time>::max() ? kTimeMin : first,
                   .count = counted - reported});
  }
  return out;
}

std::vector<LostRecords> RecordRings::lost_before(Time until) const {
  std::vector<LostRecords> out;
  for (const auto& [key, ring] : rings_) {
    if (ring.seen) out.push_back({.source = source_of(key), .until = until, .count = UINT32_MAX});
  }
  return out;
}

std::vector<LostRecords> RecordRings::lost_behind(Time settled) const {
  std::vector<LostRecords> out;
  for (const auto& [key, ring] : rings_) {
    if (ring.seen)
      out.push_back({.source = source_of(key), .after = std::max(ring.last, settled), .known = false});
  }
  if (out.size() < std::max<size_t>(1, ids_.count()))
    out.push_back({.source = kAnyRing, .after = settled, .known = false});
  return out;
}

std::string ring_name(const LostRecords& lost) {
  const auto cpu = static_cast<int32_t>(lost.source);
  return cpu < 0 ? "some ring" : fmt::format("cpu {}", cpu);
}

}  // namespace asof
