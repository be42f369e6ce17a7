// Which version of changing text runs here? The rule is docs/live-text.md: candidates are the versions
// possible within the time bounds of this place in the trace; where more than one is left, each is followed
// on a copy of the state until it contradicts the trace, joins another, or the horizon is reached.
//
// The same for both machines, put together with the walk of each at compile time.
#pragma once
#include <tsl/robin_map.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "arch/arch.h"
#include "arch/stream.h"
#include "arch/walk/block_cache.h"
#include "arch/walk/gaps.h"
#include "arch/walk/signature.h"
#include "arch/walk/work.h"

namespace asof::walk {

// Why a walk, or a step of one, stopped. kGo: it did not. kSegmentEnd: the segment's end was reached as it
// should be; kOut: nothing more can be said (end of the stretch, damage); the others concern hypotheses, and
// in the walk itself say that a gap is open.
enum class Stop : uint8_t { kGo, kSegmentEnd, kOut, kHorizon, kMerged, kNoText, kContradiction };

// Does TextStore::unsure_from() come after the segment, in it, or before?
enum class Unsure : uint8_t { kNever, kLater, kAlways };

// A version of the text that may be the one, and when it can have begun to be.
template <class Variant>
struct Hypothesis {
  Variant* variant = nullptr;
  Time from = kTimeMin;
  bool is_of_text() const { return true; }  // else of something that all versions have
};

template <class Variant>
bool same_text(const Variant& a, const Variant& b) {
  return a.block.size == b.block.size && a.block.space == b.block.space &&
         std::memcmp(a.block.bytes, b.block.bytes, a.block.size) == 0;
}

// What a hypothesis took at a choice on its way.
template <class Variant>
struct Taken {
  uint64_t decisions = 0;
  Addr ip = 0;
  const Variant* variant = nullptr;
};

// A hypothesis being followed.
template <class TimeKnown, class Variant>
struct Trial {
  // Signatures that compare it with others, one at each decision since the fork.
  struct Mark {
    uint64_t state = 0;    // where it is, and what decides what may come
    TimeKnown time_known;  // at it
    uint64_t path = 0;     // State::path
  };
  uint64_t until = 0;               // decision count to stop at
  uint64_t end = 0;                 // out: where it stopped
  std::vector<uint64_t> positions;  // signatures of where it was
  std::vector<Mark> marks;          // as many
  std::vector<Taken<Variant>> taken;
  uint64_t path = 0;  // State::path at its end
  // Of the first survivor: an equal one at the same index means that both have met.
  const std::vector<uint64_t>* other = nullptr;
  uint32_t depth = 0;  // of nested choices
  // It ran text that may have changed unseen: a contradiction after that is no proof.
  bool unsure = false;
  size_t unsure_at = SIZE_MAX;  // the size of `positions` when it first did
  bool open = false;            // a candidate of a nested choice was ruled out by no more than that
  // Decision count at the first nested choice of which not every candidate was tried: what holds after it
  // holds of one path only.
  uint64_t untried = UINT64_MAX;
};

// Types has State, Isa (of BlockCache), TimeKnown (what a state knows of time: with more of it fewer versions
// are candidates) and Hypothesis, which derives from the one above. Flow has, beside what Gaps asks for:
//   template <bool Emit> Stop walk(State&, Trial*)
//   uint64_t position_signature(const State&)                  of where the flow is
//   static uint64_t state_signature(const State&, uint64_t position)    the same with what may make a difference
//   later TimeKnown time_known(const State&) TimeBounds bounds(const State&)                   when the
//   packet in use was made TimeBounds text_bounds(const State&)              of which time the text may be
//   bool pause_ahead()                                bounds() ends with a pause of the trace
//   bool is_unsure(const State&, const Block&), may_have_changed(const State&)
//   void assume(State&, const Hypothesis&)            assume_text(), and what the machine adds
//   void visit(State&, Node&)                         the flow comes to a node
//   Variant* unrecorded_text(State&, Node&)           what runs where no bytes are recorded, or nullptr
//   bool narrow(const State&, std::vector<Variant*>&) drops candidates that the flow itself excludes
template <class Flow, class Types>
class Hypotheses : protected Gaps<Flow, typename Types::State> {
 protected:
  using State = typename Types::State;
  using Node = walk::Node<typename Types::Isa>;
  using Variant = walk::Variant<typename Types::Isa>;
  using Stop = walk::Stop;
  using Hypothesis = typename Types::Hypothesis;
  using TimeKnown = typename Types::TimeKnown;
  using Trial = walk::Trial<TimeKnown, Variant>;

