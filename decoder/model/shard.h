// Shards: the trace of a capture cut into parts of about the same size, which may be decoded by processes of their
// own, on any machine, in any order. A segment belongs to the shard in which it begins, so every segment is in
// exactly one; where segments begin does not depend on the cut.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace asof {

// Part `index` of `count`.
struct Shard {
  uint32_t index = 0, count = 1;
  bool operator==(const Shard&) const = default;
};

// Parts `first` to `last` of `count`.
struct Shards {
  uint32_t first = 0, last = 0, count = 1;
  bool operator==(const Shards&) const = default;
};

// Where shard `index` begins in something of `total` bytes; each ends where the next one begins, the last one at `total`.
uint64_t shard_begin(uint64_t total, uint64_t index, uint64_t count);

// Segments of one stream that begin in [begin, end), stream offsets.
struct StreamRange {
  size_t stream = 0;
  uint64_t begin = 0, end = UINT64_MAX;
  bool operator==(const StreamRange&) const = default;
};

// What a stream spans, in its own offsets.
struct StreamExtent {
  uint64_t begin = 0, end = 0;
};

// The ranges of shards that follow each other, by stream, at most one of each. The ranges of all shards cover every
// stream from 0 to UINT64_MAX once. `shards.last` is below `shards.count`.
std::vector<StreamRange> shard_ranges(std::span<const StreamExtent> streams, Shards shards);
inline std::vector<StreamRange> shard_ranges(std::span<const StreamExtent> streams, Shard shard) {
  return shard_ranges(streams, Shards{shard.index, shard.index, shard.count});
}

}  // namespace asof
