// Writes a case as a perf.data directory with its copies of kcore. The file's records can be in several
// orders, all of which must mean the same.
#pragma once
#include <filesystem>
#include <string_view>

#include "tests/support/case_file.h"

namespace asof::test {

enum class RecordOrder : uint8_t {
  kSorted,       // all rings by time
  kRingByRing,   // the trace's ring first, then the other rings in reverse order
  kInterleaved,  // rings mixed at random, each in its own order
  kLate,         // a round with the trace alone, then a round with everything else
};
inline constexpr RecordOrder kRecordOrders[] = {RecordOrder::kSorted, RecordOrder::kRingByRing,
                                                RecordOrder::kInterleaved, RecordOrder::kLate};
std::string_view name_of(RecordOrder order);

// `directory` becomes the recording; kcore.end and ksym_text.bin are written next to it where the case has
// them.
void write_case(const CaseFile& c, RecordOrder order, const std::filesystem::path& directory);

}  // namespace asof::test
