// Flow: follows one segment's packets through the text and gives the executed blocks.
//
// Invariants of the walk:
//  * All TNT bits of a packet are used before the next packet is looked at (`fetch`), so the flow always
//  knows what the
//    trace says next while it walks on without trace.
//  * A bound event (FUP) is met before the text at its address is asked for: an INT3 window needs no bytes.
//  * last-IP is kept through every gap; the flow resumes at the first packet with a complete IP.
//  * Visits to hooked nodes (the kernel's own patching code) are noted on the way: see anchors.cpp.
//  * walk<false> (a hypothesis) works on a copy of the state and emits nothing.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "arch/arch.h"
#include "arch/holes.h"
#include "arch/walk/gaps.h"
#include "arch/x86/block_cache.h"
#include "arch/x86/errata.h"
#include "arch/x86/runs.h"
#include "arch/x86/state.h"
#include "arch/x86/turns.h"

namespace asof::x86 {

// What a PSB+ says (sync.cpp).
struct SyncGroup {
  bool has_ip = false;    // tracing is on, at ip
  bool overflow = false;  // it ended in an OVF
  Addr ip = 0;
  uint8_t mode = 64;
  bool transaction = false;
  uint64_t cr3 = 0;
  bool non_root = false;  // of the PIP
  bool guest = false;     // another machine's than the text, as far as a PIP tells
  bool has_cr3 = false;
  bool bad = false;  // damaged: `size` bytes were good
  size_t size = 0;   // bytes up to and with PSBEND (or up to the OVF)
  Clock clock;
};
// Reads the PSB+ at bytes[0].
SyncGroup read_sync_group(std::span<const uint8_t> bytes, const Clock& clock, const Errata& errata);

// Branches that take their target from a TIP.
bool needs_target(BranchKind k);

class Flow final : public SegmentDecoder, private walk::Gaps<Flow, State> {
 public:
  // What all decoders of these streams with these options share: `code`, and `unsure_code` for the time from
  // TextStore::unsure_from() on; nullptr: there is no such time.
  Flow(const Config& config, std::span<const Stream> streams, const TextStore& text,
       const DecodeOptions& options, std::shared_ptr<CodeMap> code, std::shared_ptr<CodeMap> unsure_code);
  // Addresses whose visits are counted in this text.
  static std::vector<Addr> hooks(const Config& config, const TextStore& text, const DecodeOptions& options);
  void decode(const Segment& segment, ChunkSink& sink) override;

 private:
  friend class walk::Gaps<Flow, State>;
  // Why a walk, or a step of one, stopped. kGo: it did not. kSegmentEnd: the segment's end was reached as it
  // should be; kOut: nothing more can be said (end of the stretch, damage); the others concern hypotheses.
  enum class Stop : uint8_t { kGo, kSegmentEnd, kOut, kHorizon, kMerged, kNoText, kContradiction };
  // A version of the text that may be the one, and when it can have begun to be; or a rule of the return
  // stack.
  struct Hypothesis {
    Variant* variant = nullptr;
    Time from = kTimeMin;
    Returns::Policy returns = Returns::Policy::kUnknown;
  };
  // A hypothesis being followed.
  struct Trial {
    uint64_t start = 0;                            // decision count at the fork
    uint64_t until = 0;                            // decision count to stop at
    uint64_t end = 0;                              // out: where it stopped
    std::vector<uint64_t> record;                  // signature at each decision since the fork
    std::vector<uint64_t> states;                  // and future()
    std::vector<Time> reached;                     // and the time that was certain to be over there
    std::vector<uint64_t> ways;                    // and the addresses that ran since the fork, as a number
    uint64_t way = 0;                              // the same, up to now
    const std::vector<uint64_t>* other = nullptr;  // of the first survivor: equal means joined
    uint32_t depth = 0;                            // of nested choices
    void pass(const State& s, const Block& b, uint32_t count);
    bool unsure =
        false;  // it went over text that may have changed unseen: a contradiction behind is no proof
    size_t unsure_at = SIZE_MAX;  // the size of `record` when it did first
    bool open = false;            // a candidate of a nested choice was ruled out by no more than that
    // Decision count at the first nested choice of which not every candidate was tried: what holds behind it
    // holds of one way only.
    uint64_t untried = UINT64_MAX;
  };

