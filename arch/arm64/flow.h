// Flow: follows one segment's elements through the text and gives the executed blocks.
//
// Invariants of the walk:
//  * All atoms of a packet are used before the next element is looked at.
//  * An exception's return address is met before the text at its address is asked for: a BRK needs no bytes.
//  * What OpenCSD lets pass is a contradiction here: an N atom on an unconditional branch, a branch before an
//  exception's address, a return address that lies behind.
//  * walk<false> (a hypothesis) works on a copy of the state and emits nothing.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/arch.h"
#include "arch/arm64/block_cache.h"
#include "arch/arm64/elements.h"
#include "arch/arm64/last_sync.h"
#include "arch/arm64/runs.h"
#include "arch/arm64/state.h"
#include "arch/holes.h"
#include "arch/walk/gaps.h"

namespace asof::arm64 {

class Flow final : public SegmentDecoder, private walk::Gaps<Flow, State> {
 public:
  // Without `code` everything is walked with care.
  Flow(const Config& config, std::span<const Stream> streams, const TextStore& text,
       const DecodeOptions& options, std::shared_ptr<SharedCode> code);
  void decode(const Segment& segment, ChunkSink& sink) override;

 private:
  friend class walk::Gaps<Flow, State>;
  // Why a walk, or a step of one, stopped. kGo: it did not. kSegmentEnd: the segment's end was reached as it
  // should be; kOut: nothing more can be said (end of the stretch, damage); the others concern hypotheses,
  // and in the walk itself say that a gap is open.
  enum class Stop : uint8_t { kGo, kSegmentEnd, kOut, kHorizon, kMerged, kNoText, kContradiction };
  // A version of the text that may be the one, and when it can have begun to be.
  struct Hypothesis {
    Variant* variant = nullptr;
    Time from = kTimeMin;
  };
  // What a state knows of time: with more of it, fewer versions are candidates.
  struct Since {
    Time lo = kTimeMin, synced = kTimeMin, hi = kTimeMax;
    bool knows_no_less_than(const Since& o) const { return lo >= o.lo && synced >= o.synced && hi <= o.hi; }
  };
  // A hypothesis being followed.
  struct Trial {
    uint64_t start = 0;            // decision count at the fork
    uint64_t until = 0;            // decision count to stop at
    uint64_t end = 0;              // out: where it stopped
    std::vector<uint64_t> record;  // signature at each decision since the fork
    std::vector<uint64_t> states;  // and future()
    std::vector<Since> since;      // and what was known of time there
    std::vector<uint64_t> ways;    // and State::way
    uint64_t way = 0;              // the last of them
    // It went over text that may have changed unseen: a contradiction behind that is no proof.
    bool unsure = false;
    size_t unsure_at = SIZE_MAX;  // the size of `record` when it did first
    bool open = false;            // a candidate of a nested choice was ruled out by no more than that
    const std::vector<uint64_t>* other = nullptr;  // of the first survivor: equal means joined
    uint32_t depth = 0;                            // of nested choices
    // Decision count at the first nested choice of which not every candidate was tried: what holds behind it
    // holds of one way only.
    uint64_t untried = UINT64_MAX;
  };

  // flow.cpp: the walk
  template <bool Emit>
  Stop walk(State& s, Trial* trial);
  template <bool Emit>
  Stop use_atom(State& s, Variant& v, Trial* trial);
  template <bool Emit>
  Stop place_for_atom(State& s, Trial* trial);
  template <bool Emit>
  void emit(State& s, const Variant& v, uint32_t count, uint8_t flags);
  void learn(State& s, Variant& v);
  void enter(State& s, Addr ip, uint8_t mode);
  void place_known(State& s) const;
  void meet(State& s, const Variant& v, Trial* trial);
  bool is_unsure(const State& s, const Block& b);
  bool may_have_changed(const State& s);
  // May the flow have gone another way up to here?
  bool in_doubt(const State& s) const {
    return s.unsure || (confidence_ > Confidence::kProved && s.decisions < confidence_until_);
  }
  void synchronise(State& s) const;
  void synchronise_by_text(State& s) const;
  template <bool Emit>
  bool pop_target(State& s);
  bool guess_target(State& s);  // return_guess.cpp
  Addr call_distance(State& s, Addr back, uint8_t mode);
  const char* no_target(const State& s) const;
  void go_indirect(State& s, Addr ip, uint8_t mode);
  Stop used(State& s, Trial* trial, uint64_t count = 1);
  uint64_t signature(const State& s) const;
  static uint64_t future(const State& s, uint64_t signature);

