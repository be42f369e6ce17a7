// Parts of make_streams() that tests look at on their own. The whole: decoder/perf_data.h.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

namespace asof {

// Two copies of one Intel PT ring, `earlier` taken before `later`: how much of `later`, from its start, is to
// be skipped so that what remains continues `earlier`. nullopt: they do not overlap as far as the bytes can
// tell. As perf does (tools/perf/util/intel-pt-decoder, intel_pt_find_overlap), the place is where `later`
// has its first PSB.
std::optional<size_t> find_overlap(std::span<const uint8_t> earlier, std::span<const uint8_t> later);

}  // namespace asof
