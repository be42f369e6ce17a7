// Flow: follows one segment's elements through the text and gives the executed blocks.
//
// Invariants of the walk:
//  * All atoms of a packet are used before the next element is looked at.
//  * An exception's return address is met before the text at its address is asked for: a BRK needs no bytes.
//  * What OpenCSD lets pass is a contradiction here: an N atom on an unconditional branch, a branch before an
//  exception's address, a return address that lies before it.
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
#include "arch/walk/hypothesis.h"

namespace asof::arm64 {

using Hypothesis = walk::Hypothesis<Variant>;

struct TimeKnown {
  Time lo = kTimeMin, synced = kTimeMin, hi = kTimeMax;
  bool knows_no_less_than(const TimeKnown& o) const { return lo >= o.lo && synced >= o.synced && hi <= o.hi; }
};

struct FlowTypes {
  using State = arm64::State;
  using Isa = arm64::Isa;
  using TimeKnown = arm64::TimeKnown;
  using Hypothesis = arm64::Hypothesis;
};

class Flow final : public SegmentDecoder, private walk::Hypotheses<Flow, FlowTypes> {
 public:
  // Without `code` everything is walked with care.
  Flow(const Config& config, std::span<const Stream> streams, const TextStore& text,
       const DecodeOptions& options, std::shared_ptr<SharedCode> code);
  void decode(const Segment& segment, ChunkSink& sink) override;

 private:
  friend class walk::Gaps<Flow, State>;
  friend class walk::Hypotheses<Flow, FlowTypes>;

  // flow.cpp: the walk
  template <bool Emit>
  Stop walk(State& s, Trial* trial);
  template <bool Emit>
  Stop use_atom(State& s, Variant& v, Trial* trial);
  template <bool Emit>
  Stop place_for_atom(State& s, Trial* trial);
  template <bool Emit>
  void emit(State& s, const Variant& v, uint32_t count, uint8_t flags) {
    Hypotheses::emit<Emit>(s, v, count, flags);
    s.fresh = false;
  }
  void learn(State& s, Variant& v);
  void enter(State& s, Addr ip, uint8_t mode);
  void place_known(State& s) const;
  bool is_unsure(const State& s, const Block& b);
  bool may_have_changed(const State& s);
  void synchronise(State& s) const;
  void synchronise_by_text(State& s) const;
  template <bool Emit>
  bool pop_target(State& s);
  bool guess_target(State& s);  // return_guess.cpp
  Addr call_distance(State& s, Addr back, uint8_t mode);
  const char* no_target(const State& s) const;
  void go_indirect(State& s, Addr ip, uint8_t mode);
  uint64_t position_signature(const State& s) const;
  static uint64_t state_signature(const State& s, uint64_t position);

  // fast.cpp: the walk where nothing is in doubt
  static constexpr uint32_t kFastCodes = 512;
  static constexpr uint32_t kFastRoom = kFastCodes + 32;  // and the atoms of an element
  struct FastWalk;
  struct FastHot;
  template <bool Stack>
  struct FastTaker;
  RunId fast_start(const State& s);
  template <bool Stack>
  void fast_walk(State& s, RunId start);
  bool fast_listed(State& s, Element& next);
  Edge fast_follow(FastWalk& w, Edge edge, uint32_t atom, Time lo);
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
  void pass_time(State& s, const Element& d);
  void on_cycles(const State& s, const Element& d);
  uint8_t mode_of(const State& s, uint8_t isa) const;
  Addr address_of(const State& s, const Element& d) const;

  // hypothesis.cpp: what walk::Hypotheses asks of arm64
  TimeBounds bounds(const State& s);
  TimeBounds text_bounds(const State& s);
  static bool pause_ahead() { return false; }
  static TimeKnown time_known(const State& s) { return {std::max(s.lo, s.anchor_lo), s.synced, s.anchor_hi}; }
  void assume(State& s, const Hypothesis& h) const;
  static bool narrow(const State&, const std::vector<Variant*>&) { return false; }
  Variant* unrecorded_text(State& s, Node& node);
  static void visit(const State&, const Node&) {}

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
  // The last timestamp; what a choice of text proves of the time is none.
  static Time display_time(const State& s) { return s.clockless ? kTimeMin : s.floor; }
  uint64_t offset_in_use(const State& s);
  static void after_gap(const State&) {}
  // Blocks are followed only for an atom, which has run.
  static bool trace_ended(const State&) { return false; }
  void lose_sync(State& s);
  std::string describe(const State& s) const;

  const Config& config_;
  const std::span<const Stream> streams_;
  const Time clock_error_;
  Holes holes_{text_};
  std::optional<BlockCache> caches_[2];  // without and with WFI and WFE as branches
  const std::shared_ptr<SharedCode> code_;
  // Likewise, with and without return stack, of text that is unsure as a whole and not.
  std::unique_ptr<RunCache> run_caches_[8];
  RunCache* runs_ = nullptr;  // of the segment's source; nullptr: none
  std::vector<uint8_t> scratch_;
  std::vector<Time> kprobe_pokes_;  // when text was changed under stop_machine; empty: anchors are not used
  std::optional<ElementParser> elements_;
  LastSync last_sync_;

  // Of the segment being decoded.
  bool return_stack_ = false;
  bool broadcast_ = false;  // TRCCONFIGR.BB: within ranges that are not known
  TimeBounds bounds_;       // of the segment, by the records around its bytes
  PacketFormat format_;
  TimeBounds segment_start_;           // the instant of it, for anchors
  bool has_clock_ = false;             // timestamps are of perf's clock
  std::optional<Time> synced_before_;  // LastSync::before(), once it was asked for
  std::optional<Time> last_event_;     // State::floor at the last exception or exception return
};

}  // namespace asof::arm64
