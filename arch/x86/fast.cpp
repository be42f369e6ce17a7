// The fast walk: runs of unchanging text (runs.h), TNT bits and TIPs, nothing else. It takes over
// from the careful walk (flow.cpp) where nothing is in doubt, and returns to it before whatever it does not
// know, with the state the careful walk would have there. Most of it goes along memoised paths
// (fast_paths.cpp).
//
// Invariants:
//  * It is at the start of a run, and every run it writes down was decided by the trace.
//  * TNT bits of several packets are used together only where no timing packet lies between them. Those left
//    over in the end are of one packet, and by its place it is known after which time they ran.
//  * Kernel and user code are not left for each other.
//  * Text here is the same at all times, so time is only kept, not asked for.
//  * A packet is used up or not touched.
//  * A link of a run says all that a decision does there, or says "not known": then nothing was done yet.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "arch/x86/fast_walk.h"

namespace asof::x86 {

// Damage in front of a PSB may look like the beginning of a packet that reaches into it. So near the segment's end it is
// looked once whether its packets end there.
void Flow::start_fast() {
  constexpr std::ptrdiff_t kNear = 64;
  fast_end_ = tail_ == end_ ? end_ : tail_ - std::min(tail_ - begin_, kNear);
  tail_checked_ = false;
  window_.forget();
}

// From `p`, where a packet begins, which is near the segment's end.
bool Flow::ends_cleanly(const uint8_t* p) {
  if (std::exchange(tail_checked_, true)) return p < fast_end_;
  uint8_t block_bytes = 0;
  while (p < tail_) {
    if (block_bytes == 0) {  // most of them
      Tip tip;
      if (is_short_tnt(*p) || *p == 0) {
        ++p;
        continue;
      }
      if (tip.read(p, tail_, 0)) {
        p += tip.size;
        continue;
      }
    }
    const Packet k = packets_.next(p, block_bytes);
    if (k.type == Pk::kBad || k.type == Pk::kEnd) return false;
    block_bytes = next_block_bytes(k, block_bytes);
    p += k.size;
  }
  fast_end_ = end_;
  return true;
}

// The run at s.ip when the fast walk may go on from there, else kNone.
RunId Flow::fast_start(const State& s) {
  if (runs_ == nullptr || s.node == nullptr || s.node->state != TextState::kStable || !s.enabled || s.lost ||
      s.pending.kind != Pending::Kind::kNone || s.forced != nullptr || gap_ || next_flags_ != 0 ||
      s.transaction || s.block_bytes != 0 || s.decisions < confidence_until_ || s.visits.poke_return != 0 ||
      (s.unsure && unsure_ != walk::Unsure::kAlways) ||
      ((s.space_unsure || distrusts_any()) && s.node->space != kKernelSpace) ||
      verified_steps_ != chunk_.steps.size() ||
      (s.node->space != kKernelSpace && s.node->space != s.user_space) ||
      (s.p >= fast_end_ && !ends_cleanly(s.p))) {
    return RunId::kNone;
  }
  RunId& run = s.node->runs[runs_->map().unsure() ? 1 : 0];
  if (run == RunId::kNone) run = runs_->at(s.node->space, s.ip, s.mode);
  return run != RunId::kNone && runs_->run(run).end != RunEnd::kStop ? run : RunId::kNone;
}

// Packets of which no bit was used are as good as not read: the careful walk says where a gap begins by the
// packet in use.
void Flow::FastWalk::give_back() {
  while (tnt.count != 0 && p != joined) {
    const auto bits = static_cast<uint32_t>(std::bit_width(p[-1])) - 2;
    if (tnt.count < bits) return;
    tnt.count -= bits;
    --p;
  }
}

// Over the bits at hand and the paths that follow. False: the next bit needs more than links know.
bool Flow::fast_stretch(State& s, FastWalk& w) {
  if (w.tnt.count != 0) {
    w.tidy_stack();
    if (!w.walk_bits<false>()) return false;
  }
  if (s.clock_moved || w.full() || !w.path_fits(fast_end_)) return true;
  if (runs_->map().returns_are_compressed())
    return w.hashes == nullptr ? over_paths<false, true>(s, w) : over_paths<true, true>(s, w);
  return w.hashes == nullptr ? over_paths<false, false>(s, w) : over_paths<true, false>(s, w);
}

// The next bit, for which fast_stretch stopped. False: it is for the careful walk.
bool Flow::fast_bit(FastWalk& w) {
  RunCache& runs = *runs_;
  const auto bit = static_cast<uint32_t>(w.tnt.bits >> 63);
  const FlowRun& run = runs.run(w.run());
  if (run.end != RunEnd::kRet || bit == 0 || run.call_count != 0) return runs.follow(w.run(), bit);
  w.tidy_stack();
  // A return to an address, or nowhere.
  Edge& top = w.stack[w.newest];
  if (top != Edge::kAddressOnly) return leads_to_run(top);
  const Addr to = w.rets->address(w.newest);
  if (is_kernel_address(to) != (run.space == kKernelSpace)) return false;
  const RunId return_to = runs.at(run.space, to, run.mode);
  if (return_to == RunId::kNone) return false;
  top = edge_to(return_to);
  return true;
}

// May a return with a TIP be taken here, as one that goes elsewhere than to its call (Returns)? Without a call
// at hand it is like an indirect jump. Of the stack nothing is changed yet.
bool Flow::fast_uncompressed(FastWalk& w, const FlowRun& run) {
  const bool none = run.call_count == 0 && w.stack[w.newest] == Edge::kNone;
  if (none && w.hidden) return w.keeps_entries;
  if (none || run.call_count == 0) return none || w.keeps_entries || w.takes_entries;
  // A retpoline: the last call of this run is what the return does not go to.
  return w.takes_entries && runs_->follow(w.run(), kTakenBit);
}

// The TIP that is next, which says where the current run goes. False: it is for the careful walk.
bool Flow::fast_tip(FastWalk& w) {
  Tip tip;
  if (!tip.read(w.p, end_, w.last_ip) || is_kernel_address(tip.ip) != (w.space == kKernelSpace)) return false;
  const FlowRun& run = runs_->run(w.run());
  w.tidy_stack();
  const bool returns = run.end == RunEnd::kRet;
  if (returns ? !fast_uncompressed(w, run) : !runs_->follow_indirect(w.run())) return false;
  const RunId next = runs_->target(w.space, tip.ip, w.mode);
  if (next == RunId::kNone) return false;
  if (returns && run.call_count == 0 && w.takes_entries && w.stack[w.newest] != Edge::kNone) --w.newest;
  if (returns)
    w.leave_by_uncompressed(edge_to(next));
  else
    w.leave_by_tip(edge_to(next));
  w.last_ip = tip.ip;
  w.p += tip.size;
  return true;
}

// A timing packet that was read.
void Flow::fast_time(State& s, FastWalk& w, const Packet& k) {
  if (!s.clock.update(k)) return;
  s.clock_moved = true;
  w.write_times(chunk_.steps, s.now);
  s.now = s.clock.now();
  w.silent_mtc = !s.clock.knows_mtc();
}

void Flow::fast_walk(State& s, RunId start) {
  StepList& steps = chunk_.steps;
  FastWalk w;
  w.links = runs_->links();
  w.multi_call_edges = runs_->multi_call_edges();
  w.p = w.joined = w.lo_until = s.p;
  w.lo = s.lo;
  w.last_ip = s.last_ip;
  w.cur = edge_to(start);
  w.space = s.node->space;
  w.mode = s.mode;
  w.silent_mtc = !s.clock.knows_mtc();
  w.rets = &s.rets.open(recent_returns_);
  w.hidden = s.rets.hides();
  w.takes_entries = s.rets.policy() == Returns::Policy::kTake;
  w.keeps_entries = s.rets.policy() == Returns::Policy::kKeep;
  w.stack = w.rets->borrow(runs_->map(), w.space, s.mode);
  w.first = w.newest = w.most = w.rets->newest();
  w.tnt.count = s.tnt_count;
  if (w.tnt.count != 0) w.tnt.bits = s.tnt << (64 - w.tnt.count);
  w.out = w.begun = steps.open_runs(runs_->table(), kFastRoom);
  w.summed = w.out;
  if (options_.sum_runs) w.hashes = paths_.hashes();
  w.sums = runs_->sums();
  const Confidence confidence = runs_->map().unsure() ? Confidence::kAmbiguous : Confidence::kCertain;
  uint64_t used = 0;  // TNT bits and TIPs: there is a code for each
  const auto write_out = [&] {
    w.write_times(steps, s.now);
    used += w.timed;
    const uint64_t instructions = std::exchange(w.instructions, 0);
    if (w.hashes != nullptr) {
      w.sum_up();
      w.sum.instructions = instructions;
    }
    const size_t written = std::exchange(w.timed, 0);
    steps.close_runs(kFastRoom, written, instructions);
    if (w.hashes != nullptr && written != 0) steps.add_sum(written, std::exchange(w.sum, {}), confidence);
  };

  for (;;) {
    while (!fast_stretch(s, w)) {
      if (!fast_bit(w)) goto leave;
    }
    if (w.full()) {
      write_out();
      w.out = w.begun = steps.open_runs(runs_->table(), kFastRoom);
      w.summed = w.out;
      if (steps.size() - kFastRoom >= options_.chunk_steps) goto leave;
    }
    // Asked here, before no path fits any more, the walk need not be left for it.
    if (fast_end_ - w.p <= PathPackets::kTwo) ends_cleanly(w.p);
    for (;;) {  // the next packet
      if (w.p >= fast_end_) goto leave;
      const uint8_t b = *w.p;
      if (is_short_tnt(b)) {
        w.take_time(s, w.p + 1);
        if (w.path_fits(fast_end_)) break;
        w.p = w.tnt.add(w.p);
        w.joined = w.p;
        break;
      }
      if (b == 0) {
        w.p = skip_pads(w.p, end_);
        continue;
      }
      if (is_tip(b)) {
        if (!fast_tip(w)) goto leave;
        w.take_time(s, w.p);
        break;
      }
      const Packet k = read_packet(w.p, end_);
      if (k.type == Pk::kTnt) {
        w.tnt.count = k.ipc;
        w.tnt.bits = k.value << (64 - k.ipc);
        w.p += k.size;
        w.joined = w.p;
        w.take_time(s, w.p);
        break;
      }
      if (k.type != Pk::kTsc && k.type != Pk::kTma && k.type != Pk::kMtc &&
          (k.type != Pk::kCyc || errata_.skd007)) {
        goto leave;
      }
      w.p += k.size;
      if (w.path_fits(fast_end_)) prefetch_path(w);  // while the clock is worked out
      fast_time(s, w, k);
    }
  }
leave:
  write_out();
  w.give_back();
  w.rets->end_below(w.most);
  w.rets->restore(w.newest);
  s.rets.close(recent_returns_, w.most - w.first);
  s.p = w.p;
  s.lo = s.p <= w.lo_until ? w.lo : s.floor;
  s.last_ip = w.last_ip;
  s.tnt_count = w.tnt.count;
  s.tnt = w.tnt.count == 0 ? 0 : w.tnt.bits >> (64 - w.tnt.count);
  if (used == 0) return;
  const FlowRun& at = runs_->run(w.run());
  s.ip = at.ip;
  s.node = cache_->node(at.space, s.ip, s.mode);
  s.in_user = at.space != kKernelSpace;
  s.decisions += used;
  s.idle_blocks = 0;
  verified_steps_ = steps.size();
}

}  // namespace asof::x86
