// What a part of a block stream has of its recording.
#include "decoder/blocks/block_format.h"

namespace asof::blocks {

std::vector<uint8_t> put_coverage(const PartCoverage& c) {
  Writer w;
  w.varint(c.shard.index);
  w.varint(c.shard.count);
  w.varint(c.options);
  w.varint(c.ranges.size());
  for (const StreamRange& r : c.ranges) {
    w.varint(r.stream);
    w.varint(r.begin);
    w.varint(r.end);
  }
  return w.data();
}

bool take_coverage(std::span<const uint8_t> body, PartCoverage& out) {
  Source in(body);
  const uint64_t index = in.varint(), count = in.varint();
  if (count == 0 || count > UINT32_MAX || index >= count) return false;
  out.shard = {static_cast<uint32_t>(index), static_cast<uint32_t>(count)};
  out.options = in.varint();
  for (uint64_t i = 0, n = in.count(3); i < n && in.ok(); ++i) {
    StreamRange r;
    r.stream = in.varint();
    r.begin = in.varint();
    r.end = in.varint();
    if (r.end < r.begin) return false;
    out.ranges.push_back(r);
  }
  return in.ok() && in.left() == 0;
}

}  // namespace asof::blocks
