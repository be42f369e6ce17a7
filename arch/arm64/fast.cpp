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
#include <utility>

#include "arch/arm64/flow.h"

namespace asof::arm64 {

struct Flow::FastWalk {
  const Link* links = nullptr;
  uint32_t atoms = 0;  // left, oldest at bit 0
  uint32_t count = 0;
  uint32_t cur = 0;           // way
  bool pending = false;       // the indirect branch at the end of `cur` was taken
  bool fresh = false;         // see State
  uint32_t* out = nullptr;    // codes
  uint64_t instructions = 0;  // in them
  uint32_t* ring = nullptr;   // of the return stack
  uint64_t newest = 0;        // entry of ring
  uint64_t used = 0;          // atoms and addresses
  Space space = kNoSpace;     // of all runs
  const RetStack* rets = nullptr;
  Time lo = kTimeMin;         // see State
  bool synced = false;        // a context synchronisation event,
  Time synced_lo = kTimeMin;  // the last one at this `lo`

  uint32_t run() const { return run_of(cur); }
  const Link& link() const { return link_of(links, cur); }
  uint32_t& top() const { return ring[newest % RetStack::kRing]; }
  void push(uint32_t way) {
    ++newest;
    top() = way;
    ring[(newest - RetStack::kSize) % RetStack::kRing] = 0;
  }
  void take(uint32_t atom) {
    *out++ = cur | atom;
    instructions += link().instructions.load(std::memory_order_relaxed);
    atoms >>= 1;
    --count;
    fresh = false;
  }
  void synchronise() {
    synced = true;
    synced_lo = lo;
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
// pushed; those that fell out of it meanwhile are ended afterwards. The last atom takes nothing off the
// stack: an address may follow. False: the next atom needs more than links know.
bool Flow::fast_atoms(FastWalk& w) {
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
      if (next != kReturn || count == 1) break;
      next = ring[newest % RetStack::kRing];
      if (next < kFirstWay) break;
      --newest;
    }
    *out++ = cur | atom;
    instructions += link.instructions.load(std::memory_order_relaxed);
    const uint32_t push = link.push.load(std::memory_order_relaxed);
    ring[(newest + 1) % RetStack::kRing] = push;
    newest += push != 0;
    peak = std::max(peak, newest);
    atoms >>= 1;
    cur = next;
  }
  for (uint64_t i = newest; i <= peak; ++i) ring[(i - RetStack::kSize) % RetStack::kRing] = 0;
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
  switch (run.end) {
    case RunEnd::kDirect:
    case RunEnd::kWait:
      return runs_->follow(w.run(), atom);
    case RunEnd::kSync: {
      const uint32_t next = atom != 0 ? runs_->at(w.space, run.end_ip) : 0;
      if (next == 0) return false;
      w.take(1);
      w.cur = way_to(next);
      w.synchronise();
      return true;
    }
    case RunEnd::kIndirect: {
      if (atom == 0) return false;
      if (w.count > 1) {  // where the return stack says, which has no run for it yet
        return w.link().next[1].load(std::memory_order_relaxed) == kReturn && w.top() == kAddressOnly &&
               fast_return(w);
      }
      if (run.link && return_stack_) {
        const uint32_t back = runs_->way_back(w.run());
        if (back == 0) return false;
        w.push(back);
      }
      w.take(1);
      if (run.exception_return) w.synchronise();
      w.pending = true;
      return true;
    }
    case RunEnd::kStop:
      break;
  }
  return false;
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
bool Flow::fast_address(const Element& d, FastWalk& w) {
  if (!w.pending || is_kernel_address(d.value) != (w.space == kKernelSpace)) return false;
  if (d.value == runs_->map().rules().hook && d.value != 0) return false;
  const uint32_t next = runs_->at(w.space, d.value);
  if (next == 0) return false;
  w.cur = way_to(next);
  w.pending = false;
  w.fresh = true;
  ++w.used;
  return true;
}

void Flow::fast_walk(State& s, uint32_t start) {
  StepList& steps = chunk_.steps;
  constexpr size_t kRoom = kFastCodes + 64;
  FastWalk w;
  w.links = runs_->links();
  w.cur = way_to(start);
  w.space = runs_->run(start).space;
  w.ring = s.rets.lend(runs_->map(), w.space);
  w.newest = s.rets.newest();
  w.rets = &s.rets;
  w.atoms = s.atoms;
  w.count = w.used = s.atom_count;
  w.fresh = s.fresh;
  w.lo = s.lo;
  uint32_t* begun = w.out = steps.open_runs(runs_->table(), kRoom);
  size_t timed = 0;  // codes whose time is written down
  const auto write_times = [&] {
    const auto written = static_cast<size_t>(w.out - begun);
    if (written > timed) steps.time_runs(kRoom, timed, s.floor);
    timed = written;
  };
  const auto write_out = [&] {
    write_times();
    steps.close_runs(kRoom, std::exchange(timed, 0), std::exchange(w.instructions, 0));
  };

  for (std::span<const Element> list = elements_->at_hand(s.e);;) {
    while (w.count != 0 && !fast_atoms(w)) {
      if (!fast_atom(w)) goto leave;
    }
    if (static_cast<size_t>(w.out - begun) >= kFastCodes) {
      write_out();
      begun = w.out = steps.open_runs(runs_->table(), kRoom);
      if (steps.size() - kRoom >= options_.chunk_steps) goto leave;
    }
    for (bool more = true; more;) {  // elements up to the next atoms
      if (list.empty()) {
        elements_->drop_before(s.e);
        list = elements_->at_hand(s.e);
        if (list.empty()) goto leave;
      }
      const Element& d = list.front();
      switch (d.kind) {
        case El::kAtoms:
          if (w.pending) {
            if (!fast_return(w)) goto leave;
            w.cur = w.top();
            --w.newest;
            w.pending = false;
          }
          w.atoms = static_cast<uint32_t>(d.value);
          w.count = d.count;
          w.used += d.count;
          w.lo = s.floor;
          more = false;
          break;
        case El::kAddress:
          if (!fast_address(d, w)) goto leave;
          w.lo = s.floor;
          break;
        case El::kTime:
          write_times();
          pass_time(s, d);
          break;
        case El::kContext:
          if (d.value != s.context) goto leave;
          break;
        case El::kCycles:
        case El::kNone:
          break;
        default:
          goto leave;
      }
      list = list.subspan(1);
      ++s.e;
    }
  }
leave:
  write_out();
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
  if (w.synced) {
    const Time lo = w.synced_lo == kTimeMin ? bounds_.lo : w.synced_lo;
    s.synced = std::max(lo, s.anchor_lo);
  }
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

}  // namespace asof::arm64