  // fast.cpp: the walk where nothing is in doubt
  static constexpr uint32_t kFastCodes = 512;
  static constexpr uint32_t kFastRoom = kFastCodes + 32;  // and the atoms of an element
  struct FastWalk;
  struct FastHot;
  template <bool Stack>
  struct FastTaker;
  uint32_t fast_start(const State& s);
  template <bool Stack>
  void fast_walk(State& s, uint32_t start);
  bool fast_listed(State& s, Element& next);
  uint32_t fast_follow(FastWalk& w, uint32_t way, uint32_t atom, Time lo);
  bool fast_return(const FastWalk& w, uint64_t newest);
  void fast_open(FastWalk& w, FastHot& hot);
  void fast_time(const FastWalk& w, FastHot& hot);
  void fast_close(FastWalk& w, FastHot& hot);
  void fast_end(State& s, const FastWalk& w, const FastHot& hot);
  RunCache& runs_of(bool wfx);
  bool fast_is_unsure(Space space) const { return runs_ != nullptr && runs_->map().rules().is_unsure(space); }

  // lost.cpp: the walk where nothing is known
  struct LostTaker;
  void lost_walk(State& s);
  bool in_hole(const State& s, Addr ip);

  // elements of the flow, fetch.cpp
  template <bool Emit>
  Stop element(State& s, Trial* trial);
  template <bool Emit>
  void on_context(State& s, const Element& d);
  template <bool Emit>
  Stop on_address(State& s, const Element& d, Trial* trial);
  template <bool Emit>
  Stop on_exception(State& s, const Element& d, Trial* trial);
  template <bool Emit>
  Stop on_source_address(State& s, const Element& d, Trial* trial);
  template <bool Emit>
  Stop on_q(State& s, const Element& d, Trial* trial);
  template <bool Emit>
  Stop follow_q(State& s, uint32_t& left, const Addr* to, Trial* trial);
  const Element* q_target(const State& s, const Element& d);
  template <bool Emit>
  Stop on_end(State& s, const Element& d, Trial* trial);
  template <bool Emit>
  void on_trace_on(State& s, const Element& d);
  template <bool Emit>
  Stop reach(State& s, Addr to, Trial* trial);
  template <bool Emit>
  Stop idle(State& s);
  void pass_time(State& s, const Element& d);
  uint8_t mode_of(const State& s, uint8_t isa) const;
  Addr address_of(const State& s, const Element& d) const;

  // hypothesis.cpp
  static constexpr uint32_t kTrialBlocks = 1 << 16;
  static constexpr uint32_t kMaxDepth = 200;  // nested choices: each is a stack frame with a State
  template <bool Emit>
  Variant* text(State& s, Trial* trial, Stop& why);
  template <bool Emit>
  Variant* text_at(State& s, Node& node, Trial* trial, Stop& why);
  TimeBounds bounds(const State& s);
  TimeBounds text_bounds(const State& s);
  template <bool Emit>
  Variant* choose(State& s, const std::vector<Hypothesis>& hypotheses, bool unknown, Trial* trial, Stop& why);
  Variant* choose_nested(const State& s, const std::vector<Hypothesis>& hypotheses, bool unknown,
                         Trial& trial, Stop& why);
  std::vector<Hypothesis> group(std::vector<Variant*>& known, TimeBounds b) const;
  void assume(State& s, const Hypothesis& h) const;
  std::vector<Space> spaces_in(TimeBounds b) const;
  // The one user address space of the whole stream; kNoSpace: there is none, or there are several.
  Space only_space() const {
    return stream_->contexts.size() == 1 ? stream_->contexts.front().space : kNoSpace;
  }
  Variant* slot_text(State& s, Node& node);