  // The text at s.ip, or nullptr: then (Emit) a gap is open, or `why` says why a hypothesis ends.
  template <bool Emit>
  Variant* text(State& s, Trial* trial, Stop& why);
  // Follows every candidate from here and judges. Where none fits, it gives the likeliest, which leads to the
  // place of the contradiction; or none, with a gap open here, where something unknown can be here as well
  // and the trace contradicts all others before it says an address.
  // In a hypothesis it gives none: `why` says how it ended.
  template <bool Emit>
  const Hypothesis* choose(State& s, const std::vector<Hypothesis>& hypotheses, bool unknown, Trial* trial,
                           Stop& why);
  // Takes a hypothesis: from here on time has reached the start of its version's life.
  void assume_text(State& s, const Hypothesis& h, Time clock_error) const;
  // User address spaces that may be current within b, likeliest first.
  std::vector<Space> spaces_in(TimeBounds b) const;
  // The one user address space of the whole stream; kNoSpace: there is none, or there are several.
  Space only_space() const {
    return stream_->contexts.size() == 1 ? stream_->contexts.front().space : kNoSpace;
  }

  // May the flow have gone another way up to here, or over other text?
  bool in_doubt(const State& s) const { return s.unsure || in_window(s); }
  // May it have gone another way?
  bool path_in_doubt(const State& s) const {
    return s.unsure || (confidence_ > Confidence::kEquivalent && s.decisions < confidence_until_);
  }
  // The flow is to run (a part of) this block.
  void meet(State& s, const Block& b, Trial* trial) {
    s.unsure = s.unsure || this->distrusts(b) || self().is_unsure(s, b);
    if (trial == nullptr || !is_doubtful(s, b)) return;
    trial->unsure = true;
    trial->unsure_at = std::min(trial->unsure_at, trial->positions.size());
  }
  // One executed block, or its first `count` instructions.
  template <bool Emit>
  void emit(State& s, const Variant& v, uint32_t count, uint8_t flags) {
    if constexpr (Emit) {
      Step step;
      step.block = &v.block;
      step.time = Flow::display_time(s);
      step.count = count;
      step.flags = static_cast<uint8_t>(flags | next_flags_ | (s.transaction ? Step::kTransaction : 0));
      step.confidence = s.decisions < confidence_until_ ? confidence_ : Confidence::kCertain;
      if (is_doubtful(s, v.block)) step.confidence = std::max(step.confidence, Confidence::kAmbiguous);
      next_flags_ = 0;
      chunk_.steps.push_back(step);
    } else {
      s.path = extend_path(s.path, v.block, count);
    }
  }
  // `count` pieces of trace were used up to get to s.ip. In a hypothesis: record, compare, and say when to
  // stop.
  Stop used(State& s, Trial* trial, uint64_t count = 1) {
    s.decisions += count;
    s.idle_blocks = 0;
    if (trial != nullptr) return compare(s, *trial);
    this->verify();
    return Stop::kGo;
  }
  void distrust_text(State& s);
  void doubt_text_before(const State& s);
  // Counts a block that uses no trace.
  template <bool Emit>
  Stop idle(State& s);
  // Hypotheses are followed from here on.
  void start_trials() {
    forks_left_ = options_.max_forks;
    trial_blocks_left_ = kTrialBlocks;
    dead_ends_.clear();
    unknown_ends_.clear();
    dead_ends_unsure_ = false;
  }
  // All hypotheses of one choice together may walk so many blocks. False: they have.
  bool take_trial_block() {
    if (trial_blocks_left_ == 0 || work_.spent()) return false;
    --trial_blocks_left_;
    work_.take(1);
    return true;
  }

