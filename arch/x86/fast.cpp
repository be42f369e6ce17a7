// The fast walk: paths and runs of unchanging text (runs.h), TNT bits and TIPs, nothing else. It takes over
// from the careful walk (flow.cpp) where nothing is in doubt, and gives back in front of whatever it does not
// know, with the state the careful walk would have there.
//
// Invariants:
//  * It stands at the start of a run, and every run it writes down was decided by the trace.
//  * TNT bits of several packets are used together only where no time lies between the packets: the bits at
//    hand all ran after `lo` and before the next packet.
//  * Kernel and user code are not left for each other.
//  * Text here is the same at all times, so time is only kept, not asked for.
//  * A packet is used up or not touched, and a path is taken whole or not at all.
#include <bit>

#include "arch/x86/flow.h"

namespace asof::x86 {
namespace {

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
  // The next ones, at most Path::kBits, below a marker.
  uint32_t window() const {
    const uint32_t n = std::min<uint32_t>(count, Path::kBits);
    return static_cast<uint32_t>((bits >> 1 | 1ULL << 63) >> (63 - n));
  }
};

}  // namespace

// The run at s.ip when the fast walk may go on from there, else 0.
uint32_t Flow::fast_start(const State& s) {
  if (!runs_ || s.node == nullptr || s.node->state != TextState::kStable || !s.enabled || s.lost ||
      s.pending.kind != Pending::Kind::kNone || s.forced != nullptr || gap_ || next_flags_ != 0 ||
      s.transaction || s.block_bytes != 0 || s.rets.split() || s.decisions < confidence_until_ ||
      s.poke_return != 0 || verified_steps_ != chunk_.steps.size() ||
      (s.node->space != kKernelSpace && s.node->space != s.user_space)) {
    return 0;
  }
  if (s.node->run == 0) s.node->run = runs_->at(s.node->space, s.ip, s.mode);
  return s.node->run != 0 && runs_->run(s.node->run).end != RunEnd::kStop ? s.node->run : 0;
}

void Flow::fast_walk(State& s, uint32_t cur) {
  RunCache& runs = *runs_;
  RetStack& rets = s.rets.only();
  const Space space = s.node->space;
  const uint8_t mode = s.mode;
  const bool kernel = space == kKernelSpace;
  constexpr size_t kRoom = kFastCodes + 64;
  uint32_t* begun = chunk_.steps.open_runs(runs.table(), kRoom);
  const auto write_out = [&](const uint32_t* end) {
    chunk_.steps.close_runs(kRoom, static_cast<size_t>(end - begun), s.now);
  };
  const auto go_on_writing = [&] { return begun = chunk_.steps.open_runs(runs.table(), kRoom); };
  uint32_t* out = begun;

  Bits tnt;
  tnt.count = s.tnt_count;
  if (tnt.count != 0) tnt.bits = s.tnt << (64 - tnt.count);
  uint64_t given = tnt.count;  // TNT bits and TIPs
  const uint8_t* p = s.p;
  bool join = s.lo == s.floor && !s.clock_moved;  // what the next packet says is of the same time

  const auto push_calls = [&](uint32_t first, uint32_t n) {
    CallSite* site = runs.sites(first);
    for (; n != 0; --n, ++site) rets.push(site->ret, site);
  };
  // The run behind a return to the newest call; 0: the careful walk has to look.
  const auto return_to = [&](CallSite* site, Addr to) -> uint32_t {
    if (site != nullptr && site->space == space && mode == 64) {
      uint32_t next = site->run.load(std::memory_order_acquire);
      if (next == 0) {
        next = runs.at(space, to, mode);
        site->run.store(next, std::memory_order_release);
      }
      return next;
    }
    return is_kernel_address(to) == kernel ? runs.at(space, to, mode) : 0;
  };

  Path step;
  uint32_t steps = 0;  // to go run by run

  for (;;) {
    while (tnt.count != 0) {
      if (tnt.count < Path::kBits && join) {
        given -= tnt.count;
        p = tnt.add_short(p, end_);
        given += tnt.count;
      }
      const Path* way = steps == 0 ? runs.path(cur, tnt.window()) : nullptr;
      if (way == nullptr) [[unlikely]] {
        steps = (steps == 0 ? std::min(tnt.count, Path::kBits) : steps) - 1;
        step = runs.step(cur, static_cast<uint32_t>(tnt.bits >> 63));
        way = &step;
      }
      const Path path = *way;
      if (path.used == 0) goto leave;
      uint32_t next = path.next;
      if (path.returns != 0) {
        CallSite* site = nullptr;
        Addr to = 0;
        if (path.call_count != 0) {  // to one of its own
          site = runs.sites(path.calls + path.call_count - 1);
          to = site->ret;
        } else {
          if (!rets.top(to)) goto leave;
          site = rets.top_site();
        }
        next = return_to(site, to);
        if (next == 0) goto leave;
      }
      if (path.call_count != 0) push_calls(path.calls, path.call_count);
      if (path.returns != 0) {
        rets.drop();
        steps = 0;
      }
      *out++ = path.code;
      tnt.take(path.used);
      cur = next;
    }
    if (static_cast<size_t>(out - begun) >= kFastCodes) {
      write_out(out);
      out = go_on_writing();
      if (chunk_.steps.size() - kRoom >= options_.chunk_steps) goto leave;
    }
    for (;;) {  // the next packet
      if (p >= end_) goto leave;
      const uint8_t b = *p;
      if (is_short_tnt(b)) [[likely]] {
        p = tnt.add_one(p);
        given += tnt.count;
        break;
      }
      if (b == 0) {
        ++p;
        continue;
      }
      if (is_tip(b)) {
        const FlowRun& r = runs.run(cur);
        Addr ip = s.last_ip;
        uint32_t size = 0;
        // A return without a call at hand says where it goes, like an indirect jump.
        const bool indirect =
            r.end == RunEnd::kIndirect || (r.end == RunEnd::kRet && rets.empty() && r.call_count == 0);
        if (!indirect || !read_tip(p, end_, ip, size) || is_kernel_address(ip) != kernel) goto leave;
        const uint32_t next = runs.target(space, ip, mode);
        if (next == 0) goto leave;
        if (r.call_count != 0) push_calls(r.calls, r.call_count);
        *out++ = cur << 1 | 1;
        ++given;
        s.last_ip = ip;
        p += size;
        cur = next;
        break;
      }
      const Packet k = read_packet(p, end_);
      if (k.type == Pk::kTnt) {
        tnt.count = k.ipc;
        tnt.bits = k.value << (64 - k.ipc);
        given += tnt.count;
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
        write_out(out);
        s.now = s.clock.now();
        out = go_on_writing();
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
  write_out(out);
  s.p = p;
  s.tnt_count = tnt.count;
  s.tnt = tnt.count == 0 ? 0 : tnt.bits >> (64 - tnt.count);
  given -= tnt.count;
  if (given == 0) return;
  s.ip = runs.run(cur).ip;
  s.node = cache_->node(space, s.ip, mode);
  s.in_user = !kernel;
  s.decisions += given;
  s.idle_blocks = 0;
  verified_steps_ = chunk_.steps.size();
}

}  // namespace asof::x86
