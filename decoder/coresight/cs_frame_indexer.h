// The index pass over CoreSight frames (cs_frames.h), and its state between two sections.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "decoder/coresight/cs_deframer.h"
#include "decoder/coresight/cs_frames.h"

namespace asof {

// A source that was met. Not within the class: clang does not know its defaults where they are needed there.
struct IndexedSource {
  CsFrames::Source source;
  uint64_t epoch = 0;
};

class CsFrameIndexer {
 public:
  explicit CsFrameIndexer(uint64_t apart) : since(apart), distance(apart) {}
  // A stretch starts: of a section, or after a barrier.
  void start(size_t section, bool discontinuity) {
    section_ = section;
    ++epoch_;
    if (discontinuity) last_discontinuity_ = epoch_;
  }
  void checkpoint() {
    ++checkpoints_;
    for (auto& slot : slots_) {
      if (slot) slot->source.counts.push_back(slot->source.size);
    }
  }
  // Every second checkpoint is dropped.
  void thin_out() {
    checkpoints_ = (checkpoints_ + 1) / 2;
    for (auto& slot : slots_) {
      if (!slot) continue;
      CsFrames::Source& source = slot->source;
      // The one before its first byte stays: if that is dropped, the one before it is used instead.
      const size_t odd = source.first_checkpoint % 2;
      size_t kept = odd;
      for (size_t i = odd == 0 ? 0 : 1; i < source.counts.size(); i += 2)
        source.counts[kept++] = source.counts[i];
      source.counts.resize(kept);
      source.first_checkpoint /= 2;
    }
  }
  // How far the index pass came since the last checkpoint, and how far it may go.
  uint64_t since, distance;

  void take(const FrameRun& run, uint64_t file_offset) {
    auto& slot = slots_[run.id];
    if (!slot) {
      slot.emplace();
      slot->source.id = run.id;
      slot->source.first_checkpoint = checkpoints_ - 1;
      slot->source.counts.push_back(0);
    }
    if (slot->epoch != epoch_) {
      slot->source.breaks.push_back({.at = slot->source.size,
                                     .section = section_,
                                     .discontinuity = last_discontinuity_ > slot->epoch,
                                     .file_offset = file_offset});
      slot->epoch = epoch_;
    }
    slot->source.size += run.count;
  }
  // Checkpoints [from, to) are dropped; the one before stays.
  void drop(size_t from, size_t to) {
    checkpoints_ -= to - from;
    for (auto& slot : slots_) {
      if (!slot) continue;
      size_t& first = slot->source.first_checkpoint;
      auto& counts = slot->source.counts;
      if (first >= to) {
        first -= to - from;
      } else if (first >= from) {  // of its first byte: the one before is, too
        counts.erase(counts.begin() + 1, counts.begin() + static_cast<ptrdiff_t>(to - first));
        first = from - 1;
      } else {
        counts.erase(counts.begin() + static_cast<ptrdiff_t>(from - first),
                     counts.begin() + static_cast<ptrdiff_t>(to - first));
      }
    }
  }
  std::vector<CsFrames::Source> finish() const {
    std::vector<CsFrames::Source> out;
    for (const auto& slot : slots_) {
      if (slot) out.push_back(slot->source);
    }
    return out;
  }

 private:
  std::array<std::optional<IndexedSource>, 128> slots_;
  uint64_t epoch_ = 0, last_discontinuity_ = 0;
  size_t section_ = 0, checkpoints_ = 0;
};

// How far it came in a recording that grows.
struct CsFrameState {
  explicit CsFrameState(uint64_t apart) : indexer(apart) {}
  std::vector<FrameSection> sections;
  std::vector<CsFrames::Checkpoint> checkpoints;
  CsFrames::Losses losses;
  CsFrameIndexer indexer;
  std::optional<size_t> given_up;  // the frames from this checkpoint to the next are gone
};

}  // namespace asof
