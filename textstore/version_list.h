// The last step for each cell: turns candidates into a list as TextStore promises it.
#pragma once
#include <vector>

#include "textstore/build_state.h"
#include "textstore/text_store.h"

namespace asof {

// Same bytes? Spends `budget` on what has to be compared; without budget only the same memory is equal.
bool same_bytes(const uint8_t* a, const uint8_t* b, size_t size, Budget& budget);

// The last instant at which the bytes of a layer whose end was announced at `announced` are sure; kTimeMax:
// it has no soft end. A soft end that a process inherits (fork) says nothing of its memory.
inline Time unsure_after(const Layer& layer, Time announced) {
  return layer.soft_until ? announced : kTimeMax;
}

// Appends a version; what is after `sure_until` is unsure.
void add_version(std::vector<Version>& versions, Version v, Time sure_until);

// Sorts by `from`, joins equal bytes that overlap or follow each other in time, and cuts versions such that
// `until` never decreases either: the versions possible in an interval are then neighbours.
void tidy_versions(std::vector<Version>& versions, size_t size, Budget& budget);

// Do two of these sorted versions overlap in time?
bool any_overlap(const std::vector<Version>& versions);

}  // namespace asof
