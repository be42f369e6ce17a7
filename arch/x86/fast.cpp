// The fast walk: runs of unchanging text, TNT bits and TIPs, nothing else. It takes over from the careful
// walk (flow.cpp) where nothing is in doubt, and gives back in front of whatever it does not know, with the
// state the careful walk would have there.
//
// Invariants:
//  * It stands at the start of a run, and every run it writes down was decided by the trace.
//  * All TNT bits of a packet are used before the next packet is looked at.
//  * Kernel and user code are not left for each other.
//  * Text here is the same at all times, so time is only kept, not asked for.
//  * A packet is used up or not touched.
#include <bit>

#include "arch/x86/flow.h"

namespace asof::x86 {
namespace {

constexpr uint32_t kMaxBits = 47;  // in one TNT packet

bool is_short_tnt(uint8_t b) { return (b & 1) == 0 && b > 2; }
bool is_tip(uint8_t b) { return (b & 0x1f) == 0x0d; }

// The TIP at p: the new IP and the packet's size. False: it has no IP, is not complete, or near the end.
bool read_tip(const uint8_t* p, const uint8_t* end, Addr& ip, uint32_t& size) {
  static constexpr std::array<uint8_t, 8> kBytes = {0, 2, 4, 6, 6, 0, 8, 0};
  if (end - p < 9) return false;
  const uint8_t ipc = *p >> 5;
  const unsigned bytes = kBytes[ipc];
  if (bytes == 0) return false;
  size = bytes + 1;
  return update_ip(ipc, load_le(p + 1, 8) & (~0ULL >> (64 - 8 * bytes)), ip);
}

}  // namespace

bool Flow::fast_ready(const State& s) {
  return runs_ && s.node != nullptr && s.node->state == TextState::kStable && s.enabled && !s.lost &&
         s.pending.kind == Pending::Kind::kNone && s.forced == nullptr && !gap_ && next_flags_ == 0 &&
         !s.transaction && s.block_bytes == 0 && !s.rets.split() && s.decisions >= confidence_until_ &&
         verified_steps_ == chunk_.steps.size() &&
         (s.node->space == kKernelSpace || s.node->space == s.user_space) &&
         runs_->hot(runs_->of(*s.node)).end != RunEnd::kStop;
}

void Flow::fast_walk(State& s) {
  RunCache& runs = *runs_;
  const Space space = s.node->space;
  const uint8_t mode = s.mode;
  const bool kernel = space == kKernelSpace;
  std::array<uint32_t, kFastCodes + kMaxBits + 1> codes;
  uint32_t* out = codes.data();
  uint32_t* const full = out + kFastCodes;
  uint64_t written = 0;
  const auto write_out = [&] {
    const auto n = static_cast<size_t>(out - codes.data());
    if (n == 0) return;
    chunk_.steps.append_runs(runs.table(), codes.data(), n, s.now);
    written += n;
    out = codes.data();
  };

  uint32_t cur = s.node->run;
  uint32_t n = s.tnt_count;
  uint64_t tnt = n == 0 ? 0 : s.tnt << (64 - n);  // the next one is the highest bit
  const uint8_t* p = s.p;

  const auto push_calls = [&](const HotRun& r) {
    for (uint32_t i = 0; i < r.call_count; ++i) s.rets.push(runs.call(r.calls + i).ret, r.calls + i);
  };

  for (;;) {
    while (n != 0) {
      const HotRun& r = runs.hot(cur);  // until follow() or at()
      const auto bit = static_cast<uint32_t>(tnt >> 63);
      if (r.end == RunEnd::kCond) [[likely]] {
        if (r.call_count != 0) push_calls(r);
        *out++ = cur << 1 | bit;
        const uint32_t next = r.next[bit];
        cur = next != 0 ? next : runs.follow(cur, bit);
      } else if (r.end == RunEnd::kRet && bit != 0) {
        if (r.call_count != 0) push_calls(r);
        Addr to = 0;
        uint32_t site = 0;
        if (!s.rets.top(to, site) || is_kernel_address(to) != kernel) goto leave;
        s.rets.drop();
        *out++ = cur << 1 | 1;
        uint32_t next = runs.call(site).run;
        if (next == 0) {
          next = runs.at(space, to, mode);
          if (site != 0) runs.call(site).run = next;
        }
        cur = next;
      } else {
        goto leave;
      }
      tnt <<= 1;
      --n;
    }
    if (out >= full) {
      write_out();
      if (chunk_.steps.size() >= options_.chunk_steps) goto leave;
    }
    for (;;) {  // the next packet
      if (p >= end_) goto leave;
      const uint8_t b = *p;
      if (is_short_tnt(b)) [[likely]] {
        // As many of them as fit: fewer rounds of this loop. Not where time moved: the next packet's bits are
        // later.
        do {
          const auto stop = static_cast<uint32_t>(std::bit_width(*p)) - 1;
          tnt |= static_cast<uint64_t>(*p) << (64 - stop) >> n;
          n += stop - 1;
          ++p;
        } while (!s.clock_moved && n <= kMaxBits - 6 && p < end_ && is_short_tnt(*p));
        break;
      }
      if (b == 0) {
        ++p;
        continue;
      }
      if (is_tip(b)) {
        const HotRun& r = runs.hot(cur);
        Addr ip = s.last_ip;
        uint32_t size = 0;
        if (r.end != RunEnd::kIndirect || !read_tip(p, end_, ip, size) || is_kernel_address(ip) != kernel) {
          goto leave;
        }
        if (r.call_count != 0) push_calls(r);
        *out++ = cur << 1 | 1;
        s.last_ip = ip;
        p += size;
        uint32_t next = r.next[1];
        if (next == 0 || runs.ip(next) != ip) {
          next = runs.at(space, ip, mode);
          runs.hot(cur).next[1] = next;
        }
        cur = next;
        break;
      }
      const Packet k = read_packet(p, end_);
      if (k.type == Pk::kTnt) {
        n = k.ipc;
        tnt = k.value << (64 - n);
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
        write_out();
        s.now = s.clock.now();
      }
    }
    s.lo = s.floor;
    if (s.clock_moved) {
      s.floor = s.clock.floor();
      s.clock_moved = false;
    }
  }
leave:
  write_out();
  s.p = p;
  s.tnt_count = n;
  s.tnt = n == 0 ? 0 : tnt >> (64 - n);
  if (written == 0) return;
  s.node = &runs.node(cur);
  s.ip = s.node->ip;
  s.in_user = !kernel;
  s.decisions += written;
  s.idle_blocks = 0;
  verified_steps_ = chunk_.steps.size();
}

}  // namespace asof::x86
