// The fast walk: runs of unchanging text (runs.h), atoms and addresses, nothing else. It takes over from the
// careful walk (flow.cpp) where nothing is in doubt, and gives back in front of whatever it does not know,
// with the state the careful walk would have there.
//
// Invariants:
//  * It stands at the start of a run, or behind an indirect branch whose target is not told yet (`pending`);
//    every run it writes down was decided by the trace.
//  * An element is used up or not touched; atoms are used one by one.
//  * All atoms of an element ran after the same timestamp: the time of what is written down changes only
//    between elements.
//  * Kernel and user code are not left for each other, A64 not for another instruction set.
//  * Text here is the same at all times, so time is only kept, not asked for.
//  * A link of a run says all that an atom does there, or says "not known": then nothing was done yet.
#include <algorithm>
#include <array>

#include "arch/arm64/elements_plain.h"
#include "arch/arm64/flow.h"

namespace asof::arm64 {

struct Flow::FastWalk {
  const Link* links = nullptr;
  uint32_t atoms = 0;  // left, oldest at bit 0
  uint32_t count = 0;
  uint32_t cur = 0;           // way
  bool pending = false;       // the indirect branch at the end of `cur` was taken
  bool fresh = false;         // see State
  Space space = kNoSpace;     // of all runs
  uint32_t* ring = nullptr;   // of the return stack
  uint64_t newest = 0;        // entry of ring
  uint64_t used = 0;          // atoms and addresses
  uint64_t instructions = 0;  // in `codes`
  const RetStack* rets = nullptr;
  Time lo = kTimeMin;             // see State
  std::optional<Time> synced_lo;  // `lo` at the last context synchronisation event

  uint32_t atoms_at = 0;  // offset of their packet

  // What is to be written down: codes, and times from one of them on.
  static constexpr size_t kRoom = kFastCodes + 32;
  struct Mark {
    uint32_t from;
    Time time;
  };
  uint32_t* out = codes.data();
  uint32_t timed = 0;  // codes whose time is known
  size_t mark_count = 0;
  std::array<uint32_t, kRoom> codes;
  std::array<Mark, kRoom> marks;