  // anchors.cpp
  void find_kprobe_pokes();
  void start_anchors(State& s, const SyncGroup& group);
  void enter_patch(State& s, const Variant* from);
  static void stop_counting(State& s);
  void leave_patch(State& s);
  void allow_patches(State& s, uint64_t visits) const;
  bool lost_between(Time after, Time before) const;

  // time of the segment
  Time to_time(uint64_t counter) const;
  void choose_clock(const SyncGroup& group);
  void choose_doubt(const SyncGroup& group);
  Time synced_before();

  // gaps.cpp
  static Time display_time(const State& s) { return s.floor; }
  uint64_t offset_in_use(const State& s);
  static void after_gap(const State&) {}
  void lose_sync(State& s);
  std::string describe(const State& s) const;

  const Config& config_;
  const std::span<const Stream> streams_;
  const DecodeOptions options_;
  const Time clock_error_;
  const TextStore& text_;
  Holes holes_{text_};
  std::optional<BlockCache> caches_[2];  // without and with WFI and WFE as branches
  BlockCache* cache_ = nullptr;          // of the segment's source
  walk::Candidates<Isa> candidates_;
  const std::shared_ptr<SharedCode> code_;
  // Likewise, with and without return stack, of text that is unsure as a whole and not.
  std::unique_ptr<RunCache> run_caches_[8];
  RunCache* runs_ = nullptr;  // of the segment's source; nullptr: none
  std::vector<uint8_t> scratch_;
  std::vector<Time> kprobe_pokes_;  // when text was changed under stop_machine; empty: anchors are not used
  std::optional<ElementParser> elements_;
  LastSync last_sync_;

  // Of the segment being decoded.
  const Stream* stream_ = nullptr;
  bool return_stack_ = false;
  TimeBounds bounds_;  // of the segment, by the records around its bytes
  PacketFormat format_;
  TimeBounds segment_start_;  // the instant of it, for anchors
  bool has_clock_ = false;    // timestamps are of perf's clock
  // Does TextStore::unsure_from() come after the segment, in it, or before?
  enum class Unsure : uint8_t { kNever, kLater, kAlways } unsure_ = Unsure::kNever;
  std::optional<Time> synced_before_;  // LastSync::before(), once it was asked for
  std::optional<Time> last_event_;     // State::floor at the last exception or exception return
  uint32_t forks_left_ = 0;
  uint32_t trial_blocks_left_ = 0;          // all hypotheses of one choice together may walk this many blocks
  tsl::robin_map<uint64_t, Since> failed_;  // signatures that lead nowhere for who knows as much of time
  bool failed_unsure_ = false;              // one of them because of text that may have changed unseen
};

// One executed block, or its first `count` instructions.
template <bool Emit>
inline void Flow::emit(State& s, const Variant& v, uint32_t count, uint8_t flags) {
  if constexpr (Emit) {
    Step step;
    step.block = &v.block;
    step.time = s.floor;
    step.count = count;
    step.flags = static_cast<uint8_t>(flags | next_flags_ | (s.transaction ? Step::kTransaction : 0));
    step.confidence = s.decisions < confidence_until_ ? confidence_ : Confidence::kCertain;
    if (s.unsure || (s.space_unsure && v.block.space != kKernelSpace))
      step.confidence = std::max(step.confidence, Confidence::kAmbiguous);
    next_flags_ = 0;
    chunk_.steps.push_back(step);
  } else {
    s.way = walk::extend_path(s.way, v.block, count);
  }
  s.fresh = false;
}

}  // namespace asof::arm64
