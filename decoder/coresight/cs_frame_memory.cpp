#include "decoder/coresight/cs_frame_memory.h"

#include <algorithm>

#include "decoder/coresight/cs_frame_indexer.h"

namespace asof {
namespace {

// Positions are not dropped here: those before what is given up must stay where they are.
constexpr uint64_t kApart = uint64_t{32} * 1024;

bool begins_with(const std::vector<FrameSection>& all, const std::vector<FrameSection>& begin) {
  const auto same = [](const FrameSection& a, const FrameSection& b) {
    return a.file_offset == b.file_offset && a.bytes.size() == b.bytes.size() &&
           a.discontinuity == b.discontinuity;
  };
  return all.size() >= begin.size() && std::equal(begin.begin(), begin.end(), all.begin(), same);
}

}  // namespace

std::shared_ptr<const CsFrames> CsFrameMemory::index(size_t ring, std::vector<FrameSection> sections,
                                                     FrameAlignment alignment) {
  auto& state = rings_[ring];
  if (!state || !begins_with(sections, state->sections)) state = std::make_shared<CsFrameState>(kApart);
  const std::shared_ptr<CsFrames> out(new CsFrames);
  out->sections_ = std::move(sections);
  out->alignment_ = alignment;
  out->most_checkpoints_ = SIZE_MAX;
  out->checkpoints_ = state->checkpoints;
  out->losses_ = state->losses;
  CsFrameIndexer indexer = state->indexer;
  const size_t known = state->sections.size(), count = out->sections_.size();
  for (size_t i = known; i < count; ++i) {
    // The last one can grow.
    if (i + 1 == count && i != known) {
      state->sections.assign(out->sections_.begin(), out->sections_.end() - 1);
      state->checkpoints = out->checkpoints_;
      state->losses = out->losses_;
      state->indexer = indexer;
    }
    out->index_section(indexer, i);
  }
  out->finish(indexer);
  out->memory_ = state;
  out->given_up_ = state->given_up;
  return out;
}

size_t CsFrames::checkpoint_before(uint8_t id, uint64_t at) const {
  const Source* const source = find(id);
  if (source == nullptr) return checkpoints_.size();
  const auto after = std::ranges::upper_bound(source->counts, at);
  return source->first_checkpoint + static_cast<size_t>(after - source->counts.begin()) -
         (after == source->counts.begin() ? 0 : 1);
}

size_t CsFrames::checkpoint_behind(uint8_t id, uint64_t at) const {
  const Source* const source = find(id);
  if (source == nullptr) return 0;
  const auto behind = std::ranges::lower_bound(source->counts, at);
  return source->first_checkpoint + static_cast<size_t>(behind - source->counts.begin());
}

std::vector<CsFrames::FileBytes> CsFrames::give_up(size_t from, size_t to) const {
  std::vector<FileBytes> out;
  if (!memory_ || memory_->given_up != given_up_) return out;
  const bool goes_on = given_up_.has_value();
  if (goes_on) from = *given_up_;
  // What the memory knows is passed over once; sections behind that are passed over again.
  to = std::min(to, memory_->checkpoints.size() - std::min<size_t>(1, memory_->checkpoints.size()));
  const size_t first = goes_on ? from + 1 : from;
  if (first >= to) return out;
  const Checkpoint &begin = checkpoints_[first], &end = checkpoints_[to];
  for (size_t i = begin.section; i <= end.section; ++i) {
    const FrameSection& s = sections_[i];
    const uint64_t since = i == begin.section ? begin.offset : 0;
    const uint64_t until = i == end.section ? end.offset : s.bytes.size();
    const bool joins =
        i + 1 < sections_.size() && sections_[i + 1].file_offset == s.file_offset + s.bytes.size();
    if (since >= until) continue;
    const uint64_t at = s.file_offset + since;
    if (!out.empty() && out.back().end == at && !out.back().ends) {
      out.back().end = s.file_offset + until;
    } else {
      out.push_back({at, s.file_offset + until, out.empty() && goes_on && since != 0, false});
    }
    out.back().ends = until == s.bytes.size() && !joins;
  }
  memory_->checkpoints.erase(memory_->checkpoints.begin() + static_cast<ptrdiff_t>(from + 1),
                             memory_->checkpoints.begin() + static_cast<ptrdiff_t>(to));
  memory_->indexer.drop(from + 1, to);
  memory_->given_up = from;
  return out;
}

}  // namespace asof
