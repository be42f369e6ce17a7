#include "decoder/pipeline/stream_choice.h"

#include <algorithm>

namespace asof {

std::optional<StreamRange> chosen_range(const Stream& s, size_t index, const PipelineOptions& o) {
  if (!o.cpus.empty() && s.cpu >= 0 && std::ranges::find(o.cpus, s.cpu) == o.cpus.end()) return std::nullopt;
  if (!o.tids.empty() && s.tid >= 0 && std::ranges::find(o.tids, s.tid) == o.tids.end()) return std::nullopt;
  if (!o.ranges) return StreamRange{.stream = index};
  const auto range = std::ranges::find(*o.ranges, index, &StreamRange::stream);
  return range == o.ranges->end() ? std::nullopt : std::optional(*range);
}

uint64_t bytes_within(const Stream& stream, const StreamRange& range) {
  uint64_t bytes = 0;
  for (const StreamPiece& p : stream.pieces) {
    const uint64_t begin = std::max(p.offset, range.begin), end = std::min(p.offset + p.size(), range.end);
    if (begin < end) bytes += end - begin;
  }
  return bytes;
}

}  // namespace asof
