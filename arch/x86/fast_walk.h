// What the two halves of the fast walk share: fast.cpp goes over the packets, fast_paths.cpp over memoised
// paths (path_cache.h). Private to them.
#pragma once
#include <algorithm>
#include <array>
#include <bit>

#include "arch/x86/flow.h"

namespace asof::x86 {

// Of a byte that is a short TNT packet: how many bits, and those, the next one the highest of eight. Else 0.
struct ShortTnt {
  uint8_t bits = 0;
  uint8_t count = 0;
};
inline constexpr auto kShortTnt = [] {
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

  // Where there are none: those of a path. Returns how many bytes they have.
  unsigned take(const PathPackets& path) {
    const uint64_t packets = path.tnt();
    bits = 0;
    count = 0;
    if (packets == 0) return 0;
    const auto full = static_cast<unsigned>(std::bit_width(packets) - 1) / 8;  // but for the last
    const ShortTnt last = kShortTnt[packets >> 8 * full];
    bits = (six_each(packets) & ~(~uint64_t{0} >> 6 * full)) | uint64_t{last.bits} << 56 >> 6 * full;
    count = 6 * full + last.count;
    return full + 1;
  }
  // The packet at p, after those at hand.
  const uint8_t* add(const uint8_t* p) {
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
  const Edge* multi_call_edges = nullptr;
  const uint8_t* p = nullptr;  // next packet
  const uint8_t* joined =
      nullptr;  // from here to p are short TNT packets, the last of those with bits at hand
  Addr last_ip = 0;
  Bits tnt;
  Edge cur{};                 // to the run
  StepCode* out = nullptr;    // the next
  StepCode* begun = nullptr;  // the first of them
  size_t timed = 0;           // how many have their time written down
  uint64_t instructions = 0;  // in all of them
  RetStack* rets = nullptr;
  Edge* stack = nullptr;       // places of rets
  uint32_t newest = 0;         // of them
  uint32_t most = 0;           // that `newest` was
  uint32_t first = 0;          // `newest`, in the beginning
  uint32_t lowest = 0;         // that `newest` was in the last walk_bits()
  uint32_t highest = 0;        // the same, and since
  bool hidden = false;         // below the stack's oldest entry are others
  bool takes_entries = false;  // of returns with a TIP it is known that they take their call off the stack,
  bool keeps_entries = false;  // or that they do not
  uint8_t mode = 64;           // of all runs
  bool silent_mtc = false;     // an MTC says nothing
  Space space = kNoSpace;      // of all runs
  // With DecodeOptions::sum_runs: of the codes up to `summed`. `sum.instructions` is not kept.
  PathHash* hashes = nullptr;
  RunSums::View sums;
  const StepCode* summed = nullptr;
  RunSum sum;
  // What packets up to here describe ran after `lo`, what later ones describe after the state's floor.
  const uint8_t* lo_until = nullptr;
  Time lo = kTimeMin;

  RunId run() const { return run_of(cur); }
  size_t written() const { return static_cast<size_t>(out - begun); }
  bool full() const { return written() >= kFastCodes; }
  const Link& link() const { return Links::at(links, cur); }
  // The codes without a time have this one.
  void write_times(StepList& steps, Time time) {
    if (written() > timed) steps.time_runs(kFastRoom, timed, time);
    timed = written();
  }
  struct CodeSum {
    PathHash hash;
    uint64_t branches = 0;
    void add(const RunSums::View& of, Edge run) {
      hash.add(of.hash(run));
      branches += of.branches_of(run);
    }
  };
  CodeSum walked;  // by walk_bits<true>()
  void add(const CodeSum& codes);
  void sum_up();
  void tidy_stack();
  void take_time(State& s, const uint8_t* after);
  void give_back();
  template <bool kSums>
  bool walk_bits();
  bool leave_by_tip(Edge to);
  void leave_by_uncompressed(Edge to);
  void leave(Edge to);
  // A path can be read, and one ahead.
  bool path_fits(const uint8_t* end) const {
    return end - p > PathPackets::kTwo && canonical(last_ip) == last_ip;
  }
};

// The codes up to here that are not summed yet are these.
inline void Flow::FastWalk::add(const CodeSum& codes) {
  sum.hash = sum.hash * codes.hash.power + codes.hash.hash;
  sum.branches += codes.branches;
  summed = out;
}

// Sums the codes that are not.
inline void Flow::FastWalk::sum_up() {
  CodeSum codes;
  for (; summed != out; ++summed) codes.add(sums, edge_to_run_of(*summed));
  add(codes);
}

// Ends the entries that have fallen out of the return stack, and sees to room above it.
inline void Flow::FastWalk::tidy_stack() {
  rets->end_below(most);
  const uint32_t moved = rets->make_places(newest);
  if (moved == 0) return;  // seldom otherwise; and what was written just now is best not read
  most -= moved;
  first -= moved;
}

// The packet before `after` is the first one after a timing packet: what it describes may have run
// before that.
inline void Flow::FastWalk::take_time(State& s, const uint8_t* after) {
  if (!s.clock_moved) return;
  s.clock_moved = false;
  lo = s.floor;
  lo_until = after;
  s.floor = s.clock.floor();
}

// Over the bits at hand, run by run. What comes next waits for one load after the other, so an edge is all of
// its address; and calls, which no processor can predict here, are pushed without a branch: the place above
// the newest entry is written whether there is one or not. Entries that fall out of the stack meanwhile are
// not met: after a push there are at most 63 bits to return with.
// With kSums what ran is summed, too: all before it is. That waits for nothing that the walk does not wait for.
// False: the next bit needs more than links know.
template <bool kSums>
[[gnu::always_inline]] inline bool Flow::FastWalk::walk_bits() {
  static_assert(RetStack::kSize >= 64 && RetStack::kAbove >= 96 + 2 * 31 + 64);
  const std::byte* const all_links = links;  // here and below: registers, as nobody else looks at them
  Edge* const places = stack;
  const RunSums::View all_sums = sums;
  CodeSum codes;
  Edge at = cur;
  uint64_t above = newest + 1;         // the newest entry
  uint64_t peak = above, low = above;  // of `above`, up to the last return
  const uint64_t room = newest + 96;   // runs with several calls push before this one only
  uint64_t bits = tnt.bits;
  uint64_t sum = 0;
  auto left = -static_cast<int64_t>(tnt.count);
  StepCode* const end = out - left;
  for (; left != 0; ++left) {
    const uint64_t bit = bits >> 63;
    const std::byte* edges = all_links + sizeof(Edge) * bit;
    asm("" : "+r"(edges));  // not part of the chain of loads: to be added by the load itself
    Edge next = Links::next_at(edges, at).load(std::memory_order_acquire);
    if (!leads_to_run(next)) [[unlikely]] {
      if (next == Edge::kReturn) {
        next = places[above - 1];
        if (!leads_to_run(next)) break;
        peak = std::max(peak, above--);
        low = std::min(low, above);
      } else {
        const Edge* const calls = MultiCallEdges::entry(multi_call_edges, next);
        if (next < Edge::kFirstMultiCall || above >= room || MultiCallEdges::next(calls) == Edge::kIndirect)
          break;
        for (const Edge edge : MultiCallEdges::returns(calls)) places[above++] = edge;
        next = MultiCallEdges::next(calls);
      }
    }
    end[left] = step_code(at, static_cast<uint32_t>(bit));
    if constexpr (kSums) codes.add(all_sums, at);
    const uint64_t effect = Links::at(all_links, at).effect.load(std::memory_order_relaxed);
    places[above] = Link::push(effect);
    above += Link::push(effect) != Edge::kNone;
    sum += effect;
    bits <<= 1;
    at = next;
  }
  cur = at;
  out = end + left;
  if constexpr (kSums) {
    walked = codes;
    add(codes);
  }
  instructions += Link::instructions(sum);
  newest = static_cast<uint32_t>(above - 1);
  lowest = static_cast<uint32_t>(low - 1);
  highest = static_cast<uint32_t>(std::max(peak, above) - 1);
  most = std::max(most, highest);
  tnt.bits = bits;
  tnt.count = static_cast<uint32_t>(-left);
  return left == 0;
}

// Out of the current run along the edge `to`, with what its link says to push.
inline void Flow::FastWalk::leave(Edge to) {
  *out++ = step_code(cur, kTakenBit);
  const uint64_t effect = link().effect.load(std::memory_order_relaxed);
  instructions += Link::instructions(effect);
  stack[newest + 1] = Link::push(effect);
  newest += Link::push(effect) != Edge::kNone;
  highest = std::max(highest, newest);
  most = std::max(most, newest);
  cur = to;
}

// The same where a TIP says so. False: the current run is not known to end in an indirect branch.
inline bool Flow::FastWalk::leave_by_tip(Edge to) {
  const Edge next = link().next[0].load(std::memory_order_acquire);
  if (next != Edge::kIndirect) [[unlikely]] {
    const Edge* const calls = MultiCallEdges::entry(multi_call_edges, next);
    if (!is_multi_call(next) || MultiCallEdges::next(calls) != Edge::kIndirect) return false;
    for (const Edge edge : MultiCallEdges::returns(calls)) stack[++newest] = edge;
  }
  leave(to);
  return true;
}

// The same by a return that takes its call off the stack and goes elsewhere: what the run leaves there is as if
// it had gone to the call.
inline void Flow::FastWalk::leave_by_uncompressed(Edge to) {
  const Edge next = link().next[1].load(std::memory_order_acquire);
  if (is_multi_call(next)) {
    for (const Edge edge : MultiCallEdges::returns(MultiCallEdges::entry(multi_call_edges, next)))
      stack[++newest] = edge;
  }
  leave(to);
}

}  // namespace asof::x86
