#include "decoder/open/text_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "arch/arch.h"
#include "textstore/doubt.h"

namespace asof {
namespace {

constexpr uint64_t kSample = 2048;  // bytes of trace from one sync point
constexpr size_t kSamples = 8;      // of a stream
constexpr size_t kMostSamples = 16;
// What is right contradicts the trace nowhere; where records of changes are missing, at a few places. In text that is moved
// by a page there was a contradiction every 60 bytes of trace.
constexpr size_t kFewPlaces = 8;
constexpr uint64_t kUsualDistance = 512;  // bytes of trace for each of them
constexpr std::array kCodes{Code::kTraceContradictsText, Code::kNotAnInstruction, Code::kRunaway,
                            Code::kInterruptNotReached, Code::kSyncPointNotReached};

// Where the trace contradicted text, by what the text came from.
class Contradictions final : public ChunkSink {
 public:
  explicit Contradictions(const Capture& capture) : capture_(capture) {}

  void take(Chunk&& chunk) override {
    for (const Gap& gap : chunk.gaps) {
      if (std::ranges::find(kCodes, gap.code) == kCodes.end()) continue;
      const OriginRef origin = origin_at(capture_.streams[chunk.stream], gap);
      if (origin != kNoOrigin && origin <= capture_.text->origin_count()) places_[origin].insert(gap.ip);
    }
  }
  // Those that are no accident in so many bytes of trace.
  std::map<OriginRef, size_t> of_note(uint64_t bytes) const {
    std::map<OriginRef, size_t> out;
    for (const auto& [origin, places] : places_) {
      if (places.size() >= std::max<uint64_t>(kFewPlaces, bytes / kUsualDistance))
        out.emplace(origin, places.size());
    }
    return out;
  }

 private:
  OriginRef origin_at(const Stream& stream, const Gap& gap) const {
    Space space = kKernelSpace;
    if (!is_kernel_address(gap.ip)) {
      const ContextChange* const task = stream.context_at(gap.time.lo);
      if (task == nullptr || task->space == kNoSpace) return kNoOrigin;
      space = task->space;
    }
    OriginRef found = kNoOrigin;
    const Cell cell = capture_.text->cell(space, gap.ip);
    for (const Version& v : cell.possible_in(gap.time)) {
      if (v.bytes == nullptr || (found != kNoOrigin && v.origin != found)) return kNoOrigin;
      found = v.origin;
    }
    return found;
  }

  const Capture& capture_;
  std::map<OriginRef, std::set<Addr>> places_;
};

}  // namespace

void doubt_contradicted_text(Capture& capture) {
  if (!capture.text || capture.text->unsure_from() == kTimeMin) return;
  const auto arch = capture.arch();
  if (!arch) return;
  const auto decoder = (*arch)->decoder(capture.streams, *capture.text, {});
  Contradictions found(capture);
  uint64_t bytes = 0;
  size_t samples = 0;
  std::map<OriginRef, size_t> wrong;
  for (size_t i = 0; i < capture.streams.size() && samples < kMostSamples && wrong.empty(); ++i) {
    const auto segments = (*arch)->segments(capture.streams[i], i, 0);
    for (size_t n = 0; n < kSamples && wrong.empty(); ++n) {
      auto segment = segments->next();
      if (!segment) break;
      segment->before.reset();
      segment->end = std::min(segment->end, segment->begin + kSample);
      segment->tail_end = std::min(segment->tail_end, segment->begin + kSample);
      decoder->decode(*segment, found);
      bytes += segment->end - segment->begin;
      ++samples;
      wrong = found.of_note(bytes);
    }
  }
  for (const auto& [origin, places] : wrong) {
    doubt(*capture.text, origin);
    capture.notices.push_back(
        {Notice::Severity::kError, Code::kTraceContradictsText, capture.text->origin(origin).name,
         Error::kNoOffset, kTimeMin,
         fmt::format(
             "in the first {} bytes of trace the CPU went elsewhere than this text leads at {} places: "
             "it is not what ran, and nothing of it is certain",
             bytes, places),
         "give the recorded kernel's copy of kcore, or the files that were mapped", 1});
  }
}

}  // namespace asof
