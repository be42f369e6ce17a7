// Where the flow goes on after an OVF packet: Intel SDM vol. 3, "OVF packet"; errata are named where they are
// handled.
#include "arch/x86/packet_fetcher.h"
#include "arch/x86/sync_group.h"

namespace asof::x86 {
namespace {

void take_time(State& s, const Packet& k) {
  if (s.clock.update(k)) s.now = s.clock.now();
  s.clock_moved = true;
  s.p += k.size;
}

}  // namespace

// APL12: a FUP after OVF although tracing is off. The packets after it decide.
bool PacketFetcher::fup_is_bogus(const State& s, const uint8_t* after_fup) const {
  if (!errata_.apl12) return false;
  State t = s;
  t.p = after_fup;
  for (;;) {
    const Packet k = next(t.p, t.block_bytes);
    switch (k.type) {
      case Pk::kPge:
      case Pk::kStop:
        return true;
      case Pk::kPsb:
        return !read_sync_group({t.p, end_}, t.clock, errata_).has_ip;
      case Pk::kTnt:
      case Pk::kTip:
      case Pk::kPgd:
      case Pk::kOvf:
      case Pk::kPsbend:
      case Pk::kEnd:
      case Pk::kBad:
        return false;
      default:
        t.p += k.size;
    }
  }
}

// SKD010: FUP or TIP.PGE missing; APL11: a TIP.PGD too many. Moves s.p past what resolves the overflow and
// says so; false: tracing is simply off.
bool PacketFetcher::skip_after_overflow(State& s) const {
  State t = s;
  for (;;) {
    const Packet k = next(t.p, t.block_bytes);
    if (is_timing(k.type)) {
      take_time(t, k);
      continue;
    }
    switch (k.type) {
      case Pk::kPgd:
        if (!errata_.skd010 && !errata_.apl11) return false;
        update_ip(k.ipc, k.value, t.last_ip);
        t.p += k.size;
        t.enabled = false;
        s = t;
        return true;
      case Pk::kTip:
        if (!errata_.skd010 || !update_ip(k.ipc, k.value, t.last_ip)) return false;
        t.p += k.size;
        t.enabled = true;
        t.ip = t.last_ip;
        s = t;
        return true;
      case Pk::kPip:
        t.clock.update(k);
        t.p += k.size;
        break;
      case Pk::kPad:
      case Pk::kMnt:
      case Pk::kVmcs:
      case Pk::kModeExec:
      case Pk::kPwre:
      case Pk::kPwrx:
        t.p += k.size;
        break;
      default:
        return false;
    }
  }
}

void PacketFetcher::resolve_overflow(State& s) const {
  s.tnt_count = 0;
  s.last_ip = 0;
  s.rets.clear();
  s.calls_missing = true;
  s.lost = false;
  s.enabled = false;
  s.transaction = false;
  s.interrupts.reset();
  State t = s;
  for (;;) {
    const Packet k = next(t.p, t.block_bytes);
    if (is_timing(k.type) || k.type == Pk::kPad || k.type == Pk::kMnt) {
      take_time(t, k);
      continue;
    }
    if (k.type != Pk::kFup) break;
    const bool has_ip = update_ip(k.ipc, k.value, t.last_ip);
    t.p += k.size;
    s = t;
    s.enabled = has_ip && !fup_is_bogus(t, t.p);
    s.ip = s.last_ip;
    return;
  }
  skip_after_overflow(s);
}

}  // namespace asof::x86
