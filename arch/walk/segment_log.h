// What the flow through one segment has found so far: steps, events and gaps, and how sure the steps are.
// Damage is data: a gap opens where the flow is lost and closes where it goes on; work never stops for it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "arch/arch.h"

namespace asof::walk {

class SegmentLog {
 public:
  // `offset`: in the segment's bytes.
  void add_event(EventKind kind, Time time, Addr ip, uint64_t a, uint64_t b, uint64_t offset);

 protected:
  void start_log(const Segment& segment, ChunkSink& sink);

  // The gap that opens, whose begin and reason are still to be filled in; nullptr: one is open already. Where
  // the last gap ended right here, before any instruction, it is one gap: the first cause stays. Steps
  // in front of it that no packet has confirmed become ambiguous: the gap lies between them and what would.
  Gap* new_gap(Code code, Addr ip, Time lo);
  // True: one was open. `end`: in the segment's bytes.
  bool close_gap(Addr resume_ip, uint64_t end, Time hi);
  // A packet has confirmed all steps up to here.
  void verify() { verified_steps_ = chunk_.steps.size(); }
  // No packet will confirm the steps since the last one that did.
  void doubt_unconfirmed();
  // The trace contradicts the text here. The flow may have gone wrong anywhere since the trace named an address: bits
  // of a TNT packet or atoms fit other branches as well, if not for long. A file of a process that is contradicted is
  // not what was mapped there: up to the segment's end no text of it is sure, nor is what ran of it just before.
  void doubt_since_address();
  // The trace contradicts user text of this origin.
  void distrust(OriginRef origin);
  bool distrusts(const Block& b) const {
    return !distrusted_.empty() && b.space != kKernelSpace && is_distrusted(b.origin);
  }
  // User text itself led to `ip`, straight on or by a direct branch: then nothing but the text says so. nullptr: it did not.
  const Block* user_text_before(Addr ip) const;
  bool distrusts_any() const { return !distrusted_.empty(); }
  // Takes back the steps that no packet has confirmed.
  void roll_back();
  // Leaves the first `entries` of the steps. Events of those behind them happened, with nothing known to run in between.
  void take_back(size_t entries);
  // Gives away what can no longer change: steps that no packet has confirmed may still be taken back, and a
  // gap right in front of them may grow; and those since the trace named an address may become doubtful.
  void flush(bool last);
  // From here on nothing is in doubt any more.
  void end_doubt() {
    confidence_ = Confidence::kCertain;
    confidence_until_ = followed_until_ = planned_until_ = 0;
  }

  const Segment* segment_ = nullptr;
  ChunkSink* sink_ = nullptr;
  Chunk chunk_;
  std::optional<Gap> gap_;     // open
  size_t verified_steps_ = 0;  // steps up to the last use of trace: later ones rest on the text alone
  size_t marked_steps_ = 0;    // steps up to a place that the machine's walk may take them back to
  uint8_t next_flags_ = 0;     // Step::flags of the next step
  size_t usual_times_ = 0;     // of StepList::times(), in the chunk before
  // Confidence of the steps up to this decision count.
  Confidence confidence_ = Confidence::kCertain;
  uint64_t confidence_until_ = 0;
  // Up to here a hypothesis beside unknown text was followed already; there is nothing more to learn.
  uint64_t followed_until_ = 0;
  // Up to here choices were made by the hypothesis that was taken last.
  uint64_t planned_until_ = 0;

 private:
  // By blocks: what is doubted does not depend on how steps are kept, and how often they are given away.
  static constexpr uint32_t kMostBlocks = 1024;

  // From here on are those steps that a contradiction makes doubtful.
  StepList::Place behind_address() const;
  bool is_distrusted(OriginRef origin) const;
  void doubt_distrusted();
  // StepList::loosen() of the chunk, and what counts its entries.
  void loosen(size_t from);

  std::vector<OriginRef> distrusted_;  // in this segment
  size_t doubted_ = 0;                 // of these, for so many the steps before were made ambiguous
};

}  // namespace asof::walk
