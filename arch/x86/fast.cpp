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
#include <bit>
#include <utility>

#include "arch/x86/flow.h"

namespace asof::x86 {
namespace {

bool is_short_tnt(uint8_t b) { return (b & 1) == 0 && b > 2; }
bool is_tip(uint8_t b) { return (b & 0x1f) == 0x0d; }

// The TIP at p: the new IP and the packet's size. False: it has no IP, is not complete, or near the end.
bool read_tip(const uint8_t* p, const uint8_t* end, Addr& ip, uint32_t& size) {
  if (end - p < 9) return false;
  const uint8_t ipc = *p >> 5;
  const uint8_t bytes = kIpBytes[ipc].bytes;
  size = 1U + bytes;
  return bytes != kReservedIp && update_ip(ipc, load_le(p + 1, 8), ip);
}

}  // namespace

// TNT bits at hand: the next one is the highest.
struct Bits {
  uint64_t bits = 0;
  uint32_t count = 0;

  void take(uint32_t n) {
    bits <<= n;
    count -= n;
  }
  // Those of the short TNT packets at p, as many as fit.
  const uint8_t* add_short(const uint8_t* p, const uint8_t* end) {
    while (count <= 64 - 24 && end - p >= 4 && add_four(static_cast<uint32_t>(load_le(p, 4)))) p += 4;
    while (count <= 64 - 6 && p < end && is_short_tnt(*p)) p = add_one(p);
    return p;
  }
  // Four packets of six bits each, the first in the lowest byte. False: they are not.
  bool add_four(uint32_t packets) {
    if ((packets & 0x81818181U) != 0x80808080U) return false;
    uint32_t b = __builtin_bswap32(packets) >> 1 & 0x3f3f3f3fU;
    b = (b & 0x003f003fU) | (b & 0x3f003f00U) >> 2;
    b = (b & 0x00000fffU) | (b & 0x0fff0000U) >> 4;
    bits |= static_cast<uint64_t>(b) << (64 - 24) >> count;
    count += 24;
    return true;
  }
  const uint8_t* add_one(const uint8_t* p) {
    const auto stop = static_cast<uint32_t>(std::bit_width(*p)) - 1;
    bits |= static_cast<uint64_t>(*p) << (64 - stop) >> count;
    count += stop - 1;
    return p + 1;
  }
};

struct Flow::FastWalk {
  Bits tnt;
  uint32_t cur = 0;           // way to the run
  uint32_t* out = nullptr;    // codes
  uint64_t instructions = 0;  // in them
  RetStack* rets = nullptr;
  uint32_t* ring = nullptr;  // of rets
  uint64_t newest = 0;       // entry of ring
  uint64_t most = 0;         // that `newest` was
  bool hidden = false;       // below the ring's oldest entry are others
  Space space = kNoSpace;    // of all runs