  // fetch.cpp: from packets to the next TNT bits or Pending.
  template <bool Emit>
  void fetch(State& s);
  template <bool Emit>
  bool fetch_one(State& s, const Packet& k, uint64_t offset);
  template <bool Emit>
  bool fetch_fup(State& s, const Packet& k, uint64_t offset);
  template <bool Emit>
  void fetch_async_end(State& s);
  template <bool Emit>
  bool on_timing(State& s, const Packet& k);
  template <bool Emit>
  bool side_packet(State& s, const Packet& k, uint64_t offset);
  template <bool Emit>
  void fetch_sync(State& s, uint64_t offset);
  Packet next_packet(const uint8_t* p, uint8_t block_bytes) const;
  void resolve_overflow(State& s);
  bool fup_is_bogus(const State& s, const uint8_t* after_fup) const;
  bool skip_after_overflow(State& s);

  // guest.cpp: VMX non-root operation
  void enter_guest(State& s, uint64_t at);
  void guest_walk(State& s);
  void doubt_guest(State& s);
  void doubt();
  bool guest_in_segment();

  // fast.cpp
  static constexpr uint32_t kFastCodes = 1024;
  uint32_t fast_start(const State& s);
  void fast_walk(State& s, uint32_t run);
  struct FastWalk;
  RetStack recent_returns_;  // of the fast walk while two stacks are kept
  bool fast_stretch(State& s, FastWalk& w);
  bool fast_bit(FastWalk& w);
  bool fast_tip(FastWalk& w);
  void fast_time(State& s, FastWalk& w, const Packet& k);

  // fast_turns.cpp
  struct TurnWalk;
  TurnTable turns_;
  const RunCache* turns_of_ = nullptr;  // whose runs they are of
  bool over_turns(State& s, FastWalk& w);
  void ask_for_turn(const FastWalk& walk);
  bool new_turn(FastWalk& w, TurnPackets packets, Turn& turn);

  // flow.cpp: the walk; branch.cpp: how blocks end
  template <bool Emit>
  Stop walk(State& s, Trial* trial);
  template <bool Emit>
  bool without_flow(State& s);
  template <bool Emit>
  bool arrive(State& s);
  template <bool Emit>
  Stop branch(State& s, Variant& v, Trial* trial);
  template <bool Emit>
  Stop take_target(State& s, Variant& v, Trial* trial);
  template <bool Emit>
  Stop stopped_somewhere(State& s, Variant& v, Trial* trial);
  bool restart_ip(const State& s, Addr& ip) const;
  bool cut_at_restart(State& s, const Variant& v);
  template <bool Emit>
  void stop_tracing(State& s, Variant* v);
  template <bool Emit>
  void emit(State& s, const Variant& v, uint32_t count, uint8_t flags);
  bool cut_at_bound(const State& s, const Block& b, uint32_t& count) const;
  bool leaves_filter(const State& s, const Block& b) const;
  void enter(State& s, Addr ip);
  void place_known(State& s) const;
  Stop used(State& s, Trial* trial, uint64_t count = 1);
  uint64_t signature(const State& s) const;
  static uint64_t future(const State& s, uint64_t signature);

  // hypothesis.cpp
  static constexpr uint32_t kTrialBlocks = 1 << 16;
  static constexpr uint32_t kMaxDepth = 200;  // nested choices: each is a stack frame with a State
  template <bool Emit>
  Variant* text_at(State& s, Node& node, Trial* trial, Stop& why);
  TimeBounds bounds(const State& s);
  void choose_code(const State& s);
  bool is_unsure(const State& s, const Block& b);
  bool may_have_changed(const State& s, Addr at);
  Time ceiling(const State& s);
  template <bool Emit>
  const Hypothesis* choose(State& s, const std::vector<Hypothesis>& hypotheses, bool unknown, Trial* trial,
                           Stop& why);
  void choose_nested(const State& s, const std::vector<Hypothesis>& hypotheses, bool unknown, Trial& trial,
                     Stop& why);
  template <bool Emit>
  bool settle_return(State& s, Variant& v, Trial* trial, Stop& why);
  std::vector<Hypothesis> group(std::vector<Variant*>& known, TimeBounds b) const;
  void assume(State& s, const Hypothesis& h) const;
  void keep_life(const State& s, std::vector<Variant*>& known) const;
  static void drop_poked(const State& s, std::vector<Variant*>& known);
  std::vector<Space> spaces_in(TimeBounds b) const;
  template <bool Emit>
  Variant* text_of_spaces(State& s, Trial* trial, Stop& why);

