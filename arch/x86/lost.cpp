// The walk where the flow is lost because no bytes are known: most of a trace whose text is incomplete. TNT
// bits lead nowhere then, and a TIP into a hole of the text is where the same gap goes on. What is here is
// what fetch(), without_flow(), text() and lose() do to the state one by one, without opening and
// closing the gap; it returns to the careful walk before everything else.
#include <algorithm>
#include <utility>

#include "arch/x86/flow.h"

namespace asof::x86 {

struct Flow::LostWalk {
  Flow& flow;
  State& s;
  // After a TIP, and nothing since that needs the text there: the gap ended at it.
  bool arrived = false;
  Addr ip = 0;
  uint64_t offset = 0;  // of the TIP
  Time now = kTimeMin;  // at it
  // User code of whom, when `lo` was what it is in known_at, and no timing packet came since.
  Space user = kNoSpace;
  Time known_at = kTimeMax;

  // Takes the packet at s.p, which needs the flow somewhere. False: it is somewhere else than in a hole, and
  // nothing was done.
  bool next(uint32_t size) {
    const Time lo = std::exchange(s.lo, s.floor);
    if (arrived && !still_lost()) {
      s.lo = lo;
      return false;
    }
    if (std::exchange(s.clock_moved, false)) s.floor = s.clock.floor();
    s.p += size;
    return true;
  }
  // The text at `ip` is asked for.
  bool still_lost() {
    const bool kernel = is_kernel_address(ip);
    const Space space = kernel ? kKernelSpace : user_space();
    if (space == kNoSpace || (kernel && flow.cache_->isa().hooks(ip)) || !flow.holes_.contain(space, ip))
      return false;
    s.ip = ip;
    s.in_user = !kernel;
    if (!kernel) s.user_space = space;
    flow.gap_->time.lo = std::min(flow.gap_->time.lo, now);
    arrived = false;
    return true;
  }
  // kNoSpace: it may be more than one's.
  Space user_space() {
    const auto& contexts = flow.stream_->contexts;
    if (contexts.size() == 1) return contexts[0].space;
    if (known_at == s.lo) return user;
    std::vector<Space> spaces = flow.spaces_in(flow.bounds(s));
    std::erase(spaces, kNoSpace);
    known_at = s.lo;
    return user = spaces.size() == 1 ? spaces[0] : kNoSpace;
  }
  bool tip(const Tip& t) {
    const uint64_t at = static_cast<uint64_t>(s.p - flow.begin_);
    if (!next(t.size)) return false;
    s.last_ip = ip = t.ip;
    offset = at;
    now = s.now;
    return arrived = true;
  }
  // False: it is for the careful walk.
  bool other() {
    const Packet k = read_packet(s.p, flow.end_);
    if (k.type == Pk::kTnt) return next(k.size);
    if (flow.overwritten_ && k.type == Pk::kTsc) return false;
    if (k.type != Pk::kTsc && k.type != Pk::kTma && k.type != Pk::kMtc &&
        (k.type != Pk::kCyc || flow.errata_.skd007))
      return false;
    if (s.clock.update(k)) {  // as in PacketFetcher::timing()
      s.now = s.clock.now();
      s.clock_moved = true;
    }
    s.p += k.size;
    known_at = kTimeMax;
    return true;
  }
  // The careful walk's state after a TIP.
  void arrive() {
    const Time later = std::exchange(s.now, now);
    flow.close_gap(s, ip, offset);
    s.now = later;
    s.lost = s.in_user = false;
    flow.enter(s, ip);
  }
};

void Flow::lost_walk(State& s) {
  if (runs_ == nullptr || s.tnt_count != 0 || s.pending.kind != Pending::Kind::kNone ||
      s.pending.event_count != 0 || s.pending.mode != 0 || !s.enabled || s.block_bytes != 0 ||
      gap_->code != Code::kNoBytes || (s.p >= fast_end_ && !ends_cleanly(s.p)))
    return;
  LostWalk walk{*this, s};
  while (s.p < fast_end_) {
    if (is_short_tnt(*s.p)) {
      if (!walk.next(1)) break;
      s.p = skip_short_tnt(s.p, end_);  // at the same time
    } else if (*s.p == 0) {
      ++s.p;
    } else if (Tip t; t.read(s.p, end_, s.last_ip)) {
      if (!walk.tip(t)) break;
    } else if (!walk.other()) {
      break;
    }
  }
  if (walk.arrived) walk.arrive();
}

}  // namespace asof::x86
