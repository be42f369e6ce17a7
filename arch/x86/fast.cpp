// The fast walk: runs of unchanging text (runs.h), TNT bits and TIPs, nothing else. It takes over
// from the careful walk (flow.cpp) where nothing is in doubt, and gives back in front of whatever it does not
// know, with the state the careful walk would have there.
//
// Invariants:
//  * It stands at the start of a run, and every run it writes down was decided by the trace.
//  * TNT bits of several packets are used together only where no time lies between the packets: the bits at
//    hand all ran after `lo` and before the next packet.
//  * Kernel and user code are not left for each other.
//  * Text here is the same at all times, so time is only kept, not asked for.
//  * A packet is used up or not touched.
//  * A link of a run says all that a decision does there, or says "not known": then nothing was done yet.
#include <array>
#include <bit>
#include <utility>

#include "arch/x86/flow.h"

namespace asof::x86 {
// Of a byte that is a short TNT packet: how many bits, and those, the next one the highest of eight. Else 0.
struct ShortTnt {
  uint8_t bits = 0;
  uint8_t count = 0;
};
constexpr auto kShortTnt = [] {
  std::array<ShortTnt, 256> all{};
  for (unsigned b = 0; b < all.size(); ++b) {
    if (!is_short_tnt(static_cast<uint8_t>(b))) continue;
    const auto stop = static_cast<unsigned>(std::bit_width(b)) - 1;
    all[b] = {static_cast<uint8_t>(b << (8 - stop)), static_cast<uint8_t>(stop - 1)};
  }
  return all;
}();

// TNT bits at hand: the next one is the highest.
struct Bits {
  uint64_t bits = 0;
  uint32_t count = 0;

  // Where there are none: those of the short TNT packets at p, of up to eight. How many there are no
  // processor foresees: seven full ones and the one behind them take no branch.
  const uint8_t* take_short(const uint8_t* p, const uint8_t* end) {
    bits = 0;
    count = 0;
    if (end - p <= 8) [[unlikely]]
      return add_short(p, end);
    const uint64_t packets = load_le(p, 8);
    constexpr uint64_t kSeven = uint64_t{1} << 56;
    const uint64_t other = ((packets & 0x0081818181818181U) ^ 0x0080808080808080U) | kSeven;
    const unsigned full = static_cast<unsigned>(__builtin_ctzll(other)) / 8;
    const ShortTnt last = kShortTnt[p[full]];
    bits = (six_each(packets) & ~(~uint64_t{0} >> 6 * full)) | uint64_t{last.bits} << 56 >> 6 * full;
    count = 6 * full + last.count;
    return p + full + (last.count != 0);
  }
  // Behind those at hand.
  const uint8_t* add_short(const uint8_t* p, const uint8_t* end) {
    while (count <= 64 - 6 && p < end && is_short_tnt(*p)) p = add_one(p);
    return p;
  }
  const uint8_t* add_one(const uint8_t* p) {
    const ShortTnt tnt = kShortTnt[*p];
    bits |= uint64_t{tnt.bits} << 56 >> count;
    count += tnt.count;
    return p + 1;
  }

 private:
  // The bits of eight full packets, the first in the lowest byte.
  static uint64_t six_each(uint64_t packets) {
    uint64_t b = __builtin_bswap64(packets) >> 1;
    b = (b & 0x003f003f003f003fU) | (b & 0x3f003f003f003f00U) >> 2;
    b = (b & 0x00000fff00000fffU) | (b & 0x0fff00000fff0000U) >> 4;
    return (b & 0x0000000000ffffffU) << 16 | (b & 0x00ffffff00000000U) << 8;
  }
};

struct Flow::FastWalk {
  const std::byte* links = nullptr;
  const uint32_t* several = nullptr;
  const uint8_t* p = nullptr;  // next packet
  const uint8_t* joined =
      nullptr;  // from here to p are short TNT packets, the last of those with bits at hand
  Addr last_ip = 0;
  Bits tnt;
  uint32_t cur = 0;           // way to the run
  uint32_t* out = nullptr;    // codes
  uint64_t instructions = 0;  // in them
  RetStack* rets = nullptr;
  uint32_t* stack = nullptr;  // places of rets
  uint32_t newest = 0;        // of them
  uint32_t most = 0;          // that `newest` was
  uint32_t first = 0;         // `newest`, in the beginning
  bool hidden = false;        // below the stack's oldest entry are others
  uint8_t mode = 64;          // of all runs
  Space space = kNoSpace;     // of all runs

