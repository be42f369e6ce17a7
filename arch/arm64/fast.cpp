// The fast walk: runs of unchanging text (runs.h), atoms and addresses, nothing else. It takes over from the
// careful walk (flow.cpp) where nothing is in doubt, and returns to it before whatever it does not know,
// with the state the careful walk would have there.
//
// Invariants:
//  * It is at the start of a run, or after an indirect branch whose target is not known yet; every run it
//    writes down was decided by the trace.
//  * A packet is used up or not touched; atoms are used one by one.
//  * All atoms of a packet ran after the same timestamp: the time of what is written down changes only
//    between packets.
//  * Kernel and user code are not left for each other, A64 not for another instruction set.
//  * Text here is the same at all times, so time is only kept, not asked for.
//  * A link of a run says all that an atom does there, or says "not known": then nothing was done yet.
//
// What it costs is waiting for one load after the other (the next run's link), and branches that no processor
// foresees: which packet comes, how many atoms it has, whether a run ends in a call or a return. So there is
// one loop over packets (elements_plain.h) with one over atoms in it, both without any other such branch:
// an indirect branch is an edge like any other up to the next atom or address, calls are pushed and returns
// popped by arithmetic. What changes with every packet is in registers (FastHot).
#include <algorithm>
#include <array>
#include <span>

#include "arch/arm64/elements_plain.h"
#include "arch/arm64/flow.h"

namespace asof::arm64 {

// Nothing may keep its address, else it lies in memory: what is rare works on a copy and returns it.
struct Flow::FastHot {
  StepCode* out = nullptr;             // the next
  StepCode* timed = nullptr;           // the first whose time is not written down
  StepList::TimeMark* mark = nullptr;  // the next
  const StepCode* fresh = nullptr;     // == out: see State
  Edge cur = Edge::kReturn;   // kReturn, kIndirect: where the run of the last code leads is not known
  uint64_t newest = 0;        // entry of the return stack
  uint64_t instructions = 0;  // in codes since the room was opened
  uint64_t addresses = 0;     // used
  Time floor = kTimeMin, lo = kTimeMin;  // see State
};

struct Flow::FastWalk {
  Space space = kNoSpace;  // of all runs
  Addr hook = 1;           // no edge leads there
  const TimeConversion* clock = nullptr;
  const RetStack* rets = nullptr;
  Edge* ring = nullptr;  // of the return stack

  StepCode* begun = nullptr;                        // of the room for codes
  StepCode* limit = nullptr;                        // from here on there may be too little of it
  std::array<StepList::TimeMark, kFastRoom> marks;  // of the codes in it
  uint64_t codes = 0;                               // written before that

  // Of a packet that is not used up.
  uint32_t atoms = 0;  // oldest at bit 0
  uint32_t count = 0;
  std::optional<Time> synced_lo;  // `lo` at the last context synchronisation event
};

// The run at s.ip when the fast walk may go on from there, else kNone.
RunId Flow::fast_start(const State& s) {
  if (runs_ == nullptr || options_.cycles || s.position != Position::kKnown || s.mode != kA64 || !s.sf ||
      s.forced != nullptr || gap_ || next_flags_ != 0 || s.transaction || s.patch_return != 0 ||
      s.decisions < confidence_until_ || verified_steps_ != chunk_.steps.size()) {
    return RunId::kNone;
  }
  Space space = kKernelSpace;
  if (!is_kernel_address(s.ip)) space = s.in_user ? s.user_space : only_space();
  if (space == kNoSpace) return RunId::kNone;  // whose address it is has to be asked
  if (space != kKernelSpace && distrusts_any()) return RunId::kNone;
  if ((s.unsure || (s.space_unsure && space != kKernelSpace)) && !fast_is_unsure(space)) return RunId::kNone;
  const RunId run = runs_->at(space, s.ip);
  return run != RunId::kNone && runs_->run(run).end != RunEnd::kStop ? run : RunId::kNone;
}

// Where the run at `edge` leads, when its link does not say so. kUnknown: it is for the careful walk.
Edge Flow::fast_follow(FastWalk& w, Edge edge, uint32_t atom, Time lo) {
  const Edge next = runs_->follow(run_of(edge), atom);
  if (next != Edge::kUnknown || atom == 0) return next;
  const FlowRun& run = runs_->run(run_of(edge));
  if (run.end == RunEnd::kSync) {
    const RunId next_run = runs_->at(w.space, run.end_ip());
    if (next_run == RunId::kNone) return Edge::kUnknown;
    w.synced_lo = lo;
    return edge_to(next_run);
  }
  if (run.end != RunEnd::kExceptionReturn) return Edge::kUnknown;
  w.synced_lo = lo;
  return Edge::kIndirect;
}

// The newest entry of the return stack gets its run. False: there is none.
bool Flow::fast_return(const FastWalk& w, uint64_t newest) {
  Edge& top = w.ring[newest % RetStack::kRing];
  if (!return_stack_ || top != Edge::kAddressOnly) return false;
  if (w.rets->is_before_gap(newest)) return false;
  if (!w.rets->is_sure(newest) && !fast_is_unsure(w.space)) return false;
  const RunId back = runs_->back_at(w.space, w.rets->entry(newest));
  if (back == RunId::kNone) return false;
  top = edge_to(back);
  return true;
}

// Room for codes.
void Flow::fast_open(FastWalk& w, FastHot& hot) {
  w.begun = hot.out = hot.timed = chunk_.steps.open_runs(runs_->table(), kFastRoom);
  w.limit = w.begun + kFastCodes;
  hot.mark = w.marks.data();
}

// What was written since the last time is of this one.
[[gnu::always_inline]] inline void Flow::fast_time(const FastWalk& w, FastHot& hot) {
  if (hot.out == hot.timed) return;
  *hot.mark++ = {static_cast<uint32_t>(hot.timed - w.begun), w.clock == nullptr ? kTimeMin : hot.floor};
  hot.timed = hot.out;
}

// The codes written go to the chunk.
void Flow::fast_close(FastWalk& w, FastHot& hot) {
  fast_time(w, hot);
  chunk_.steps.time_runs(kFastRoom, std::span<const StepList::TimeMark>(w.marks.data(), hot.mark));
  const auto written = static_cast<size_t>(hot.out - w.begun);
  chunk_.steps.close_runs(kFastRoom, written, hot.instructions);
  w.codes += written;
  hot.instructions = 0;
  hot.fresh = hot.fresh == hot.out ? w.begun : nullptr;
  hot.out = w.begun;
}

// What the fast walk makes of packets. What it does not take is for the careful walk.
template <bool Stack>
struct Flow::FastTaker {
  using Take = ElementParser::Take;
  Flow& flow;
  State& s;
  FastWalk& w;
  const Link* const links;
  FastHot hot;