  uint32_t run() const { return run_of(cur); }
  const Link& link() const { return link_of(links, cur); }
  uint32_t& top() const { return ring[newest % RetStack::kRing]; }
  uint32_t written() const { return static_cast<uint32_t>(out - codes.data()); }
  void take(uint32_t atom) {
    *out++ = cur | atom;
    instructions += link().instructions.load(std::memory_order_relaxed);
    atoms >>= 1;
    --count;
    fresh = false;
  }
  // What was written since the last mark is of this time.
  void mark(Time time) {
    if (written() == timed) return;
    marks[mark_count++] = {timed, time};
    timed = written();
  }
  void write_out(StepList& steps, const RunTable& table, Time now) {
    mark(now);
    const uint32_t n = written();
    std::copy_n(codes.data(), n, steps.open_runs(table, n));
    for (size_t i = 0; i < mark_count; ++i) steps.time_runs(n, marks[i].from, marks[i].time);
    steps.close_runs(n, n, instructions);
    out = codes.data();
    instructions = mark_count = timed = 0;
  }
};

// The run at s.ip when the fast walk may go on from there, else 0.
uint32_t Flow::fast_start(const State& s) {
  if (runs_ == nullptr || s.place != Place::kKnown || s.mode != kA64 || !s.sf || s.forced != nullptr ||
      gap_ || next_flags_ != 0 || s.transaction || s.patch_return != 0 || s.decisions < confidence_until_ ||
      verified_steps_ != chunk_.steps.size()) {
    return 0;
  }
  const bool kernel = is_kernel_address(s.ip);
  if (!kernel && !s.in_user) return 0;  // whose address it is has to be asked
  const uint32_t run = runs_->at(kernel ? kKernelSpace : s.user_space, s.ip);
  return run != 0 && runs_->run(run).end != RunEnd::kStop ? run : 0;
}

// Over the atoms at hand, run by run. What comes next waits for one load after the other, so its address is
// close to `cur`; and calls, which no processor can predict here, are pushed without a branch: the place
// above the newest entry is written whether there is one or not. As many entries as the stack has may be
// pushed; those that fell out of it meanwhile are ended afterwards. Behind the last atom an address may
// follow, so an indirect branch leads nowhere yet. False: the next atom needs more than links know.
template <bool Stack>
[[gnu::always_inline]] inline bool Flow::fast_atoms(FastWalk& w) {
  static_assert(RetStack::kSize >= 32 && RetStack::kRing > 3 * RetStack::kSize);
  const Link* const links = w.links;
  uint32_t* const ring = w.ring;
  uint32_t* out = w.out;
  uint64_t newest = w.newest;
  uint64_t peak = newest;
  uint32_t atoms = w.atoms;
  uint32_t count = w.count;
  uint32_t cur = w.cur;
  uint32_t instructions = 0;
  for (; count != 0; --count) {
    const uint32_t atom = atoms & 1;
    const Link& link = link_of(links, cur);
    uint32_t next = link.next[atom].load(std::memory_order_acquire);
    if (next < kFirstWay) {
      if (next > kIndirect) break;
      if (count == 1) {
        w.pending = true;
        next = cur;
      } else {
        if (!Stack || next != kReturn) break;
        next = ring[newest % RetStack::kRing];
        if (next < kFirstWay) break;
        --newest;
      }
    }
    *out++ = cur | atom;
    instructions += link.instructions.load(std::memory_order_relaxed);
    if constexpr (Stack) {
      const uint32_t push = link.push.load(std::memory_order_relaxed);
      ring[(newest + 1) % RetStack::kRing] = push;
      newest += push != 0;
      peak = std::max(peak, newest);
    }
    atoms >>= 1;
    cur = next;
  }
  if constexpr (Stack) {
    for (uint64_t i = newest; i <= peak; ++i) ring[(i - RetStack::kSize) % RetStack::kRing] = 0;
  }
  w.fresh = w.fresh && out == w.out;
  w.out = out;
  w.instructions += instructions;
  w.newest = newest;
  w.atoms = atoms;
  w.count = count;
  w.cur = cur;
  return count == 0;
}

// The next atom, for which fast_atoms stopped. False: it is for the careful walk.
bool Flow::fast_atom(FastWalk& w) {
  const uint32_t atom = w.atoms & 1;
  const FlowRun& run = runs_->run(w.run());
  if (run.end == RunEnd::kSync && atom != 0) {
    const uint32_t next = runs_->at(w.space, run.end_ip);
    if (next == 0) return false;
    w.take(1);
    w.cur = way_to(next);
    w.synced_lo = w.lo;
    return true;
  }
  if (run.end != RunEnd::kIndirect || atom == 0 || (run.link && w.count == 1))
    return runs_->follow(w.run(), atom);
  if (w.count > 1) {  // where the return stack says, which has no run for it yet
    return w.link().next[1].load(std::memory_order_relaxed) == kReturn && w.top() == kAddressOnly &&
           fast_return(w);
  }
  if (!run.exception_return) return false;
  w.take(1);
  w.synced_lo = w.lo;
  w.pending = true;
  return true;
}

// The newest entry of the return stack gets its run. False: there is none.
bool Flow::fast_return(FastWalk& w) {
  if (w.top() >= kFirstWay) return true;
  if (!return_stack_ || w.top() != kAddressOnly) return false;
  const uint32_t back = runs_->back_at(w.space, w.rets->entry(w.newest));
  if (back == 0) return false;
  w.top() = way_to(back);
  return true;
}

// An address, which tells where the current run goes. False: it is for the careful walk.
inline bool Flow::fast_address(Addr to, FastWalk& w) {
  if (!w.pending || is_kernel_address(to) != (w.space == kKernelSpace)) return false;
  if (to == runs_->map().rules().hook && to != 0) return false;
  const uint32_t next = runs_->at(w.space, to);
  if (next == 0) return false;
  w.cur = way_to(next);
  w.pending = false;
  w.fresh = true;
  ++w.used;
  return true;
}

// What the fast walk makes of packets. What it does not take is for the careful walk.
template <bool Stack>
struct Flow::FastTaker {
  using Take = ElementParser::Take;
  Flow& flow;
  State& s;
  FastWalk& w;