  uint32_t run() const { return run_of(cur); }
  const Link& link() const { return Links::at(links, cur); }
  void tidy_stack();
  void give_back();
  bool walk_bits();
  bool leave_by_tip(uint32_t to);
  void leave(uint32_t to);
};

// The run at s.ip when the fast walk may go on from there, else 0.
uint32_t Flow::fast_start(const State& s) {
  if (!runs_ || s.node == nullptr || s.node->state != TextState::kStable || !s.enabled || s.lost ||
      s.pending.kind != Pending::Kind::kNone || s.forced != nullptr || gap_ || next_flags_ != 0 ||
      s.transaction || s.block_bytes != 0 || s.decisions < confidence_until_ || s.poke_return != 0 ||
      verified_steps_ != chunk_.steps.size() ||
      (s.node->space != kKernelSpace && s.node->space != s.user_space)) {
    return 0;
  }
  if (s.node->run == 0) s.node->run = runs_->at(s.node->space, s.ip, s.mode);
  return s.node->run != 0 && runs_->run(s.node->run).end != RunEnd::kStop ? s.node->run : 0;
}

// Ends the entries that have fallen out of the return stack, and sees to room above it.
[[gnu::always_inline]] inline void Flow::FastWalk::tidy_stack() {
  rets->end_below(most);
  const uint32_t moved = rets->make_places(newest);
  most -= moved;
  first -= moved;
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

// Over the bits at hand, run by run. What comes next waits for one load after the other, so a way is all of
// its address; and calls, which no processor can predict here, are pushed without a branch: the place above
// the newest entry is written whether there is one or not. Entries that fall out of the stack meanwhile are
// not met: behind a push there are at most 63 bits to return with.
// False: the next bit needs more than links know.
[[gnu::always_inline]] inline bool Flow::FastWalk::walk_bits() {
  static_assert(RetStack::kSize >= 64 && RetStack::kAbove >= 96 + 2 * 31 + 64);
  tidy_stack();
  uint64_t above = newest + 1;        // the newest entry
  uint64_t peak = above;              // of `above`, up to the last return
  const uint64_t room = newest + 96;  // runs with several calls push before this one only
  uint64_t bits = tnt.bits;
  uint64_t sum = 0;
  auto left = -static_cast<int64_t>(tnt.count);
  uint32_t* const end = out - left;
  for (; left != 0; ++left) {
    const uint64_t bit = bits >> 63;
    const std::byte* ways = links + sizeof(uint32_t) * bit;
    asm("" : "+r"(ways));  // not part of the chain of loads: to be added by the load itself
    uint32_t next = Links::next_at(ways, cur).load(std::memory_order_acquire);
    if (next < kFirstWay) [[unlikely]] {
      if (next == kReturn) {
        next = stack[above - 1];
        if (next < kFirstWay) break;
        peak = std::max(peak, above--);
      } else {
        const uint32_t* const calls = several + next;
        if (next < kFirstSeveral || above >= room || SeveralCalls::next(calls) == kIndirect) break;
        for (const uint32_t way : SeveralCalls::ways(calls)) stack[above++] = way;
        next = SeveralCalls::next(calls);
      }
    }
    end[left] = cur | static_cast<uint32_t>(bit);
    const uint64_t behind = link().left.load(std::memory_order_relaxed);
    stack[above] = Link::push(behind);
    above += Link::push(behind) != 0;
    sum += behind;
    bits <<= 1;
    cur = next;
  }
  peak = std::max(peak, above);
  most = std::max(most, static_cast<uint32_t>(peak - 1));
  out = end + left;
  instructions += Link::instructions(sum);
  newest = static_cast<uint32_t>(above - 1);
  tnt.bits = bits;
  tnt.count = static_cast<uint32_t>(-left);
  return left == 0;
}

// Out of the current run to `to`, a way, with what its link says to push.
[[gnu::always_inline]] inline void Flow::FastWalk::leave(uint32_t to) {
  *out++ = cur | StepList::kTakenBit;
  const uint64_t behind = link().left.load(std::memory_order_relaxed);
  instructions += Link::instructions(behind);
  stack[newest + 1] = Link::push(behind);
  newest += Link::push(behind) != 0;
  most = std::max(most, newest);
  cur = to;
}

// The same where a TIP says so. False: the current run is not known to end in an indirect branch.
[[gnu::always_inline]] inline bool Flow::FastWalk::leave_by_tip(uint32_t to) {
  const uint32_t next = link().next[0].load(std::memory_order_acquire);
  if (next != kIndirect) [[unlikely]] {
    if (next < kFirstSeveral || next >= kFirstWay || SeveralCalls::next(several + next) != kIndirect)
      return false;
    for (const uint32_t way : SeveralCalls::ways(several + next)) stack[++newest] = way;
  }
  leave(to);
  return true;
}

// Over the bits at hand and, if nothing else lies between (`join`), over the TNT and TIP packets that follow,
// up to one that it does not know. Where a TIP leads is looked up in front of the bits before it: then it is
// there when they are used up. False: the next bit needs more than links know.
bool Flow::fast_stretch(FastWalk& walk, bool join, const uint32_t* full) {
  FastWalk w = walk;  // nobody else looks at it meanwhile: registers
  bool all = true;
  for (bool more = true; more;) {
    more = false;
    Tip tip;
    uint32_t target = 0;
    const bool none = w.tnt.count == 0;
    if (none) w.joined = w.p;
    if (join) {
      w.p = none ? w.tnt.take_short(w.p, end_) : w.tnt.add_short(w.p, end_);
      if (tip.read(w.p, end_, w.last_ip)) target = runs_->known_target(w.space, tip.ip, w.mode);
    }
    all = w.walk_bits();
    if (!all || w.out >= full) break;
    if (target != 0) {
      if (!w.leave_by_tip(way_to(target))) break;
      w.last_ip = tip.ip;
      w.p += tip.size;
      more = true;
    } else if (join) {
      more = w.p < end_ && is_short_tnt(*w.p);
    }
  }
  walk = w;
  return all;
}

// The next bit, for which fast_stretch stopped. False: it is for the careful walk.
bool Flow::fast_bit(FastWalk& w) {
  RunCache& runs = *runs_;
  const auto bit = static_cast<uint32_t>(w.tnt.bits >> 63);
  const FlowRun& run = runs.run(w.run());
  if (run.end != RunEnd::kRet || bit == 0 || run.call_count != 0) return runs.follow(w.run(), bit);
  w.tidy_stack();
  // A return to an address, or nowhere.
  uint32_t& top = w.stack[w.newest];
  if (top != kAddressOnly) return top >= kFirstWay;
  const Addr to = w.rets->address(w.newest);
  if (is_kernel_address(to) != (run.space == kKernelSpace)) return false;
  const uint32_t behind = runs.at(run.space, to, run.mode);
  if (behind == 0) return false;
  top = way_to(behind);
  return true;
}

// The TIP that is next, which tells where the current run goes. False: it is for the careful walk.
bool Flow::fast_tip(FastWalk& w) {
  Tip tip;
  if (!tip.read(w.p, end_, w.last_ip) || is_kernel_address(tip.ip) != (w.space == kKernelSpace)) return false;
  const FlowRun& run = runs_->run(w.run());
  w.tidy_stack();
  // A return without a call at hand says where it goes, like an indirect jump.
  const bool returns = run.end == RunEnd::kRet && run.call_count == 0 && w.stack[w.newest] == 0 && !w.hidden;
  if (!returns && !runs_->follow_indirect(w.run())) return false;
  const uint32_t next = runs_->target(w.space, tip.ip, w.mode);
  if (next == 0) return false;
  if (returns)
    w.leave(way_to(next));
  else
    w.leave_by_tip(way_to(next));
  w.last_ip = tip.ip;
  w.p += tip.size;
  return true;
}

void Flow::fast_walk(State& s, uint32_t start) {
  StepList& steps = chunk_.steps;
  constexpr size_t kRoom = kFastCodes + 80;  // a stretch stops behind a full turn of bits and a TIP
  FastWalk w;
  w.links = runs_->links();
  w.several = runs_->several();
  w.p = w.joined = s.p;
  w.last_ip = s.last_ip;
  w.cur = way_to(start);
  w.space = s.node->space;
  w.mode = s.mode;
  w.rets = &s.rets.open(recent_returns_);
  w.hidden = s.rets.split();
  w.stack = w.rets->lend(runs_->map(), w.space, s.mode);
  w.first = w.newest = w.most = w.rets->newest();
  w.tnt.count = s.tnt_count;
  if (w.tnt.count != 0) w.tnt.bits = s.tnt << (64 - w.tnt.count);
  uint32_t* begun = w.out = steps.open_runs(runs_->table(), kRoom);
  size_t timed = 0;   // codes whose time is written down
  uint64_t used = 0;  // TNT bits and TIPs: there is a code for each
  const auto write_times = [&] {
    const auto written = static_cast<size_t>(w.out - begun);
    if (written > timed) steps.time_runs(kRoom, timed, s.now);
    timed = written;
  };
  const auto write_out = [&] {
    write_times();
    used += timed;
    steps.close_runs(kRoom, std::exchange(timed, 0), std::exchange(w.instructions, 0));
  };
  const auto go_on_writing = [&] { begun = w.out = steps.open_runs(runs_->table(), kRoom); };

  bool join = s.lo == s.floor && !s.clock_moved;  // what the next packet says is of the same time

  for (;;) {
    while (!fast_stretch(w, join, begun + kFastCodes)) {
      if (!fast_bit(w)) goto leave;
    }
    if (static_cast<size_t>(w.out - begun) >= kFastCodes) {
      write_out();
      go_on_writing();
      if (steps.size() - kRoom >= options_.chunk_steps) goto leave;
    }
    for (;;) {  // the next packet
      if (w.p >= end_) goto leave;
      const uint8_t b = *w.p;
      if (is_short_tnt(b)) [[likely]] {
        w.p = w.tnt.add_one(w.p);
        w.joined = w.p;
        break;
      }
      if (b == 0) {
        ++w.p;
        continue;
      }
      if (is_tip(b)) {
        if (!fast_tip(w)) goto leave;
        break;
      }
      const Packet k = read_packet(w.p, end_);
      if (k.type == Pk::kTnt) {
        w.tnt.count = k.ipc;
        w.tnt.bits = k.value << (64 - k.ipc);
        w.p += k.size;
        w.joined = w.p;
        break;
      }
      if (k.type != Pk::kTsc && k.type != Pk::kTma && k.type != Pk::kMtc &&
          (k.type != Pk::kCyc || errata_.skd007)) {
        goto leave;
      }
      w.p += k.size;
      s.clock_moved = true;
      if (s.clock.update(k)) {
        write_times();
        s.now = s.clock.now();
      }
    }
    s.lo = s.floor;
    if (s.clock_moved) {
      s.floor = s.clock.floor();
      s.clock_moved = false;
    }
    join = s.lo == s.floor;
  }
leave:
  write_out();
  w.give_back();
  w.rets->end_below(w.most);
  w.rets->take_back(w.newest);
  s.rets.close(recent_returns_, w.most - w.first);
  s.p = w.p;
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
