// An AUX ring of CoreSight trace cut where AUX records begin: one record is what a sink gave at one time, in
// one format, and a formatter restarts with it. PERF_AUX_FLAG_CORESIGHT_FORMAT_RAW:
// include/uapi/linux/perf_event.h.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "decoder/aux/aux_streams.h"
#include "textstore/time.h"

namespace asof {

// Bytes of one AUX record.
struct CsSection {
  std::span<const uint8_t> bytes;
  uint64_t offset = 0;  // in the ring
  uint64_t file_offset = 0;
  bool discontinuity = false;
  bool raw = false;  // of one source, without frames
  int32_t cpu = -1;  // that wrote the record
  // When these bytes were made: before their record was written, and after the one before. A raw sink hands
  // its buffer over while its source continues, so a few bytes may be older: there it is the second one
  // before.
  TimeBounds time;
};

struct CsSections {
  std::vector<CsSection> sections;
  // Bytes outside of all AUX records, though there are such records; they are in `sections`.
  uint64_t unrecorded = 0;
  uint64_t unrecorded_at = 0;  // the first of them in the file
};
CsSections cut_sections(const AuxRing& ring);

// Index of the first section that begins at or after `offset` of the ring.
size_t section_after(std::span<const CsSection> sections, uint64_t offset);

}  // namespace asof
