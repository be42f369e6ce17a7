#include "decoder/model/shard.h"

#include <algorithm>

namespace asof {

uint64_t shard_begin(uint64_t total, uint64_t index, uint64_t count) {
  // total * index / count without overflow.
  return total / count * index + total % count * index / count;
}

std::vector<StreamRange> shard_ranges(std::span<const StreamExtent> streams, Shards shards) {
  uint64_t total = 0;
  for (const StreamExtent& s : streams) total += s.end - s.begin;
  const uint64_t from = shard_begin(total, shards.first, shards.count);
  const uint64_t to = shard_begin(total, uint64_t{shards.last} + 1, shards.count);
  const bool last = shards.last + 1 == shards.count;
  std::vector<StreamRange> out;
  uint64_t at = 0;  // of the stream, in the joined trace
  for (size_t i = 0; i < streams.size(); ++i) {
    const StreamExtent& s = streams[i];
    const uint64_t end = at + (s.end - s.begin);
    // A stream without bytes is where it would begin.
    const bool here = at == end ? from <= at && (at < to || last) : std::max(from, at) < std::min(to, end);
    if (here)
      out.push_back(
          {i, from <= at ? 0 : s.begin + (from - at), to >= end ? UINT64_MAX : s.begin + (to - at)});
    at = end;
  }
  return out;
}

}  // namespace asof
