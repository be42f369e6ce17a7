#include "arch/stream.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "textstore/check.h"

namespace asof {

std::span<const uint8_t> Stream::bytes(uint64_t from, uint64_t to, std::vector<uint8_t>& scratch) const {
  ASOF_CHECK(from <= to);
  if (from == to) return {};
  auto it = std::upper_bound(pieces.begin(), pieces.end(), from,
                             [](uint64_t o, const StreamPiece& p) { return o < p.offset; });
  ASOF_CHECK(it != pieces.begin());
  --it;
  uint64_t skip = from - it->offset;
  const uint64_t want = to - from;
  if (!it->source && skip + want <= it->bytes.size()) return it->bytes.subspan(skip, want);
  scratch.resize(want);
  for (std::span<uint8_t> out(scratch); !out.empty(); ++it, skip = 0) {
    ASOF_CHECK(it != pieces.end() && skip <= it->size());
    const auto part = out.first(std::min<uint64_t>(out.size(), it->size() - skip));
    if (it->source) {
      it->source->read(it->source_begin + skip, part);
    } else {
      std::copy_n(it->bytes.begin() + static_cast<ptrdiff_t>(skip), part.size(), part.begin());
    }
    out = out.subspan(part.size());
  }
  return scratch;
}

void forget_mapping(std::span<const uint8_t> bytes) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  // The first and the last page belong to neighbours, too.
  const auto base = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = (base + page - 1) / page * page, last = (base + bytes.size()) / page * page;
  if (first < last)
    ::madvise(const_cast<uint8_t*>(bytes.data() + (first - base)), last - first, MADV_DONTNEED);
}

void Stream::forget(uint64_t from, uint64_t to) const {
  auto it = std::upper_bound(pieces.begin(), pieces.end(), from,
                             [](uint64_t o, const StreamPiece& p) { return o < p.offset; });
  if (it != pieces.begin()) --it;
  for (; it != pieces.end() && it->offset < to; ++it) {
    if (!it->mapped && !it->source) continue;
    const uint64_t size = it->size();
    const uint64_t skip = std::min(size, from > it->offset ? from - it->offset : 0);
    const uint64_t end = std::min(size, to - it->offset);
    if (skip >= end) continue;
    if (it->source) {
      it->source->forget(it->source_begin + skip, it->source_begin + end);
    } else {
      forget_mapping(it->bytes.subspan(skip, end - skip));
    }
  }
}

std::optional<uint64_t> Stream::file_offset(uint64_t at) const {
  auto it = std::upper_bound(pieces.begin(), pieces.end(), at,
                             [](uint64_t o, const StreamPiece& p) { return o < p.offset; });
  if (it == pieces.begin()) return std::nullopt;
  --it;
  const uint64_t skip = at - it->offset;
  if (skip >= it->size()) return std::nullopt;
  return it->source ? it->source->file_offset(it->source_begin + skip) : it->file_offset + skip;
}

const ContextChange* Stream::context_at(Time t) const {
  if (contexts.empty()) return nullptr;
  auto it = std::upper_bound(contexts.begin(), contexts.end(), t,
                             [](Time v, const ContextChange& c) { return v < c.time; });
  return it == contexts.begin() ? &*it : &*(it - 1);
}

}  // namespace asof
