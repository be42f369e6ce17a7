// Flow: follows one segment's packets through the text and gives the executed blocks.
//
// Invariants of the walk:
//  * A bound event (FUP) is met before the text at its address is asked for: an INT3 window needs no bytes.
//  * last-IP is kept through every gap; the flow resumes at the first packet with a complete IP.
//  * Visits to hooked nodes (the kernel's own patching code) are counted: see anchors.h.
//  * walk<false> (a hypothesis) works on a copy of the state and emits nothing.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "arch/arch.h"
#include "arch/holes.h"
#include "arch/walk/hypothesis.h"
#include "arch/x86/anchors.h"
#include "arch/x86/block_cache.h"
#include "arch/x86/errata.h"
#include "arch/x86/packet_fetcher.h"
#include "arch/x86/path_cache.h"
#include "arch/x86/runs.h"
#include "arch/x86/state.h"
#include "arch/x86/sync_group.h"

namespace asof::x86 {

// Branches that take their target from a TIP.
bool needs_target(BranchKind k);

// A version of the text that may be the one; or a rule of the return stack.
struct Hypothesis : walk::Hypothesis<Variant> {
  Returns::Policy returns = Returns::Policy::kUnknown;
  bool is_of_text() const { return returns == Returns::Policy::kUnknown; }
};

// This time is over.
struct TimeKnown {
  Time lo = kTimeMin;
  bool knows_no_less_than(const TimeKnown& o) const { return lo >= o.lo; }
};

struct FlowTypes {
  using State = x86::State;
  using Isa = x86::Isa;
  using TimeKnown = x86::TimeKnown;
  using Hypothesis = x86::Hypothesis;
};

class Flow final : public SegmentDecoder, private walk::Hypotheses<Flow, FlowTypes> {
 public:
  // What all decoders of these streams with these options share: `code`, and `unsure_code` for the time from
  // TextStore::unsure_from() on; nullptr: there is no such time.
  Flow(const Config& config, std::span<const Stream> streams, const TextStore& text,
       const DecodeOptions& options, std::shared_ptr<CodeMap> code, std::shared_ptr<CodeMap> unsure_code);
  void decode(const Segment& segment, ChunkSink& sink) override;

 private:
  friend class walk::Gaps<Flow, State>;
  friend class walk::Hypotheses<Flow, FlowTypes>;

  // guest.cpp: VMX non-root operation
  void enter_guest(State& s, uint64_t at);
  void guest_walk(State& s);
  void doubt_guest(State& s);
  void doubt();
  bool guest_in_segment();

  // fast.cpp
  static constexpr uint32_t kFastCodes = 1024;
  static constexpr size_t kFastRoom = kFastCodes + 80;  // a stretch stops after all bits at hand or a path
  void start_fast();
  bool ends_cleanly(const uint8_t* p);
  RunId fast_start(const State& s);
  void fast_walk(State& s, RunId run);
  struct FastWalk;
  RetStack recent_returns_;  // of the fast walk while two stacks are kept
  bool fast_stretch(State& s, FastWalk& w);
  bool fast_bit(FastWalk& w);
  bool fast_uncompressed(FastWalk& w, const FlowRun& run);
  bool fast_tip(FastWalk& w);
  void fast_time(State& s, FastWalk& w, const Packet& k);

  // fast_paths.cpp
  struct PathWalk;
  struct Ahead;
  PathCache paths_;
  PathWindow window_;
  bool met_mtc_ = false;                // that says nothing
  const RunCache* paths_of_ = nullptr;  // whose runs they are of
  template <bool kSums, bool kReturns>
  bool over_paths(State& s, FastWalk& w);
  void prefetch_path(const FastWalk& walk);
  bool leave_by_tip(FastWalk& w, RunId known, Addr ip);
  template <bool kSums>
  bool new_path(FastWalk& w, PathPackets packets, CachedPath& path);

  // walk.cpp
  template <bool Emit>
  Stop walk(State& s, Trial* trial);
  template <bool Emit>
  std::optional<Stop> happens_here(State& s, Trial* trial);
  template <bool Emit>
  Stop step(State& s, Trial* trial);
  void overflow(State& s);
  bool is_bogus_stop(const State& s);
  void link_successor(State& s, Variant& v);

