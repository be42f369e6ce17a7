#include "decoder/aux/aux_overwritten.h"

#include <fmt/format.h>

#include <algorithm>

#include "arch/x86/segments.h"

namespace asof {

void cut_overwritten(AuxRing& ring, const x86::Config& config) {
  constexpr Time kSlack = 10'000;  // ns, of the conversion
  if (ring.overlapping || !config.time) return;
  std::vector<uint64_t> cuts;
  bool late = false;  // the record before
  Time before = kTimeMin;
  for (const AuxRecord* record : ring.records) {
    const auto recorded = record->id.instant();
    if (!recorded || record->size == 0) continue;
    const uint64_t end = end_of(record->offset, record->size);
    const Time since = std::exchange(before, *recorded);
    const Time first = x86::first_time(ring.stream, record->offset, end, config);
    if (first == kTimeMin) continue;
    const bool was_late = std::exchange(late, first > saturating_add(*recorded, kSlack));
    if (!late || was_late) continue;
    cuts.push_back(record->offset);
    StreamLoss loss;
    loss.offset = record->offset;
    loss.time = since;
    loss.until = first;
    loss.code = Code::kTraceOverwritten;
    loss.reason = fmt::format(
        "what an AUX record of {} bytes hands over is {} ns younger than the record: trace was "
        "overwritten before it was read",
        record->size, elapsed(*recorded, first));
    ring.stream.losses.push_back(std::move(loss));
  }
  if (cuts.empty()) return;
  cut_pieces(ring.stream, cuts);
  std::ranges::stable_sort(ring.stream.losses, {}, &StreamLoss::offset);
}

}  // namespace asof
