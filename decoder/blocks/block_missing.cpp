// What parts of a plan do not have: gaps, each a frame of its own.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "decoder/blocks/block_file.h"

namespace asof::blocks {
namespace {

// Of one stream, from 0 on, what is in none of `ranges`.
std::vector<StreamRange> uncovered(size_t stream, std::vector<StreamRange> ranges) {
  std::ranges::sort(ranges, {}, &StreamRange::begin);
  std::vector<StreamRange> out;
  uint64_t at = 0;
  for (const StreamRange& r : ranges) {
    if (r.begin > at) out.push_back({stream, at, r.begin});
    at = std::max(at, r.end);
  }
  if (at != UINT64_MAX) out.push_back({stream, at, UINT64_MAX});
  return out;
}

// "3, 7" or "3, 7, ... (12 in all)" of 0 to count - 1.
std::string missing_names(const std::set<uint32_t>& there, uint32_t count) {
  constexpr uint32_t kShown = 20;
  std::string out;
  uint32_t missing = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (there.contains(i)) continue;
    if (++missing <= kShown) out += fmt::format("{}{}", out.empty() ? "" : ", ", i);
  }
  return missing <= kShown ? out : fmt::format("{}, ... ({} in all)", out, missing);
}

Frame missing_frame(const StreamRange& range, const Stream& stream, std::span<const Frame> frames) {
  Frame f;
  f.segment = std::max(range.begin, stream.begin());
  f.missing_end = std::max<uint64_t>(1, std::min(range.end, stream.end()));
  f.last = true;
  const auto after = std::ranges::lower_bound(frames, f.segment, {}, &Frame::segment);
  if (after != frames.begin()) f.start = std::prev(after)->start;
  if (after != frames.end() && after->start != kTimeMin) f.missing_until = after->start;
  return f;
}

}  // namespace

void BlockFile::add_missing(BlockFile& file, std::span<const Stream> streams, std::vector<Notice>& notices) {
  std::vector<std::vector<StreamRange>> ranges(streams.size());
  std::set<uint32_t> there;
  std::optional<Shard> cut;
  for (const auto& part : file.parts_) {
    if (!part->coverage) {
      // A part without flow is the description that `asof merge` puts in front.
      if (part->has_flow) return;
      continue;
    }
    const PartCoverage& c = *part->coverage;
    if (cut && cut->count != c.shard.count) there.clear();  // of several cuts: no numbers to name
    cut = c.shard;
    there.insert(c.shard.index);
    for (const StreamRange& r : c.ranges) {
      if (r.stream < ranges.size()) ranges[r.stream].push_back(r);
    }
  }
  if (!cut) return;
  uint64_t bytes = 0;
  size_t holes = 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    std::vector<Frame>& frames = file.streams_[i];
    std::vector<Frame> missing;
    for (const StreamRange& r : uncovered(i, std::move(ranges[i]))) {
      Frame f = missing_frame(r, streams[i], frames);
      if (streams[i].pieces.empty() || f.segment >= f.missing_end) continue;
      bytes += f.missing_end - f.segment;
      missing.push_back(f);
    }
    holes += missing.size();
    std::ranges::move(missing, std::back_inserter(frames));
    std::ranges::stable_sort(frames, {}, &Frame::segment);
  }
  if (holes == 0) return;
  const std::string names = missing_names(there, cut->count);
  notices.push_back(
      {Notice::Severity::kError, Code::kPartMissing, "", Error::kNoOffset, kTimeMin,
       fmt::format("{} bytes of trace are in no part; of {} shards these are missing: {}", bytes, cut->count,
                   names.empty() ? "none by number" : names),
       fmt::format("asof decode --plan PLAN --shard K/{} -o PARTS for each, then merge again", cut->count),
       holes});
}

}  // namespace asof::blocks
