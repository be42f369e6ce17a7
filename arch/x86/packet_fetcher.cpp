// From packets to what the flow needs next. Binding rules of packets: Intel SDM vol. 3, "Intel PT: Packet
// Generation Scenarios"; what errata change is named where it is handled.
#include "arch/x86/packet_fetcher.h"

#include <algorithm>
#include <utility>

#include "arch/power_events.h"
#include "arch/x86/sync_group.h"
#include "arch/x86/time_order.h"

namespace asof::x86 {
namespace {

Event make_event(EventKind kind, Time time, Addr ip, uint64_t a, uint64_t b, uint64_t offset) {
  Event e;
  e.kind = kind;
  e.time = time;
  e.ip = ip;
  e.a = a;
  e.b = b;
  e.offset = offset;
  return e;
}

// In a guest: is it left for guest_walk()? A TIP.PGD that the host's VM entry ends in is the host's.
bool is_guest_flow(const State& s, Pk t) {
  const bool host_flow = s.enabled && !s.lost;
  return t == Pk::kTnt || t == Pk::kTip || t == Pk::kPge || t == Pk::kFup || (t == Pk::kPgd && !host_flow) ||
         (t == Pk::kPsb && host_flow);
}

bool tells_flow(Pk t) {
  return t == Pk::kTnt || t == Pk::kTip || t == Pk::kPge || t == Pk::kPgd || t == Pk::kFup;
}

void bind(Pending& p, const Event& e) {
  if (p.event_count < p.events.size()) p.events[p.event_count++] = e;
}

}  // namespace

Packet read_packet(const Errata& errata, const uint8_t* p, const uint8_t* end, uint8_t block_bytes) {
  Packet k = read_packet(p, end, block_bytes);
  if (k.type == Pk::kCyc && k.size == 2 && errata.skd007 && (k.value & ~0x1fULL) == 0x20 && p + 2 < end &&
      p[2] == 0xf3) {
    // SKD007: what looks like a CYC in front of f3 is a garbled byte and an OVF.
    k = Packet{};
    k.type = Pk::kPad;
    k.size = 1;
  } else if (k.type == Pk::kBad && errata.skz84 && end - p >= 8 && p[0] == 0x02 && p[1] == 0x73) {
    // SKZ84: a TMA with reserved bits set, one byte too long.
    k.type = Pk::kPad;
    k.size = 8;
  }
  return k;
}

Packet PacketFetcher::next(const uint8_t* p, uint8_t block_bytes) const {
  const Packet k = read_packet(errata_, p, end_, block_bytes);
  if (p + k.size > tail_ && p < tail_) [[unlikely]]  // the end of it was not written
    return Packet{};
  return k;
}

void PacketFetcher::report_bound_events(const State& s) {
  for (unsigned i = 0; i < s.pending.event_count; ++i) {
    const Event& e = s.pending.events[i];
    log_.add_event(e.kind, e.time, 0, e.a, e.b, e.offset);
  }
}

// No FUP follows it.
template <bool Emit>
void PacketFetcher::report_control_event(State& s) {
  if (!std::exchange(s.pending.async_event, false)) return;
  if constexpr (Emit) {
    for (unsigned i = 0; i < s.pending.event_count; ++i) {
      const Event& e = s.pending.events[i];
      if (e.kind == EventKind::kCfe) log_.add_event(e.kind, e.time, 0, e.a, e.b, e.offset);
    }
  }
  s.pending.event_count = 0;
}

template <bool Emit>
bool PacketFetcher::timing(State& s, const Packet& k) {
  const uint64_t offset = static_cast<uint64_t>(s.p - begin_);
  const Time before = s.now;
  // A packet that says nothing of time leaves the floor what it was: a choice may have raised it.
  if (s.clock.update(k)) {
    s.now = s.clock.now();
    s.clock_moved = true;
  }
  s.p += k.size;
  if constexpr (Emit) {
    if (cycles_wanted_) count_cycles(k, offset);
    if (k.type == Pk::kCbr) log_.add_event(EventKind::kCbr, s.now, 0, k.value, 0, offset);
  }
  if (!overwritten_ || k.type != Pk::kTsc || s.now >= saturating_add(before, -kClocksDiffer)) return true;
  if constexpr (Emit) report_bound_events(s);
  s.pending.clear();
  s.pending.kind = Pending::Kind::kTimeBack;
  s.pending.offset = offset;
  return false;
}

void PacketFetcher::count_cycles(const Packet& k, uint64_t offset) {
  constexpr uint64_t kMost = 1ULL << 44U;
  cycles_.last = k.type == Pk::kCyc;
  if (k.type == Pk::kTsc) cycles_.whole = false;
  if (!cycles_.last) return;
  cycles_.since = std::min(cycles_.since + std::min(k.value, kMost), kMost);
  cycles_.offset = offset;
}

// The packet that was in use is used up.
void PacketFetcher::end_cycles(const State& s) {
  if (std::exchange(cycles_.bound, false)) {
    const uint64_t cycles = std::exchange(cycles_.since, 0);
    const bool whole = std::exchange(cycles_.whole, true);
    log_.add_event(EventKind::kCycles, s.now, 0, whole ? cycles : 0, whole ? 0 : 1, cycles_.offset);
  }
  cycles_.last = false;
}

template <bool Emit>
void PacketFetcher::fetch(State& s) {
  if constexpr (Emit) {
    if (cycles_wanted_) end_cycles(s);
  }
  s.pending.clear();
  s.lo = s.floor;
  for (;;) {
    const uint64_t offset = static_cast<uint64_t>(s.p - begin_);
    const Packet k = next(s.p, s.block_bytes);
    if constexpr (Emit) {
      if (!is_timing(k.type) && std::exchange(cycles_.last, false)) cycles_.bound = tells_flow(k.type);
    }
    if (k.type == Pk::kTnt && !s.clock.guest()) {
      if (s.pending.event_count != 0) {  // its FUP never came: there is no place to bind to
        if constexpr (Emit) report_bound_events(s);
        s.pending.clear();
      }
      s.tnt = k.value;
      s.tnt_count = k.ipc;
      s.p += k.size;
      break;
    }
    if (is_timing(k.type)) {
      if (!timing<Emit>(s, k)) break;
      continue;
    }
    if (k.type == Pk::kPad) {
      s.p = skip_pads(s.p + k.size, end_);
      continue;
    }
    if (fetch_one<Emit>(s, k, offset)) break;
  }
  if (std::exchange(s.clock_moved, false)) s.floor = s.clock.floor();
}

// True when s.pending is set. Moves s.p past what it used.
template <bool Emit>
bool PacketFetcher::fetch_one(State& s, const Packet& k, uint64_t offset) {
  Pending& d = s.pending;
  if (d.kind == Pending::Kind::kNone) d.offset = offset;
  if (s.clock.guest() && is_guest_flow(s, k.type)) [[unlikely]] {
    d.kind = Pending::Kind::kGuest;
    d.offset = offset;
    return true;
  }
  switch (k.type) {
    case Pk::kTip:
    case Pk::kPgd:
    case Pk::kPge:
      report_control_event<Emit>(s);
      s.p += k.size;
      d.offset = offset;
      d.has_ip = update_ip(k.ipc, k.value, s.last_ip);
      d.ip = s.last_ip;
      d.kind = k.type == Pk::kTip   ? Pending::Kind::kTip
               : k.type == Pk::kPgd ? Pending::Kind::kPgd
                                    : Pending::Kind::kPge;
      return true;
    case Pk::kFup:
      return fetch_fup<Emit>(s, k, offset);
    case Pk::kModeExec:
      s.p += k.size;
      d.mode = exec_mode(k.value);
      d.interrupts = interrupt_flag(k.value);
      bind(d, make_event(EventKind::kExecMode, s.now, 0, d.mode, d.interrupts ? 1 : 0, offset));
      return false;
    case Pk::kModeTsx: {
      s.p += k.size;
      const bool abort = (k.value & 2) != 0;
      const EventKind kind = abort                ? EventKind::kTsxAbort
                             : (k.value & 1) != 0 ? EventKind::kTsxBegin
                                                  : EventKind::kTsxCommit;
      if (!s.enabled) {  // standalone: there is no place in the flow to bind to
        if constexpr (Emit) log_.add_event(kind, s.now, 0, 0, 0, offset);
        return false;
      }
      d.tsx_abort = abort;
      bind(d, make_event(kind, s.now, 0, 0, 0, offset));
      return false;
    }
    case Pk::kPsb:
      fetch_sync<Emit>(s, offset);
      return true;
    case Pk::kOvf:
      report_control_event<Emit>(s);
      s.p += k.size;
      s.block_bytes = 0;
      d.offset = offset;
      d.kind = Pending::Kind::kOverflow;
      return true;
    case Pk::kEnd:
      report_control_event<Emit>(s);
      d.kind = Pending::Kind::kEos;
      d.offset = offset;
      return true;
    case Pk::kBad:
      report_control_event<Emit>(s);
      d.kind = Pending::Kind::kBad;
      d.offset = offset;
      return true;
    default:
      return side_packet<Emit>(s, k, offset);
  }
}

template <bool Emit>
bool PacketFetcher::side_packet(State& s, const Packet& k, uint64_t offset) {
  s.block_bytes = next_block_bytes(k, s.block_bytes);
  s.p += k.size;
  EventKind kind;
  switch (k.type) {
    case Pk::kPip:
      s.clock.update(k);
      s.maybe_guest = false;
      kind = EventKind::kPaging;
      break;
    case Pk::kVmcs:
      kind = EventKind::kVmcs;
      break;
    case Pk::kMnt:
      kind = EventKind::kMaintenance;
      break;
    case Pk::kStop:
      kind = EventKind::kTraceStopPacket;
      break;
    case Pk::kPtw:
      kind = EventKind::kPtwrite;
      break;
    case Pk::kExstop:
      kind = EventKind::kExstop;
      break;
    case Pk::kMwait:
      kind = EventKind::kMwait;
      break;
    case Pk::kPwre:
      kind = EventKind::kPwre;
      break;
    case Pk::kPwrx:
      kind = EventKind::kPwrx;
      break;
    case Pk::kBbp:
      kind = EventKind::kBbp;
      break;
    case Pk::kBip:
      kind = EventKind::kBip;
      break;
    case Pk::kBep:
      kind = EventKind::kBep;
      break;
    case Pk::kCfe:
      kind = EventKind::kCfe;
      break;
    case Pk::kEvd:
      kind = EventKind::kEvd;
      break;
    default:
      return false;  // PAD, TRIG without effect, PSBEND out of place
  }
  uint64_t a = k.value, b = k.value2;
  if (k.type == Pk::kPtw) b = k.ipc;
  if (k.type == Pk::kPwre)
    a = (k.value >> 12) & 0xf, b = packed_pwre((k.value >> 8) & 0xf, (k.value & 0x80) != 0);
  if (k.type == Pk::kPwrx) a = (k.value >> 4) & 0xf, b = packed_pwrx(k.value & 0xf, k.value >> 8 & 0xf);
  const Event e = make_event(kind, s.now, 0, a, b, offset);
  if (k.type == Pk::kExstop && !k.ip_bit && s.pending.event_count != 0) {
    // The MWAIT in front of it has no address either.
    if constexpr (Emit) report_bound_events(s);
    s.pending.clear();
  }
  const bool waits_for_fup = k.ip_bit || (k.type == Pk::kMwait && s.enabled);
  if (waits_for_fup) {
    bind(s.pending, e);
    s.pending.kind = Pending::Kind::kReach;  // completed by the FUP
    return false;
  }
  if (k.type == Pk::kCfe && s.enabled && !s.lost) {
    bind(s.pending, e);
    s.pending.async_event = true;
    return false;
  }
  if (k.type == Pk::kPtw && s.enabled && !s.lost) {
    bind(s.pending, e);
    s.pending.kind = Pending::Kind::kPtwrite;
    return true;
  }
  if constexpr (Emit) log_.add_event(e.kind, e.time, 0, e.a, e.b, offset);
  return false;
}

// A FUP either completes something before it (PTW, EXSTOP, MWAIT, CFE, BEP with IP bit; MODE.TSX; MODE.Exec)
// or is the first half of an asynchronous branch.
template <bool Emit>
bool PacketFetcher::fetch_fup(State& s, const Packet& k, uint64_t offset) {
  Pending& d = s.pending;
  s.p += k.size;
  const bool has_ip = update_ip(k.ipc, k.value, s.last_ip);
  d.at = s.last_ip;
  const bool completes =
      d.kind == Pending::Kind::kReach || (d.event_count != 0 && !d.tsx_abort && !d.async_event);
  if (d.event_count == 0) d.offset = offset;
  if (!has_ip) {
    d.kind = Pending::Kind::kBad;
    return true;
  }
  if (completes) {
    d.kind = Pending::Kind::kReach;
    return true;
  }
  d.kind = Pending::Kind::kAsync;
  fetch_async_end<Emit>(s);
  return true;
}

// FUP seen; the TIP or TIP.PGD of the same event follows, with state changes in between.
template <bool Emit>
void PacketFetcher::fetch_async_end(State& s) {
  Pending& d = s.pending;
  for (;;) {
    const Packet k = next(s.p, s.block_bytes);
    if (is_timing(k.type)) {
      if (!timing<Emit>(s, k)) return;
      continue;
    }
    switch (k.type) {
      case Pk::kTip:
      case Pk::kPgd:
        s.p += k.size;
        d.to_pgd = k.type == Pk::kPgd;
        d.has_ip = update_ip(k.ipc, k.value, s.last_ip);
        d.ip = s.last_ip;
        return;
      case Pk::kModeExec:
        d.mode = exec_mode(k.value);
        d.interrupts = interrupt_flag(k.value);
        s.p += k.size;
        break;
      case Pk::kPad:
      case Pk::kPip:
      case Pk::kVmcs:
      case Pk::kMnt:
      case Pk::kCfe:
      case Pk::kEvd:
        if (k.ip_bit) {  // an event of its own with its own FUP
          d.kind = Pending::Kind::kReach;
          d.half = true;
          return;
        }
        side_packet<Emit>(s, k, static_cast<uint64_t>(s.p - begin_));
        break;
      default:
        d.kind = Pending::Kind::kReach;
        // Else trace is missing anyway.
        d.half = k.type != Pk::kEnd && k.type != Pk::kBad && k.type != Pk::kOvf;
        return;
    }
  }
}

// The next sync point: only its address matters here, the next segment reads the rest.
template <bool Emit>
void PacketFetcher::fetch_sync(State& s, uint64_t offset) {
  const SyncGroup g = read_sync_group({s.p, end_}, s.clock, errata_);
  if constexpr (Emit) report_bound_events(s);
  s.pending.clear();
  Pending& d = s.pending;
  d.kind = Pending::Kind::kEnd;
  d.offset = offset;
  d.has_ip = g.has_ip;
  d.ip = g.ip;
  if (g.bad || g.overflow || overwritten_) d.kind = Pending::Kind::kEos;
}

template bool PacketFetcher::side_packet<true>(State&, const Packet&, uint64_t);
template bool PacketFetcher::timing<true>(State&, const Packet&);
template void PacketFetcher::fetch<true>(State&);
template void PacketFetcher::fetch<false>(State&);

}  // namespace asof::x86
