// Losses of side-band records that are known from damage: changes of text may have been among what cannot be read.
#pragma once
#include <span>
#include <vector>

#include "decoder/perf/perf_data.h"
#include "decoder/sideband/record_rings.h"

namespace asof {

// One for each ring and piece: between the last record of the ring before the piece and the first one behind it; one more
// where there are rings without a record. `passed_over`: by file and begin.
std::vector<LostRecords> lost_in_damage(const PerfData& data, std::span<const PassedOver> passed_over,
                                        const RingIds& rings);

}  // namespace asof
