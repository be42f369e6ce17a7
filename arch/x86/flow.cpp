#include "arch/x86/flow.h"

#include <fmt/format.h>

#include <algorithm>

#include "arch/x86/segments.h"
#include "arch/x86/time_order.h"

namespace asof::x86 {

Flow::Flow(const Config& config, std::span<const Stream> streams, const TextStore& text,
           const DecodeOptions& options, std::shared_ptr<CodeMap> code, std::shared_ptr<CodeMap> unsure_code)
    : Hypotheses(text, options, trace_bytes(streams)),
      config_(config),
      errata_(errata_of(config.cpu)),
      anchors_(config, text, options.clock_error),
      packets_(errata_, *this, options.cycles),
      streams_(streams),
      blocks_(text, options.text_at, options.block_cache, Isa()) {
  cache_ = &blocks_;
  for (const Addr a : Anchors::hooks(config, text, options)) hook(*cache_, a);
  if (options.cycles) return;  // the fast walk does not say where packets end
  if (code != nullptr) run_caches_[0].emplace(std::move(code));
  if (unsure_code != nullptr) run_caches_[1].emplace(std::move(unsure_code));
}

void Flow::decode(const Segment& segment, ChunkSink& sink) {
  start_log(segment, sink);
  stream_ = &streams_[segment.stream];
  work_.start(segment.end - segment.begin);
  ceiling_from_ = nullptr;
  guest_in_segment_.reset();
  if (segment.end > segment.begin) {
    const auto bytes = stream_->bytes(segment.begin, segment.tail_end, scratch_);
    begin_ = bytes.data();
    end_ = begin_ + bytes.size();
    tail_ = begin_ + (segment.end - segment.begin);
    packets_.start(begin_, tail_, end_);
    start_fast();

    // What the fast walk may write before it gives the chunk away, and the room that it has open then.
    const size_t most = options_.chunk_steps + 2 * kFastRoom;
    chunk_.steps.reserve(std::min<size_t>(4 * bytes.size(), most), usual_times_);
    State s;
    s.clock = Clock(config_, reference_at(*stream_, segment.begin), errata_.skl168);
    SyncGroup g;
    g.clock = s.clock;
    const Packet first = read_packet(begin_, end_);
    const bool starts = first.type == Pk::kTsc;  // read_start()
    if (starts)
      g.clock.update(first);  // no code runs before it
    else
      g = read_sync_group(bytes, s.clock, errata_);
    s.clock = g.clock;
    if (g.guest) s.clock.set_not_before(segment.start_time);
    s.now = s.clock.now();
    s.floor = s.lo = s.clock.floor();
    s.mode = g.mode;
    s.transaction = g.transaction;
    if (config_.event_trace) s.interrupts = g.interrupts;
    s.p = begin_ + g.size;
    // A damaged PSB+ may reach beyond the segment.
    overwritten_ = segment.overwritten || (s.p < tail_ && runs_back_inside({s.p, tail_}, s.clock));
    if (overwritten_) packets_.expect_time_back();
    choose_code(s);
    s.unsure = unsure_ == walk::Unsure::kAlways;
    anchors_.start(stream_->cpu, overwritten_ ? kTimeMin : segment.start_time);
    if (overwritten_) doubt();
    if (!starts) {
      const uint64_t interrupts = s.interrupts ? (*s.interrupts ? kInterruptsOn : kInterruptsOff) : 0;
      add_event(EventKind::kPsb, s.now, g.has_ip ? g.ip : 0, g.cbr, interrupts, 0);
    }
    if (g.has_cr3) add_event(EventKind::kPaging, s.now, g.has_ip ? g.ip : 0, g.cr3, g.non_root ? 1 : 0, 0);
    if (g.bad) {
      s.lost = s.enabled = true;
      open_gap(s, Code::kBadPacket, "the sync group (PSB+) is damaged", g.size);
    } else if (g.has_ip && !config_.no_branches) {
      s.enabled = true;
      s.last_ip = g.ip;
      enter(s, g.ip);
      if (g.guest)
        enter_guest(s, g.size);
      else if (config_.no_tnt)
        lose_without_tnt(s, g.size);
    }
    walk<true>(s, nullptr);
    close_gap(s, 0, static_cast<uint64_t>(tail_ - begin_));
  }
  flush(true);
}

void Flow::count_visit(State& s, const Node& node) {
  if (!anchors_.counting()) return;
  if (path_in_doubt(s)) {  // it may never have come here
    s.visits.pokes_uncounted = true;
    return;
  }
  // The fast walk waits for it, too.
  if (const Addr back = anchors_.visit(s.visits, node.ip, s.rets, bounds(s).hi)) hook(*cache_, back);
}

// The flow is at `ip` by a packet: whose address space is it?
void Flow::enter(State& s, Addr ip) {
  s.ip = ip;
  s.node = nullptr;
  s.forced = nullptr;
  s.idle_blocks = 0;
  s.life = kNoOrigin;
  place_known(s);
}

// A packet says where the flow is, whichever way it came.
void Flow::place_known(State& s) const {
  if (!s.unsure || unsure_ == walk::Unsure::kAlways) return;
  s.unsure = false;
  s.rets.doubt();
}

// A pending FUP inside the block: how many instructions come before it. False: it is not on one of its
// boundaries.
bool Flow::cut_at_bound(const State& s, const Block& b, uint32_t& count) const {
  Addr at = 0;
  if (s.pending.binds())
    at = s.pending.bound_ip();
  else if (s.pending.kind == Pending::Kind::kPgd && s.pending.has_ip)
    at = s.pending.ip;
  else
    return false;
  if (at <= b.ip || at >= b.end()) return false;
  Addr ip = b.ip;
  for (count = 0; ip < at; ++count) ip += b.lengths[count];
  return ip == at;
}

// What a MODE.Exec says from `ip` on. Outside of Event Trace, its interrupt flag says nothing.
template <bool Emit>
void Flow::change_mode(State& s, const PendingPacket& d, Addr ip) {
  if (d.mode == 0) return;
  const bool switched = config_.event_trace && s.interrupts != d.interrupts;
  if constexpr (Emit) {
    if (d.mode != s.mode || switched)
      add_event(EventKind::kExecMode, s.now, ip, d.mode, d.interrupts ? 1 : 0, d.offset);
  }
  s.mode = d.mode;
  if (config_.event_trace) s.interrupts = d.interrupts;
}

// The flow is where the pending packet binds. Returns false at the end of the segment.
template <bool Emit>
bool Flow::arrive(State& s) {
  Pending d = s.pending;
  if (d.kind == Pending::Kind::kEnd) return false;
  for (unsigned i = 0; i < d.event_count; ++i) {
    Event& e = d.events[i];
    if (e.kind == EventKind::kTsxBegin) s.transaction = true;
    if (e.kind == EventKind::kTsxCommit || e.kind == EventKind::kTsxAbort) s.transaction = false;
    if (e.kind == EventKind::kExecMode) continue;  // of all of them the last counts
    if constexpr (Emit) add_event(e.kind, e.time, s.ip, e.a, e.b, e.offset);
  }
  change_mode<Emit>(s, d, d.kind == Pending::Kind::kReach ? s.ip : d.has_ip ? d.ip : 0);
  s.node = nullptr;
  place_known(s);
  if (d.kind == Pending::Kind::kReach) {
    s.pending.clear();
    if (!d.half) return true;
    if constexpr (Emit) {
      doubt_unconfirmed();  // damage may have made the FUP
      contradiction(s, Code::kPacketOutOfPlace,
                    "an asynchronous event (FUP) whose TIP or TIP.PGD is missing");
    }
    s.lost = true;
    return true;
  }
  if constexpr (Emit)
    add_event(EventKind::kAsync, s.now, s.ip, d.to_pgd || !d.has_ip ? 0 : d.ip, 0, d.offset);
  if (d.to_pgd) {
    stop_tracing<Emit>(s, nullptr);
    return true;
  }
  s.pending.clear();
  if (!d.has_ip) {
    if constexpr (Emit)
      contradiction(s, Code::kPacketOutOfPlace, "a TIP without an address ends an asynchronous event");
    s.lost = true;
    return true;
  }
  if constexpr (Emit) next_flags_ |= Step::kAsyncEntry;
  enter(s, d.ip);
  if constexpr (Emit) {
    if (s.clock.guest()) enter_guest(s, d.offset);
  }
  return true;
}

// Tracing is off, and by the next PSB+ it is on.
void Flow::note_missing_start(State& s) {
  const uint8_t* const psb = begin_ + s.pending.offset;
  const SyncGroup next = read_sync_group({psb, end_}, s.clock, errata_);
  if (config_.no_branches || next.guest || s.clock.guest() || s.maybe_guest) return;
  const auto switched = std::find_if(chunk_.events.rbegin(), chunk_.events.rend(), [](const Event& e) {
    return e.kind == EventKind::kTraceStart || e.kind == EventKind::kTraceStop ||
           e.kind == EventKind::kOverflow;
  });
  // It was off by an OVF: the PSB+ says where it went on.
  if (switched != chunk_.events.rend() && switched->kind == EventKind::kOverflow) return;
  if (pge_ahead(psb + next.size, end_, config_.guest_text))
    return;  // BDM70 on a machine whose model is not known
  open_gap(s, Code::kPacketOutOfPlace,
           "tracing is on at the next PSB+, though it was off: its TIP.PGE is missing", s.pending.offset);
}

// Tracing is off, or on at an unknown place: packets alone lead on. Returns false at the end of the segment.
template <bool Emit>
bool Flow::without_flow(State& s) {
  Pending& d = s.pending;
  const uint64_t at = d.offset;
  constexpr const char* kOff = "a packet of running trace while tracing is off: its TIP.PGE is missing";
  if constexpr (Emit) {
    if (!s.enabled && s.tnt_count != 0) open_gap(s, Code::kPacketOutOfPlace, kOff, offset_in_use(s));
  }
  s.tnt_count = 0;
  switch (d.kind) {
    case Pending::Kind::kNone:
      break;
    case Pending::Kind::kPge:
    case Pending::Kind::kTip:
    case Pending::Kind::kAsync:
    case Pending::Kind::kReach: {
      const bool branch = d.kind == Pending::Kind::kPge || d.kind == Pending::Kind::kTip;
      const Addr ip = branch ? d.ip : d.at;
      change_mode<Emit>(s, d, branch || d.kind == Pending::Kind::kReach ? ip : d.ip);
      if ((branch && !d.has_ip) || d.half || (!s.enabled && d.kind == Pending::Kind::kReach)) break;
      if constexpr (Emit) {
        if (!s.enabled && d.kind != Pending::Kind::kPge) {
          open_gap(s, Code::kPacketOutOfPlace, kOff, at);
        }
        close_gap(s, ip, at);
        if (d.kind == Pending::Kind::kPge) add_event(EventKind::kTraceStart, s.now, ip, 0, 0, at);
      }
      if (config_.no_branches) break;  // not of the flow
      s.enabled = true;
      s.lost = false;
      s.in_user = false;
      s.started = s.decisions;
      enter(s, ip);
      if constexpr (Emit) {
        if (config_.no_tnt) {
          packets_.report_bound_events(s);
          lose_without_tnt(s, at);
          d.clear();
          return true;
        }
      }
      if (branch) d.clear();
      return true;
    }
    case Pending::Kind::kPgd:
      if constexpr (Emit) {
        if (s.enabled) close_gap(s, 0, at);
        add_event(EventKind::kTraceStop, s.now, d.has_ip ? d.ip : 0, 0, 0, at);
      }
      s.enabled = s.lost = false;
      break;
    case Pending::Kind::kOverflow:
      if constexpr (Emit) close_gap(s, 0, at);
      return true;  // walk() resolves it
    case Pending::Kind::kTimeBack:
      if constexpr (Emit)
        open_gap(s, Code::kTraceOverwritten,
                 "time runs backwards here: trace was overwritten before it was read", at);
      return false;
    case Pending::Kind::kEnd:
      if constexpr (Emit) {
        if (!s.enabled && d.has_ip) note_missing_start(s);
      }
      return false;
    case Pending::Kind::kBad:
    case Pending::Kind::kEos:
      return false;
    case Pending::Kind::kGuest:
      if constexpr (Emit) {
        packets_.report_bound_events(s);
        d.clear();
        guest_walk(s);
      }
      return Emit;
    case Pending::Kind::kPtwrite:
      break;
  }
  if constexpr (Emit) {
    for (unsigned i = 0; i < d.event_count; ++i) {
      if (d.events[i].kind != EventKind::kExecMode) {
        add_event(d.events[i].kind, d.events[i].time, 0, d.events[i].a, d.events[i].b, d.events[i].offset);
      }
    }
  }
  d.clear();
  return true;
}

template void Flow::change_mode<true>(State&, const PendingPacket&, Addr);
template void Flow::change_mode<false>(State&, const PendingPacket&, Addr);
template bool Flow::arrive<true>(State&);
template bool Flow::arrive<false>(State&);
template bool Flow::without_flow<true>(State&);
template bool Flow::without_flow<false>(State&);

}  // namespace asof::x86
