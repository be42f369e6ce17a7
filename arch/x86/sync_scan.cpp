#include "arch/x86/sync_scan.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "arch/segments_from.h"
#include "arch/x86/packet.h"
#include "arch/x86/segments.h"

namespace asof::x86 {
namespace {

// The PSBs within [begin, end) of a stretch, each behind the one before, also those that lie in several pieces.
class PsbSearch {
 public:
  PsbSearch(const Stream& stream, uint64_t begin, uint64_t end)
      : stream_(stream), begin_(begin), end_(end), piece_(piece_at(stream, begin)) {}

  std::optional<uint64_t> next() {
    for (; piece_ != stream_.pieces.end() && piece_->offset < end_; ++piece_) {
      const uint64_t piece_end = piece_->offset + piece_->bytes.size();
      auto hit = search(std::max(begin_, piece_->offset), std::min(piece_end, end_));
      // Across the seam: with a byte on each side of it.
      if (!hit && piece_end < end_)
        hit = search(std::max(begin_, piece_end - std::min(kBeside, piece_end)),
                     std::min(piece_end + kBeside, end_));
      if (!hit) continue;
      begin_ = *hit + kPsbSize;
      return hit;
    }
    return std::nullopt;
  }

 private:
  static constexpr uint64_t kBeside = kPsbSize - 1;
  using Piece = std::vector<StreamPiece>::const_iterator;
  static Piece piece_at(const Stream& stream, uint64_t at) {
    return std::prev(std::ranges::upper_bound(stream.pieces, at, {}, &StreamPiece::offset));
  }
  std::optional<uint64_t> search(uint64_t from, uint64_t to) {
    if (from >= to) return std::nullopt;
    const size_t hit = find_psb(stream_.bytes(from, to, scratch_), 0);
    return hit == SIZE_MAX ? std::nullopt : std::optional(from + hit);
  }

  const Stream& stream_;
  uint64_t begin_;  // not searched yet
  const uint64_t end_;
  Piece piece_;
  std::vector<uint8_t> scratch_;
};

}  // namespace

SyncScan::SyncScan(const Stream& stream, std::span<const Stretch> stretches, const Config& config,
                   const Errata& errata, uint64_t part_bytes)
    : stream_(stream), config_(config), errata_(errata), part_bytes_(part_bytes) {
  std::ranges::copy_if(stretches, std::back_inserter(stretches_),
                       [](const Stretch& s) { return s.begin != s.end; });
  if (!stretches_.empty()) unclaimed_ = stretches_.front().begin;
}

const Stretch& SyncScan::stretch_of(uint64_t at) const {
  return *std::prev(std::ranges::upper_bound(stretches_, at, {}, &Stretch::begin));
}

uint64_t SyncScan::after(uint64_t part) const {
  const Stretch& s = stretch_of(part);
  if (s.end - part > part_bytes_) return part + part_bytes_;
  return &s == &stretches_.back() ? kNone : (&s + 1)->begin;
}

SyncScan::Part SyncScan::find(uint64_t part) const {
  const Stretch& s = stretch_of(part);
  const uint64_t share = std::min(part_bytes_, s.end - part), behind = part + share;
  const auto begin = part == s.begin ? part : search_start(stream_, part, behind);
  if (!begin) return {};  // it is of the part before
  Part out;
  out.rest = *begin;
  out.end = behind == s.end ? s.end : search_start(stream_, behind, s.end).value_or(s.end);
  search(out);
  return out;
}

void SyncScan::search(Part& part) const {
  const uint64_t stretch_end = stretch_of(part.rest).end;
  part.points.clear();
  std::vector<uint8_t> scratch;
  PsbSearch psbs(stream_, part.rest, part.end);
  while (part.points.size() < kMostPoints) {
    const auto at = psbs.next();
    if (!at) {
      part.rest = part.end;
      return;
    }
    const auto group = stream_.bytes(*at, sync_group_end(*at, stretch_end), scratch);
    part.points.push_back({*at, read_sync_group(group, Clock(config_, reference_at(stream_, *at)), errata_)});
    part.rest = *at + kPsbSize;
  }
}

bool SyncScan::scan_ahead(size_t most) {
  uint64_t part = 0;
  {
    const std::lock_guard lock(mutex_);
    if (unclaimed_ == kNone || waiting_ >= most) return false;
    part = std::exchange(unclaimed_, after(unclaimed_));
    ++waiting_;
  }
  Part found = find(part);
  const std::lock_guard lock(mutex_);
  if (part >= wanted_) found_.emplace(part, std::move(found));
  return true;
}

// Of a part that is being looked for by another thread it does not wait for the result: it may never come, where that
// thread runs out of memory.
SyncScan::Part SyncScan::take(uint64_t part) {
  {
    const std::lock_guard lock(mutex_);
    wanted_ = after(part);
    if (part >= unclaimed_)
      unclaimed_ = wanted_;
    else
      --waiting_;
    if (auto found = found_.extract(part)) return std::move(found.mapped());
  }
  return find(part);
}

void SyncScan::enter(const Stretch& stretch) {
  part_ = {};
  taken_ = 0;
  next_ = stretch.begin;
  end_ = stretch.end;
}

std::optional<SyncPoint> SyncScan::next() {
  for (;;) {
    if (taken_ < part_.points.size()) return part_.points[taken_++];
    taken_ = 0;
    if (part_.rest < part_.end) {
      search(part_);
    } else if (next_ < end_) {
      const uint64_t part = next_;
      next_ = after(part);
      part_ = take(part);
    } else {
      return std::nullopt;
    }
  }
}

}  // namespace asof::x86