  // flow.cpp: where packets say where the flow is; branch.cpp: how blocks end
  void note_missing_start(State& s);
  template <bool Emit>
  bool without_flow(State& s);
  template <bool Emit>
  bool arrive(State& s);
  template <bool Emit>
  void change_mode(State& s, const PendingPacket& d, Addr ip);
  template <bool Emit>
  Stop branch(State& s, Variant& v, Trial* trial);
  template <bool Emit>
  Stop take_target(State& s, Variant& v, Trial* trial);
  template <bool Emit>
  Stop out_of_trace(State& s, Variant& v);
  // pgd_without_ip.cpp
  template <bool Emit>
  Stop stopped_somewhere(State& s, Variant& v, Trial* trial);
  bool restart_ip(const State& s, Addr& ip) const;
  bool cut_at_restart(State& s, const Variant& v);
  bool may_leave_range(const State& s, const Block& b) const;
  bool leaves_range(const State& s, const Block& b);
  template <bool Emit>
  void stop_tracing(State& s, Variant* v);
  bool cut_at_bound(const State& s, const Block& b, uint32_t& count) const;
  bool leaves_filter(const State& s, const Block& b) const;
  void enter(State& s, Addr ip);
  void call(State& s, Addr return_to) const {
    if (!config_.no_ret_compression) s.rets.push(return_to);
  }
  void place_known(State& s) const;

  // signature.cpp
  uint64_t position_signature(const State& s) const;
  static uint64_t state_signature(const State& s, uint64_t position);

  // hypothesis.cpp: what walk::Hypotheses asks of x86
  TimeBounds bounds(const State& s);
  TimeBounds text_bounds(const State& s) { return bounds(s); }
  Time ceiling(const State& s);
  bool pause_ahead() const { return ceiling_pause_; }
  static TimeKnown time_known(const State& s) { return {std::max({s.lo, s.visits.lo, s.visits.poked_lo})}; }
  void assume(State& s, const Hypothesis& h) const;
  bool narrow(const State& s, std::vector<Variant*>& known) const;
  void keep_life(const State& s, std::vector<Variant*>& known) const;
  static void drop_poked(const State& s, std::vector<Variant*>& known);
  static Variant* unrecorded_text(const State&, const Node&) { return nullptr; }
  void visit(State& s, const Node& node) {
    if (node.hooked) [[unlikely]]
      count_visit(s, node);
  }
  void count_visit(State& s, const Node& node);
  template <bool Emit>
  bool settle_return(State& s, Variant& v, Trial* trial, Stop& why);

  // unsure.cpp
  void choose_code(const State& s);
  bool is_unsure(const State& s, const Block& b);
  bool may_have_changed(const State& s);

  // lost.cpp: the walk where nothing is known
  struct LostWalk;
  void lost_walk(State& s);

  // gaps.cpp
  static Time display_time(const State& s) { return s.now; }
  uint64_t offset_in_use(const State& s) const { return static_cast<uint64_t>(s.p - begin_); }
  void after_gap(State& s);
  static bool trace_ended(const State& s) {
    return s.tnt_count == 0 && (s.pending.kind == Pending::Kind::kEos || s.pending.half);
  }
  void lose_sync(State& s);
  void lose_without_tnt(State& s, uint64_t at);
  std::string describe(const State& s) const;

  const Config& config_;
  const Errata errata_;
  Anchors anchors_;
  PacketFetcher packets_;
  const std::span<const Stream> streams_;
  Holes holes_{text_};
  BlockCache blocks_;
  std::array<std::optional<RunCache>, 2> run_caches_;  // by CodeMap::unsure()
  RunCache* runs_ = nullptr;  // of the segment's time; nullptr: everything is walked with care
  std::vector<uint8_t> scratch_;

  // Of the segment being decoded.
  const uint8_t* begin_ = nullptr;     // of its bytes
  const uint8_t* end_ = nullptr;       // with the next sync group
  const uint8_t* tail_ = nullptr;      // the next PSB, or end_
  const uint8_t* fast_end_ = nullptr;  // up to here packets are read without a look at where they end
  bool tail_checked_ = false;          // ends_cleanly() was asked
  bool overwritten_ = false;           // somewhere in it trace of an earlier time begins
  // ceiling(): the timing packet found by the last scan serves every position up to it.
  const uint8_t* ceiling_from_ = nullptr;
  const uint8_t* ceiling_to_ = nullptr;
  Time ceiling_ = kTimeMax;
  bool ceiling_pause_ = false;  // tracing stops before it
  std::optional<bool> guest_in_segment_;
};

}  // namespace asof::x86