  Take atoms(uint32_t value, uint32_t count, uint32_t offset) {
    if (w.pending) {
      if (!Stack || !flow.fast_return(w)) return Take::kRefuse;
      w.cur = w.top();
      --w.newest;
      w.pending = false;
    }
    w.atoms = value;
    w.count = count;
    w.used += count;
    w.atoms_at = offset;
    w.lo = s.floor;
    return use_atoms() ? Take::kOn : Take::kStop;
  }
  // False: they are not used up, or there is enough to give away.
  bool use_atoms() {
    while (w.count != 0 && !fast_atoms<Stack>(w)) {
      if (!flow.fast_atom(w)) return false;
    }
    if (w.written() < kFastCodes) return true;
    w.write_out(flow.chunk_.steps, flow.runs_->table(), s.floor);
    return flow.chunk_.steps.size() < flow.options_.chunk_steps;
  }
  Take address(Addr to, uint8_t) {
    if (!flow.fast_address(to, w)) return Take::kRefuse;
    w.lo = s.floor;
    return Take::kOn;
  }
  void time(uint64_t counter, uint32_t number) {
    s.times_seen = number + 1;
    if (!flow.has_clock_) return;
    const Time t = flow.to_time(counter);
    if (t <= s.floor) return;
    w.mark(s.floor);
    s.floor = t;
  }
};

// The next element, of those that are not to be had without the parser's list. False: it is for the careful
// walk.
template <bool Stack>
bool Flow::fast_listed(FastTaker<Stack>& taker) {
  State& s = taker.s;
  if (!elements_->has(s.e)) return false;
  const Element e = (*elements_)[s.e];
  ElementParser::Take taken = ElementParser::Take::kOn;
  switch (e.kind) {
    case El::kAtoms:
      taken = taker.atoms(static_cast<uint32_t>(e.value), e.count, e.offset);
      break;
    case El::kAddress:
      taken = taker.address(e.value, e.isa);
      break;
    case El::kTime:
      taker.time(e.value, e.time);
      break;
    case El::kContext:
      if (e.value != s.context) return false;
      break;
    case El::kCycles:
    case El::kNone:
      break;
    default:
      return false;
  }
  if (taken == ElementParser::Take::kRefuse) return false;
  ++s.e;
  if (taken == ElementParser::Take::kStop) return false;
  elements_->drop_before(s.e);
  return true;
}

template <bool Stack>
void Flow::fast_walk(State& s, uint32_t start) {
  FastWalk w;
  w.links = runs_->links();
  w.cur = way_to(start);
  w.space = runs_->run(start).space;
  w.ring = s.rets.lend(runs_->map(), w.space);
  w.newest = s.rets.newest();
  w.rets = &s.rets;
  w.used = w.count = s.atom_count;
  w.atoms = s.atoms;
  w.fresh = s.fresh;
  w.lo = s.lo;
  FastTaker<Stack> taker{*this, s, w};
  if (w.count == 0) elements_->drop_before(s.e);
  for (bool on = taker.use_atoms(); on;) {
    const ElementParser::Passed passed = elements_->pass_plain(taker);
    s.e += passed.elements;
    if (passed.last == ElementParser::Take::kStop && w.count != 0) elements_->keep_atoms(w.atoms_at);
    on = passed.last == ElementParser::Take::kOn && fast_listed(taker);
  }
  w.write_out(chunk_.steps, runs_->table(), s.floor);
  fast_end(s, w);
}

// The careful walk's state where the fast walk stands.
void Flow::fast_end(State& s, const FastWalk& w) {
  s.rets.take_back(w.newest);
  s.atoms = w.atoms;
  s.atom_count = static_cast<uint8_t>(w.count);
  s.lo = w.lo;
  const uint64_t used = w.used - w.count;
  if (used == 0) return;
  const FlowRun& run = runs_->run(w.run());
  s.fresh = w.fresh;
  s.in_user = w.space != kKernelSpace;
  if (w.synced_lo) s.synced = std::max(*w.synced_lo == kTimeMin ? bounds_.lo : *w.synced_lo, s.anchor_lo);
  s.node = nullptr;
  s.branch = nullptr;
  s.ip = run.ip;
  if (w.pending) {
    const Block& last = *run.blocks[runs_->table()[w.run()].size - 1U];
    const Node* const node = cache_->node(w.space, last.ip, kA64);
    s.branch = node->only;
    s.place = Place::kTarget;
    s.ip = run.end_ip;
  }
  s.decisions += used;
  s.idle_blocks = 0;
  verified_steps_ = chunk_.steps.size();
}

template void Flow::fast_walk<false>(State&, uint32_t);
template void Flow::fast_walk<true>(State&, uint32_t);

}  // namespace asof::arm64
