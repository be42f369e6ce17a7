// How AUX buffers are joined, piece by piece; parts of make_streams() (decoder/perf/perf_data.h) that tests
// use on their own. What perf writes: tools/perf/util/auxtrace.c (__auxtrace_mmap__read); how it joins
// snapshots: tools/perf/util/intel-pt-decoder/intel-pt-decoder.c (intel_pt_find_overlap).
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decoder/perf/perf_data.h"

namespace asof {

// One ring: its bytes as one stream, and what the kernel recorded about them. A trace of CoreSight frames is
// not a stream yet: see cs_perf.h.
struct AuxRing {
  Stream stream;
  std::vector<const AuxRecord*> records;  // in order of offset
  bool overlapping = false;               // of snapshots: offsets of records are not those of the stream
  // Overlapping: where the bytes of each piece end in the ring, as its AUXTRACE buffer says.
  std::vector<uint64_t> ring_ends{};
};
std::vector<AuxRing> make_rings(const PerfData& data, std::vector<Notice>& notices);

// offset + size, cut at the top instead of wrapping.
constexpr uint64_t end_of(uint64_t offset, uint64_t size) {
  return size > UINT64_MAX - offset ? UINT64_MAX : offset + size;
}

// Fewer equal bytes than this may be chance: two PSBs without time packets look alike.
inline constexpr size_t kMinOverlap = 64;

// Two copies of one Intel PT ring, `earlier` taken before `later`: how much of `later`, from its start, must
// be skipped so that what remains continues `earlier`. nullopt: the bytes show no overlap. The comparison
// starts at the first PSB of `later`.
std::optional<size_t> find_overlap(std::span<const uint8_t> earlier, std::span<const uint8_t> later);

// The same for two buffers, whose offsets may give more, and the first of which may end with padding.
struct Join {
  size_t skip = 0;     // from the start of the later one
  size_t padding = 0;  // to be taken from the end of the earlier one
};
std::optional<Join> join_of(const AuxBuffer& before, const AuxBuffer& buffer);

// The payload without the padding that perf counts in. `next`: where the next buffer starts; `ends`: where
// AUX records end, sorted. Only zeros are taken for padding; Intel PT reads those that remain as PAD packets,
// which do no harm.
std::span<const uint8_t> without_padding(const AuxBuffer& buffer, uint64_t next,
                                         const std::vector<uint64_t>& ends);

// Makes each cut an offset where the bytes after it do not continue those before.
void cut_pieces(Stream& stream, std::vector<uint64_t> cuts);

}  // namespace asof