  uint32_t run() const { return run_of(cur); }
  uint32_t& top() const { return ring[newest % RetStack::kRing]; }
  void push(uint32_t way) {
    ++newest;
    most = std::max(most, newest);
    top() = way;
    ring[(newest - RetStack::kSize) % RetStack::kRing] = 0;
  }
  void write(uint32_t bit, const Link& link) {
    *out++ = cur | bit;
    instructions += link.instructions.load(std::memory_order_relaxed);
  }
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

// Over the bits at hand, run by run. What comes next waits for one load after the other, so a way is all of
// its address; and calls, which no processor can predict here, are pushed without a branch: the
// place above the newest entry is written whether there is one or not. As many entries as the stack has may
// be pushed; where it was so full (`deep`) that some may have fallen out of it, those are ended afterwards.
// False: the next bit needs more than links know.
bool Flow::fast_bits(FastWalk& w) {
  static_assert(RetStack::kSize >= 64 && RetStack::kRing == 256);  // an index is a byte
  const std::byte* const links = runs_->links();
  uint32_t* const ring = w.ring;
  uint64_t above = w.newest + 1;  // the newest entry
  uint64_t peak = above;          // of `above`, up to the last return
  const bool deep = ring[static_cast<uint8_t>(w.newest - RetStack::kSize + w.tnt.count)] != 0;
  uint64_t bits = w.tnt.bits;
  uint32_t cur = w.cur;
  uint32_t instructions = 0;
  auto left = -static_cast<int64_t>(w.tnt.count);
  uint32_t* const end = w.out - left;
  for (; left != 0; ++left) {
    const uint64_t bit = bits >> 63;
    const std::byte* const ways = links + sizeof(uint32_t) * bit;
    uint32_t next = Links::at(ways, cur).next[0].load(std::memory_order_acquire);
    if (next < kFirstWay) [[unlikely]] {
      if (next != kReturn) break;
      next = ring[static_cast<uint8_t>(above - 1)];
      if (next < kFirstWay) break;
      peak = std::max(peak, above--);
    }
    end[left] = cur | static_cast<uint32_t>(bit);
    const Link& link = Links::at(links, cur);
    const uint32_t push = link.push.load(std::memory_order_relaxed);
    ring[static_cast<uint8_t>(above)] = push;
    above += push != 0;
    instructions += link.instructions.load(std::memory_order_relaxed);
    bits <<= 1;
    cur = next;
  }
  peak = std::max(peak, above);
  w.most = std::max(w.most, peak - 1);
  if (deep) {
    for (uint64_t i = above; i <= peak; ++i) ring[static_cast<uint8_t>(i - 1 - RetStack::kSize)] = 0;
  }
  w.out = end + left;
  w.instructions += instructions;
  w.newest = above - 1;
  w.tnt.bits = bits;
  w.tnt.count = static_cast<uint32_t>(-left);
  w.cur = cur;
  return left == 0;
}

// The next bit, for which fast_bits stopped. False: it is for the careful walk.
bool Flow::fast_bit(FastWalk& w) {
  RunCache& runs = *runs_;
  const auto bit = static_cast<uint32_t>(w.tnt.bits >> 63);
  const FlowRun& run = runs.run(w.run());
  if (run.end == RunEnd::kRet && bit != 0 && run.call_count == 0) {  // to an address, or nowhere
    if (w.top() != kAddressOnly) return false;
    const Addr to = w.rets->address(w.newest);
    if (is_kernel_address(to) != (run.space == kKernelSpace)) return false;
    const uint32_t behind = runs.at(run.space, to, run.mode);
    if (behind == 0) return false;
    w.top() = way_to(behind);
    return true;
  }
  bool linked = false;
  const uint32_t next = runs.follow(w.run(), bit, linked);
  if (next == 0) return false;
  if (linked) return true;
  if (!fast_calls(w, run.call_count - (run.end == RunEnd::kRet ? 1U : 0U))) return false;
  w.write(bit, runs.link(w.run()));
  w.tnt.take(1);
  w.cur = way_to(next);
  return true;
}

// Pushes the first `n` calls of the current run. False: not one of them was pushed.
bool Flow::fast_calls(FastWalk& w, uint32_t n) {
  const FlowRun& run = runs_->run(w.run());
  for (uint32_t i = 0; i < n; ++i) {
    if (runs_->known_behind(run.calls + i) == 0) return false;
  }
  for (uint32_t i = 0; i < n; ++i) w.push(way_to(runs_->known_behind(run.calls + i)));
  return true;
}

// The TIP at p, which tells where the current run goes. False: it is for the careful walk.
bool Flow::fast_tip(State& s, FastWalk& w, const uint8_t*& p) {
  const Link& link = Links::at(runs_->links(), w.cur);
  const FlowRun* many = nullptr;  // calls
  if (link.next[0].load(std::memory_order_acquire) != kIndirect && !runs_->link_indirect(w.run())) {
    many = &runs_->run(w.run());
    // A return without a call at hand says where it goes, like an indirect jump.
    if (many->end != RunEnd::kIndirect &&
        (many->end != RunEnd::kRet || many->call_count != 0 || w.top() != 0 || w.hidden)) {
      return false;
    }
  }
  Addr ip = s.last_ip;
  uint32_t size = 0;
  if (!read_tip(p, end_, ip, size) || is_kernel_address(ip) != (w.space == kKernelSpace)) return false;
  const uint32_t next = runs_->target(w.space, ip, s.mode);
  if (next == 0 || (many != nullptr && !fast_calls(w, many->call_count))) return false;
  if (many == nullptr) {
    if (const uint32_t push = link.push.load(std::memory_order_relaxed); push != 0) w.push(push);
  }
  w.write(1, link);
  s.last_ip = ip;
  p += size;
  w.cur = way_to(next);
  return true;
}

void Flow::fast_walk(State& s, uint32_t start) {
  StepList& steps = chunk_.steps;
  constexpr size_t kRoom = kFastCodes + 64;
  FastWalk w;
  w.cur = way_to(start);
  w.space = s.node->space;
  w.rets = &s.rets.open(recent_returns_);
  w.hidden = s.rets.split();
  w.ring = w.rets->lend(runs_->map(), w.space, s.mode);
  const uint64_t newest = w.newest = w.most = w.rets->newest();
  w.tnt.count = s.tnt_count;
  if (w.tnt.count != 0) w.tnt.bits = s.tnt << (64 - w.tnt.count);
  uint32_t* begun = w.out = steps.open_runs(runs_->table(), kRoom);
  size_t timed = 0;  // codes whose time is written down
  const auto write_times = [&] {
    const auto written = static_cast<size_t>(w.out - begun);
    if (written > timed) steps.time_runs(kRoom, timed, s.now);
    timed = written;
  };
  const auto write_out = [&] {
    write_times();
    steps.close_runs(kRoom, std::exchange(timed, 0), std::exchange(w.instructions, 0));
  };
  const auto go_on_writing = [&] { begun = w.out = steps.open_runs(runs_->table(), kRoom); };

  uint64_t given = w.tnt.count;  // TNT bits and TIPs
  const uint8_t* p = s.p;
  bool join = s.lo == s.floor && !s.clock_moved;  // what the next packet says is of the same time

  for (;;) {
    if (join) {
      given -= w.tnt.count;
      p = w.tnt.add_short(p, end_);
      given += w.tnt.count;
    }
    while (!fast_bits(w)) {
      if (!fast_bit(w)) goto leave;
    }
    if (static_cast<size_t>(w.out - begun) >= kFastCodes) {
      write_out();
      go_on_writing();
      if (steps.size() - kRoom >= options_.chunk_steps) goto leave;
    }
    for (;;) {  // the next packet
      if (p >= end_) goto leave;
      const uint8_t b = *p;
      if (is_short_tnt(b)) [[likely]] {
        p = w.tnt.add_one(p);
        given += w.tnt.count;
        break;
      }
      if (b == 0) {
        ++p;
        continue;
      }
      if (is_tip(b)) {
        if (!fast_tip(s, w, p)) goto leave;
        ++given;
        break;
      }
      const Packet k = read_packet(p, end_);
      if (k.type == Pk::kTnt) {
        w.tnt.count = k.ipc;
        w.tnt.bits = k.value << (64 - k.ipc);
        given += w.tnt.count;
        p += k.size;
        break;
      }
      if (k.type != Pk::kTsc && k.type != Pk::kTma && k.type != Pk::kMtc &&
          (k.type != Pk::kCyc || errata_.skd007)) {
        goto leave;
      }
      p += k.size;
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
  w.rets->take_back(w.newest);
  s.rets.close(recent_returns_, w.most - newest);
  s.p = p;
  s.tnt_count = w.tnt.count;
  s.tnt = w.tnt.count == 0 ? 0 : w.tnt.bits >> (64 - w.tnt.count);
  given -= w.tnt.count;
  if (given == 0) return;
  const FlowRun& at = runs_->run(w.run());
  s.ip = at.ip;
  s.node = cache_->node(at.space, s.ip, s.mode);
  s.in_user = at.space != kKernelSpace;
  s.decisions += given;
  s.idle_blocks = 0;
  verified_steps_ = steps.size();
}

}  // namespace asof::x86
