#include "decoder/pipeline/window_start.h"

#include <algorithm>
#include <map>
#include <optional>

namespace asof {
namespace {

// In so few times as much, looking around costs more than reading it from the start.
constexpr uint64_t kShort = 8;
// More segments in a row without a time of their own: the stream has none.
constexpr int kMostUntimed = 16;

// The first segment at or after `at` that has a time.
std::optional<Segment> timed_segment(const Arch& arch, const Stream& stream, size_t index, uint64_t at) {
  const auto source = arch.segments(stream, index, at);
  for (int i = 0; i < kMostUntimed; ++i) {
    auto found = source->next();
    if (!found || found->start_time != kTimeMin) return found;
  }
  return std::nullopt;
}

}  // namespace

uint64_t window_start(const Arch& arch, const Stream& stream, size_t index, uint64_t start, Time from,
                      uint64_t near) {
  uint64_t begin = std::max(start, stream.begin()), end = stream.end(), found = start;
  if (from == kTimeMin || end < begin || (end - begin) / kShort < near) return start;
  // What has no time belongs to every window, and only the beginning can have none.
  const auto first = arch.segments(stream, index, start)->next();
  if (!first || first->start_time == kTimeMin) return start;
  std::map<uint64_t, Time> seen{{first->begin, first->start_time}};  // by offset
  while (end - begin > near) {
    const uint64_t middle = begin + (end - begin) / 2;
    const auto segment = timed_segment(arch, stream, index, middle);
    if (segment) seen.emplace(segment->begin, segment->start_time);
    if (!segment || segment->start_time >= from) {
      end = middle;
    } else {
      found = segment->begin;
      begin = std::max(middle, segment->begin);
    }
  }
  Time last = kTimeMin;
  for (const auto& [at, time] : seen) {
    if (time < last) return start;
    last = time;
  }
  return found;
}

}  // namespace asof
