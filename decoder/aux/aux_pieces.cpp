#include "decoder/aux/aux_streams.h"

#include <algorithm>

namespace asof {
namespace {

constexpr uint64_t kMaxPadding = 7;  // perf pads a payload to 8 and counts the padding in its size

}  // namespace

std::span<const uint8_t> without_padding(const AuxBuffer& buffer, uint64_t next,
                                         const std::vector<uint64_t>& ends) {
  const auto bytes = buffer.bytes;
  const uint64_t end = end_of(buffer.offset, bytes.size());
  uint64_t real_end = end;
  if (next < end) {
    real_end = next;
  } else if (next > end) {
    const auto after = std::upper_bound(ends.begin(), ends.end(), end);
    if (after != ends.begin()) real_end = *(after - 1);
  }
  const uint64_t padding = end - real_end;
  if (padding > std::min<uint64_t>(kMaxPadding, bytes.size())) return bytes;
  const auto tail = bytes.last(padding);
  const bool zeros = std::all_of(tail.begin(), tail.end(), [](uint8_t byte) { return byte == 0; });
  return zeros ? bytes.first(bytes.size() - padding) : bytes;
}

std::optional<Join> join_of(const AuxBuffer& before, const AuxBuffer& buffer) {
  const uint64_t end = end_of(before.offset, before.bytes.size());
  if (!before.sample_time && buffer.offset > before.offset && buffer.offset < end) {
    const size_t size = end - buffer.offset;
    const auto shared = before.bytes.last(size);
    if (size >= kMinOverlap && size <= buffer.bytes.size() &&
        std::equal(shared.begin(), shared.end(), buffer.bytes.begin())) {
      return Join{size, 0};
    }
  }
  auto earlier = before.bytes;
  for (size_t padding = 0; padding <= kMaxPadding; ++padding) {
    if (const auto skip = find_overlap(earlier, buffer.bytes)) return Join{*skip, padding};
    if (before.sample_time || earlier.empty() || earlier.back() != 0) break;
    earlier = earlier.first(earlier.size() - 1);
  }
  return std::nullopt;
}

void cut_pieces(Stream& stream, std::vector<uint64_t> cuts) {
  std::sort(cuts.begin(), cuts.end());
  std::vector<StreamPiece> pieces;
  auto cut = cuts.begin();
  for (StreamPiece piece : stream.pieces) {
    const uint64_t end = piece.offset + piece.bytes.size();
    for (; cut != cuts.end() && *cut < end; ++cut) {
      if (*cut <= piece.offset) {
        piece.discontinuity |= *cut == piece.offset && *cut != 0;
        continue;
      }
      const uint64_t head = *cut - piece.offset;
      StreamPiece first = piece;
      first.bytes = piece.bytes.first(head);
      pieces.push_back(first);
      piece.offset += head;
      piece.file_offset += head;
      piece.bytes = piece.bytes.subspan(head);
      piece.discontinuity = true;
    }
    pieces.push_back(piece);
  }
  stream.pieces = std::move(pieces);
}

}  // namespace asof