  // anchors.cpp
  void visit(State& s, const Node& node);
  void enter_poke(State& s);
  void leave_poke(State& s);
  void visit_sync(State& s);
  bool lost_between(Time after, Time before, std::optional<uint32_t> ring) const;
  const std::vector<Time>& ring_times(uint32_t ring);

  // lost.cpp: the walk where nothing is known
  struct LostWalk;
  void lost_walk(State& s);

  // gaps.cpp
  static Time display_time(const State& s) { return s.now; }
  uint64_t offset_in_use(const State& s) const { return static_cast<uint64_t>(s.p - begin_); }
  void after_gap(State& s);
  void lose_sync(State& s);
  void lose_without_tnt(State& s, uint64_t at);
  void report_bound_events(const State& s);
  std::string describe(const State& s) const;

  const Config& config_;
  const Errata errata_;
  const std::span<const Stream> streams_;
  const DecodeOptions options_;
  const TextStore& text_;
  Holes holes_{text_};
  std::optional<BlockCache> cache_;
  std::array<std::optional<RunCache>, 2> run_caches_;  // by CodeMap::unsure()
  RunCache* runs_ = nullptr;  // of the segment's time; nullptr: everything is walked with care
  // Of the segment: does TextStore::unsure_from() come after it, in it, or before?
  enum class Unsure : uint8_t { kNever, kLater, kAlways } unsure_ = Unsure::kNever;
  walk::Candidates<Isa> candidates_;
  std::vector<uint8_t> scratch_;

  // Of the segment being decoded.
  const Stream* stream_ = nullptr;
  const uint8_t* begin_ = nullptr;  // of its bytes
  const uint8_t* end_ = nullptr;    // with the next sync group
  const uint8_t* tail_ = nullptr;   // the next PSB, or end_
  bool overwritten_ = false;        // somewhere in it trace of an earlier time begins
  size_t wrmsr_steps_ = 0;          // steps up to the last WRMSR
  uint32_t forks_left_ = 0;
  uint32_t trial_blocks_left_ = 0;         // all hypotheses of one choice together may walk this many blocks
  tsl::robin_map<uint64_t, Time> failed_;  // states (future()) that lead nowhere, from this time on
  bool failed_unsure_ = false;             // one of them because of text that may have changed unseen
  // ceiling(): the timing packet found by the last scan serves every position up to it.
  const uint8_t* ceiling_from_ = nullptr;
  const uint8_t* ceiling_to_ = nullptr;
  Time ceiling_ = kTimeMax;
  bool ceiling_pause_ = false;  // tracing stops before it
  std::optional<bool> guest_in_segment_;
  Time anchor_start_ = kTimeMin;  // of the sync point; kTimeMin: not known
  // Anchors: times of each ring's TEXT_POKE records.
  tsl::robin_map<uint32_t, std::vector<Time>> ring_times_;
};

// One executed block, or its first `count` instructions.
template <bool Emit>
inline void Flow::emit(State& s, const Variant& v, uint32_t count, uint8_t flags) {
  if constexpr (Emit) {
    Step step;
    step.block = &v.block;
    step.time = s.now;
    step.count = count;
    step.flags = static_cast<uint8_t>(flags | next_flags_ | (s.transaction ? Step::kTransaction : 0));
    step.confidence = s.decisions < confidence_until_ ? confidence_ : Confidence::kCertain;
    if (s.unsure) step.confidence = std::max(step.confidence, Confidence::kAmbiguous);
    next_flags_ = 0;
    chunk_.steps.push_back(step);
  }
}

template <>
const Flow::Hypothesis* Flow::choose<true>(State&, const std::vector<Hypothesis>&, bool, Trial*, Stop&);
template <>
const Flow::Hypothesis* Flow::choose<false>(State&, const std::vector<Hypothesis>&, bool, Trial*, Stop&);

}  // namespace asof::x86
