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
RecordRings::RecordRings(const PerfData& data) {
  for (const PerfData::IdIndex& entry : data.id_index()) {
    const auto [it, fresh] = rings_.try_emplace({true, static_cast<int64_t>(entry.idx)});
    Ring& ring = it->second;
    if (entry.id == 0 || !ring_of_id_.emplace(entry.id, &ring).second) continue;
    ring.cpu = fresh || ring.cpu == entry.cpu ? entry.cpu : -1;
  }
}

RecordRings::Ring& RecordRings::ring_of(const SampleId& id) {
  if (const auto known = ring_of_id_.find(id.id); known != ring_of_id_.end()) return *known->second;
  Ring& ring = rings_[{false, id.cpu}];
  ring.cpu = id.cpu;
  return ring;
}

void RecordRings::saw(const Record& record) {
  Ring& ring = ring_of(record.id);
  ring.last = record.time();
  ring.seen = true;
}

LostRecords RecordRings::lost(const Record& record, uint64_t count) {
  Ring& ring = ring_of(record.id);
  ring.seen = true;
  ring.reported = sum(ring.reported, count);
  LostRecords out{.source = static_cast<uint32_t>(ring.cpu), .after = ring.last, .count = count};
  if (record.time() != kTimeMin) out.until = std::max(record.time(), ring.last);
  return out;
}

// What perf (6.1 and later, where the kernel has PERF_FORMAT_LOST) reads from each event when it ends: all
// that did not fit into the ring, records of every type (kernel/events/ring_buffer.c __perf_output_begin()).
// perf writes it with the event's id and a time and CPU of 0 (__record__save_lost_samples() in
// builtin-record.c), so that only the id says in which ring it was.
// A kernel's own record of samples that hardware lost looks the same but for its time; it is counted as more.
void RecordRings::counted(const Record& record, uint64_t count) {
  const bool placed = record.time() != kTimeMin || ring_of_id_.contains(record.id.id);
  uint64_t& all = placed ? ring_of(record.id).counted : unplaced_;
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
    out.push_back({.source = static_cast<uint32_t>(ring.cpu),
                   .after = ring.last,
                   .count = ring.counted - ring.reported});
  }
  if (unplaced_ != 0 && counted > reported) {
    out.push_back({.source = UINT32_MAX,
                   .after = first == std::numeric_limits<Time>::max() ? kTimeMin : first,
                   .count = counted - reported});
  }
  return out;
}

std::vector<LostRecords> RecordRings::lost_before(Time until) const {
  std::vector<LostRecords> out;
  for (const auto& [key, ring] : rings_) {
    if (ring.seen)
      out.push_back({.source = static_cast<uint32_t>(ring.cpu), .until = until, .count = UINT32_MAX});
  }
  return out;
}

std::string ring_name(const LostRecords& lost) {
  const auto cpu = static_cast<int32_t>(lost.source);
  return cpu < 0 ? "some ring" : fmt::format("cpu {}", cpu);
}

}  // namespace asof