  using SegmentLog::chunk_;
  using SegmentLog::confidence_;
  using SegmentLog::confidence_until_;
  using SegmentLog::followed_until_;
  using SegmentLog::next_flags_;
  using SegmentLog::planned_until_;

  const DecodeOptions options_;
  const TextStore& text_;
  const Stream* stream_ = nullptr;                    // of the segment
  BlockCache<typename Types::Isa>* cache_ = nullptr;  // of the segment
  Unsure unsure_ = Unsure::kNever;                    // of the segment
  Candidates<typename Types::Isa> candidates_;
  Work work_;  // of the segment

 private:
  friend Flow;
  // `capture_bytes`: of trace, of all streams.
  Hypotheses(const TextStore& text, const DecodeOptions& options, uint64_t capture_bytes)
      : options_(options), text_(text), work_(capture_bytes, options.work_divisor) {}

  static constexpr uint32_t kTrialBlocks = 1 << 16;
  static constexpr uint32_t kMaxDepth = 200;  // nested choices: each is a stack frame with a State
  struct Verdict;
  // Signatures of states, Mark::state, from which all ways end alike for whoever knows as much of time.
  using Ends = tsl::robin_map<uint64_t, TimeKnown>;

  Flow& self() { return static_cast<Flow&>(*this); }
  const Flow& self() const { return static_cast<const Flow&>(*this); }
  bool in_window(const State& s) const {
    return confidence_ > Confidence::kProved && s.decisions < confidence_until_;
  }
  static bool is_doubtful(const State& s, const Block& b) {
    return s.unsure || (s.space_unsure && b.space != kKernelSpace);
  }
  template <bool Emit>
  Variant* text_at(State& s, Node& node, Trial* trial, Stop& why);
  template <bool Emit>
  Variant* text_of_spaces(State& s, const std::vector<Space>& spaces, Trial* trial, Stop& why);
  // The candidates at a node, in candidates_. False: the budget of work does not allow it, in a trial.
  template <bool Emit>
  bool find_candidates(Node& node, TimeBounds b);
  // The budget of work is used up: what is in doubt here stays so.
  void give_up(State& s);
  template <bool Emit>
  Variant* no_text(State& s, Node& node, bool ever, Stop& why);
  template <bool Emit>
  Variant* no_instruction(State& s, bool ever, Trial* trial, Stop& why);
  std::vector<Hypothesis> group(std::vector<Variant*>& known, TimeBounds b) const;
  void choose_nested(const State& s, const std::vector<Hypothesis>& hypotheses, bool unknown, Trial& trial,
                     Stop& why);
  const Hypothesis* judge(State& s, const std::vector<Hypothesis>& hypotheses, bool unknown);
  void follow(const State& s, const Hypothesis& h, Verdict& v);
  void set_confidence(State& s, const Verdict& v, bool unknown);
  void plan(const State& s, Verdict& v);
  const Hypothesis* planned(const State& s, const std::vector<Hypothesis>& hypotheses);
  void remember_end(Ends& ends, Trial& trial, size_t from);
  Stop compare(State& s, Trial& trial);

  uint32_t forks_left_ = 0;
  uint32_t trial_blocks_left_ = 0;
  // States that lead to contradictions only, and those that lead at the best to where no text is known.
  Ends dead_ends_, unknown_ends_;
  bool dead_ends_unsure_ = false;  // one of them because of text that may have changed unseen
  // The choices of the likeliest way on from one that was not settled, up to planned_until_, and how many of
  // them the flow has come past.
  std::vector<Taken<Variant>> plan_;
  size_t plan_at_ = 0;
};

}  // namespace asof::walk