  // The run that the next atom is for. False: the trace has not decided it yet.
  [[gnu::always_inline]] bool arrive() {
    if constexpr (Stack) {
      const bool back = needs_target(hot.cur);
      const Edge top = w.ring[hot.newest % RetStack::kRing];
      hot.cur = back ? top : hot.cur;
      hot.newest -= back ? 1 : 0;
      if (leads_to_run(hot.cur)) [[likely]]
        return true;
      hot.cur = Edge::kReturn;
      ++hot.newest;
      if (!flow.fast_return(w, hot.newest)) return false;
      hot.cur = w.ring[hot.newest-- % RetStack::kRing];
    }
    return leads_to_run(hot.cur);
  }
  // What waits for one load after the other: the link's address is close to `cur`. The place above the newest
  // entry of the return stack is written whether there is a call or not, and the one that then falls out
  // ends.
  [[gnu::always_inline]] Take atoms(uint32_t value, uint32_t count) {
    if (!arrive()) [[unlikely]]
      return Take::kRefuse;
    hot.lo = hot.floor;
    for (;;) {
      const Link& link = link_of(links, hot.cur);
      const uint32_t atom = value & 1;
      Edge next = link.next[atom].load(std::memory_order_acquire);
      if (next == Edge::kUnknown) [[unlikely]] {
        next = flow.fast_follow(w, hot.cur, atom, hot.lo);
        if (next == Edge::kUnknown) break;
      }
      *hot.out++ = step_code(hot.cur, atom);
      hot.instructions += link.instructions.load(std::memory_order_relaxed);
      if constexpr (Stack) {
        const Edge push = link.push.load(std::memory_order_relaxed);
        w.ring[(hot.newest + 1) % RetStack::kRing] = push;
        hot.newest += push != Edge::kNone ? 1 : 0;
        w.ring[(hot.newest - RetStack::kSize) % RetStack::kRing] = Edge::kNone;
      }
      hot.cur = next;
      value >>= 1;
      if (--count == 0) return hot.out < w.limit ? Take::kOn : more_room();
      if (!arrive()) [[unlikely]]
        break;
    }
    w.atoms = value;
    w.count = count;
    return Take::kStop;
  }
  [[gnu::always_inline]] Take more_room() {
    FastHot copy = hot;
    flow.fast_close(w, copy);
    const bool full = flow.chunk_.steps.size() >= flow.options_.chunk_steps;
    flow.fast_open(w, copy);
    hot = copy;
    hot.fresh = nullptr;
    return full ? Take::kStop : Take::kOn;
  }
  // Where the run at hand goes.
  [[gnu::always_inline]] Take address(Addr to, uint8_t, uint32_t) {
    if (leads_to_run(hot.cur) || is_kernel_address(to) != (w.space == kKernelSpace) || to == w.hook)
      return Take::kRefuse;
    const RunId next = flow.runs_->at(w.space, to);
    if (next == RunId::kNone) return Take::kRefuse;
    hot.cur = edge_to(next);
    hot.fresh = hot.out;
    hot.lo = hot.floor;
    ++hot.addresses;
    return Take::kOn;
  }
  [[gnu::always_inline]] void time(uint64_t counter, uint32_t number) {
    s.times_seen = number + 1;
    if (w.clock == nullptr) return;
    const Time t = w.clock->to_perf(counter);
    if (t <= hot.floor) return;
    flow.fast_time(w, hot);
    hot.floor = t;
  }
};

// The next element, of those that are not to be had without the parser's list. False: it is for the careful
// walk.
bool Flow::fast_listed(State& s, Element& next) {
  for (; elements_->has(s.e); ++s.e) {
    next = (*elements_)[s.e];
    const bool no_effect = next.kind == El::kCycles || next.kind == El::kNone ||
                           (next.kind == El::kContext && next.value == s.context);
    if (!no_effect) return next.kind == El::kAtoms || next.kind == El::kAddress || next.kind == El::kTime;
  }
  return false;
}

template <bool Stack>
void Flow::fast_walk(State& s, RunId start) {
  using Take = ElementParser::Take;
  FastWalk w;
  w.space = runs_->run(start).space;
  if (runs_->map().rules().hook != 0) w.hook = runs_->map().rules().hook;
  w.clock = has_clock_ ? &*config_.time : nullptr;
  w.rets = &s.rets;
  w.ring = s.rets.borrow(runs_->map(), w.space);
  FastHot hot;
  hot.cur = edge_to(start);
  hot.newest = s.rets.newest();
  hot.floor = s.floor;
  hot.lo = s.lo;
  fast_open(w, hot);
  hot.fresh = s.fresh ? hot.out : nullptr;
  FastTaker<Stack> taker{*this, s, w, runs_->links(), hot};

  Take taken = Take::kOn;
  Element next;
  next.kind = El::kNone;
  if (s.atom_count != 0) {  // of the element before s.e
    next.kind = El::kAtoms;
    next.value = s.atoms;
    next.count = s.atom_count;
    --s.e;
  }
  for (;;) {
    if (next.kind == El::kAtoms)
      taken = taker.atoms(static_cast<uint32_t>(next.value), next.count);
    else if (next.kind == El::kAddress)
      taken = taker.address(next.value, next.isa, next.offset);
    else if (next.kind == El::kTime)
      taker.time(next.value, next.time);
    if (taken == Take::kRefuse) break;
    if (next.kind != El::kNone) ++s.e;
    if (taken == Take::kStop) break;
    elements_->drop_before(s.e);
    const ElementParser::Passed passed = elements_->pass_plain(taker);
    s.e += passed.elements;
    if (passed.last == Take::kStop && w.count != 0) elements_->keep_atoms(passed.offset);
    if (passed.last != Take::kOn || !fast_listed(s, next)) break;
  }
  hot = taker.hot;
  fast_close(w, hot);
  fast_end(s, w, hot);
}

// The careful walk's state where the fast walk is.
void Flow::fast_end(State& s, const FastWalk& w, const FastHot& hot) {
  s.rets.restore(hot.newest);
  s.atoms = w.atoms;
  s.atom_count = static_cast<uint8_t>(w.count);
  s.lo = hot.lo;
  s.floor = hot.floor;
  const uint64_t used = w.codes + hot.addresses;
  if (used == 0) return;
  s.fresh = hot.fresh == hot.out;
  s.in_user = w.space != kKernelSpace;
  if (s.in_user) s.user_space = w.space;
  if (fast_is_unsure(w.space)) {
    // As place_known() does: in front of each address something ran.
    if (hot.addresses != 0 && unsure_ != walk::Unsure::kAlways) {
      s.rets.doubt();
      s.calls_missing = true;
      stop_counting(s);
    }
    s.unsure = unsure_ == walk::Unsure::kAlways || !s.fresh;
  } else if (w.synced_lo) {
    s.synced = std::max(*w.synced_lo == kTimeMin ? bounds_.lo : *w.synced_lo, s.anchor_lo);
  }
  s.node = nullptr;
  s.branch = nullptr;
  if (leads_to_run(hot.cur)) {
    s.ip = runs_->run(run_of(hot.cur)).ip;
  } else {
    const FlowRun& run = runs_->run(run_of(chunk_.steps.codes().back()));
    s.branch = cache_->node(w.space, run.last().ip, kA64)->only;
    s.position = Position::kTarget;
    s.ip = run.end_ip();
  }
  s.decisions += used;
  s.idle_blocks = 0;
  verified_steps_ = chunk_.steps.size();
}

template void Flow::fast_walk<false>(State&, RunId);
template void Flow::fast_walk<true>(State&, RunId);

}  // namespace asof::arm64
