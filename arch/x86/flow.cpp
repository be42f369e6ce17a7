#include "arch/x86/flow.h"

#include <fmt/format.h>

#include <algorithm>

#include "arch/x86/segments.h"

namespace asof::x86 {
namespace {

// Blocks walked without using trace: beyond this the text has an endless loop that no CPU runs (E-FLOW-003).
constexpr uint32_t kMaxIdleBlocks = 1 << 16;

bool needs_target(BranchKind k) {
  switch (k) {
    case BranchKind::kJumpInd:
    case BranchKind::kCallInd:
    case BranchKind::kRet:
    case BranchKind::kFarCall:
    case BranchKind::kFarRet:
    case BranchKind::kFarJump:
      return true;
    default:
      return false;
  }
}

}  // namespace

Flow::Flow(const Config& config, std::span<const Stream> streams, const TextStore& text,
           const DecodeOptions& options)
    : config_(config), errata_(errata_of(config.cpu)), streams_(streams), options_(options), text_(text) {
  cache_.emplace(text_, options_.text_at);
}

void Flow::decode(const Segment& segment, ChunkSink& sink) {
  segment_ = &segment;
  sink_ = &sink;
  stream_ = &streams_[segment.stream];
  chunk_ = Chunk{};
  gap_.reset();
  verified_steps_ = wrmsr_steps_ = 0;
  next_flags_ = segment.before ? Step::kAfterGap : uint8_t{0};
  confidence_ = Confidence::kCertain;
  confidence_until_ = 0;
  ceiling_from_ = nullptr;
  if (segment.before) chunk_.gaps.push_back(*segment.before);
  if (segment.end > segment.begin) {
    const auto bytes = stream_->bytes(segment.begin, segment.tail_end, scratch_);
    begin_ = bytes.data();
    end_ = begin_ + bytes.size();
    eos_ = segment.tail_end == segment.end;
    tail_ = begin_ + (segment.end - segment.begin);

    State s;
    s.clock = Clock(config_, reference_at(*stream_, segment.begin), errata_.skl168);
    const SyncGroup g = read_sync_group(bytes, s.clock, errata_);
    s.clock = g.clock;
    s.now = s.clock.now();
    s.floor = s.lo = s.clock.floor();
    s.mode = g.mode;
    s.transaction = g.transaction;
    s.p = begin_ + g.size;
    add_event(EventKind::kPsb, s.now, g.has_ip ? g.ip : 0, 0, 0, 0);
    if (g.has_cr3) add_event(EventKind::kPaging, s.now, g.has_ip ? g.ip : 0, g.cr3, 0, 0);
    if (g.bad) {
      s.lost = s.enabled = true;
      open_gap(s, "E-DATA-001", "the sync group (PSB+) is damaged", g.size);
    } else if (g.has_ip) {
      s.enabled = true;
      s.last_ip = g.ip;
      enter(s, g.ip);
    }
    walk<true>(s, nullptr);
    close_gap(s, 0, static_cast<uint64_t>(tail_ - begin_));
  }
  flush(true);
}

// The flow is at `ip` by a packet: whose address space is it?
void Flow::enter(State& s, Addr ip) {
  s.ip = ip;
  s.node = nullptr;
  s.forced = nullptr;
  s.idle_blocks = 0;
}

uint64_t Flow::signature(const State& s) const {
  uint64_t h = s.ip * kHashFactor + s.rets.digest();
  h = h * kHashFactor + s.tnt_count;
  return h * kHashFactor + static_cast<uint64_t>(s.p - begin_);
}

// `count` pieces of trace were used up to get to s.ip. In a hypothesis: record, compare, and say when to
// stop.
Flow::Stop Flow::used(State& s, Trial* trial, uint64_t count) {
  s.decisions += count;
  s.idle_blocks = 0;
  if (trial == nullptr) {
    verified_steps_ = chunk_.steps.size();
    return Stop::kEnd;
  }
  const uint64_t sig = signature(s);
  const size_t index = s.decisions - trial->start - 1;
  if (trial->other != nullptr && index < trial->other->size() && (*trial->other)[index] == sig)
    return Stop::kMerged;
  if (trial->record != nullptr) trial->record->push_back(sig);
  return s.decisions >= trial->until ? Stop::kHorizon : Stop::kEnd;
}

// One executed block, or its first `count` instructions.
template <bool Emit>
void Flow::emit(State& s, const Variant& v, uint32_t count, uint8_t flags) {
  if constexpr (Emit) {
    Step step;
    step.block = &v.block;
    step.time = s.now;
    step.count = count;
    step.flags = static_cast<uint8_t>(flags | next_flags_ | (s.transaction ? Step::kTransaction : 0));
    step.confidence = s.decisions < confidence_until_ ? confidence_ : Confidence::kCertain;
    next_flags_ = 0;
    chunk_.steps.push_back(step);
  }
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

// SKL014: a direct branch out of the filter region gives a TIP.PGD without IP.
bool Flow::leaves_filter(const State& s, const Block& b) const {
  if (!errata_.skl014 || config_.filter.empty() || s.pending.kind != Pending::Kind::kPgd ||
      s.pending.has_ip) {
    return false;
  }
  return std::ranges::none_of(config_.filter, [&](const AddrRange& r) { return r.contains(b.target); });
}

template <bool Emit>
void Flow::stop_tracing(State& s, Variant* v) {
  if (v != nullptr) emit<Emit>(s, *v, v->block.count, 0);
  if constexpr (Emit) {
    add_event(EventKind::kTraceStop, s.now, s.pending.has_ip ? s.pending.ip : 0, 0, 0, s.pending.offset);
  }
  if (s.pending.mode != 0) s.mode = s.pending.mode;
  s.enabled = false;
  s.in_user = false;
  s.node = nullptr;
  s.pending = Pending{};
}

// A TIP.PGD without an address belongs to a far transfer, or to the WRMSR that switched tracing off. The flow
// met a near branch first: after the last WRMSR, if there was one, nothing ran; else tracing stopped on the
// way without a FUP, as hardware does at a fault on the first instruction after a TIP.PGE, and how far the
// flow got is not known.
template <bool Emit>
Flow::Stop Flow::stopped_somewhere(State& s, Trial* trial) {
  if constexpr (Emit) {
    if (wrmsr_steps_ > verified_steps_) {
      chunk_.steps.resize(wrmsr_steps_);
    } else {
      const size_t doubtful = roll_back();
      open_gap(
          s, "E-DATA-003",
          fmt::format(
              "tracing stopped (TIP.PGD without an address) where no far transfer is; up to {} blocks before"
              " the branch at {:#x} may have run",
              doubtful + 1, s.ip),
          s.pending.offset);
      close_gap(s, 0, s.pending.offset);
    }
  }
  stop_tracing<Emit>(s, nullptr);
  return used(s, trial);
}

// The flow stands where the pending packet binds. Returns false at the end of the segment.
template <bool Emit>
bool Flow::arrive(State& s) {
  Pending d = s.pending;
  if (d.kind == Pending::Kind::kEnd) return false;
  for (unsigned i = 0; i < d.event_count; ++i) {
    Event& e = d.events[i];
    if (e.kind == EventKind::kTsxBegin) s.transaction = true;
    if (e.kind == EventKind::kTsxCommit || e.kind == EventKind::kTsxAbort) s.transaction = false;
    if (e.kind == EventKind::kExecMode && e.a == s.mode) continue;
    if constexpr (Emit) add_event(e.kind, e.time, s.ip, e.a, e.b, e.offset);
  }
  if (d.mode != 0) s.mode = d.mode;
  s.node = nullptr;
  if (d.kind == Pending::Kind::kReach) {
    s.pending = Pending{};
    return true;
  }
  if constexpr (Emit)
    add_event(EventKind::kAsync, s.now, s.ip, d.to_pgd || !d.has_ip ? 0 : d.ip, 0, d.offset);
  if (d.to_pgd) {
    stop_tracing<Emit>(s, nullptr);
    return true;
  }
  s.pending = Pending{};
  if (!d.has_ip) {
    if constexpr (Emit) contradiction(s, "E-DATA-003", "a TIP without an address ends an asynchronous event");
    s.lost = true;
    return true;
  }
  if constexpr (Emit) next_flags_ |= Step::kAsyncEntry;
  enter(s, d.ip);
  return true;
}

// Tracing is off, or on at an unknown place: packets alone lead on. Returns false at the end of the segment.
template <bool Emit>
bool Flow::without_flow(State& s) {
  Pending& d = s.pending;
  s.tnt_count = 0;
  const uint64_t at = d.offset;
  switch (d.kind) {
    case Pending::Kind::kNone:
      break;
    case Pending::Kind::kPge:
    case Pending::Kind::kTip:
    case Pending::Kind::kAsync:
    case Pending::Kind::kReach: {
      if (d.mode != 0) s.mode = d.mode;
      const bool branch = d.kind == Pending::Kind::kPge || d.kind == Pending::Kind::kTip;
      const Addr ip = branch ? d.ip : d.at;
      if ((branch && !d.has_ip) || (!s.enabled && d.kind == Pending::Kind::kReach)) break;
      if constexpr (Emit) {
        if (!s.enabled && d.kind != Pending::Kind::kPge) {
          open_gap(s, "E-DATA-003", "a packet of running trace while tracing is off: its TIP.PGE is missing",
                   at);
        }
        close_gap(s, ip, at);
        if (d.kind == Pending::Kind::kPge) add_event(EventKind::kTraceStart, s.now, ip, 0, 0, at);
      }
      s.enabled = true;
      s.lost = false;
      s.in_user = false;
      enter(s, ip);
      if (branch) d = Pending{};
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
    case Pending::Kind::kBad:
    case Pending::Kind::kEos:
    case Pending::Kind::kEnd:
      return false;
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
  d = Pending{};
  return true;
}

// The target of an indirect branch, return or far transfer comes from a TIP; or tracing ends with it.
template <bool Emit>
Flow::Stop Flow::take_target(State& s, Variant& v, Trial* trial) {
  const Block& b = v.block;
  Pending tip = s.pending;
  if (s.tnt_count != 0) {
    // A deferred TIP (SDM, "Deferred TIPs"): it stands behind the TNT bits of branches that come after it. A
    // hypothesis is not given this way out.
    State ahead = s;
    const uint32_t count = s.tnt_count;
    ahead.tnt_count = 0;
    if (trial == nullptr) fetch<false>(ahead);
    if (trial != nullptr || ahead.tnt_count != 0 || ahead.pending.kind != Pending::Kind::kTip) {
      if constexpr (Emit) {
        contradiction(s, "E-FLOW-001",
                      fmt::format("an indirect branch ends the block at {:#x}, but {}", b.ip, describe(s)));
      }
      return Stop::kContradiction;
    }
    tip = ahead.pending;
    s.p = ahead.p;
    s.last_ip = ahead.last_ip;
    s.clock = ahead.clock;
    s.now = ahead.now;
    s.tnt_count = count;
  } else if (tip.kind == Pending::Kind::kPgd) {
    const bool near =
        b.kind == BranchKind::kJumpInd || b.kind == BranchKind::kCallInd || b.kind == BranchKind::kRet;
    if (near && !tip.has_ip) return stopped_somewhere<Emit>(s, trial);
    stop_tracing<Emit>(s, &v);
    return used(s, trial);
  } else if (tip.kind == Pending::Kind::kEos) {
    emit<Emit>(s, v, b.count, 0);
    return Stop::kOut;  // nothing more can be said
  } else if (tip.kind != Pending::Kind::kTip) {
    if constexpr (Emit) {
      contradiction(s, "E-FLOW-001",
                    fmt::format("an indirect branch ends the block at {:#x}, but {}", b.ip, describe(s)));
    }
    return Stop::kContradiction;
  }
  emit<Emit>(s, v, b.count, Step::kTaken);
  if (b.kind == BranchKind::kCallInd) s.rets.push(b.end());
  if (s.tnt_count == 0) s.pending = Pending{};
  if (tip.mode != 0) {
    if constexpr (Emit) {
      if (tip.mode != s.mode) add_event(EventKind::kExecMode, s.now, tip.ip, tip.mode, 0, tip.offset);
    }
    s.mode = tip.mode;
  }
  if (!tip.has_ip) {
    if constexpr (Emit) contradiction(s, "E-DATA-003", "a TIP without an address");
    s.lost = true;
    s.enabled = true;
    return used(s, trial);
  }
  if (v.indirect != nullptr && v.indirect_ip == tip.ip && v.indirect->mode == s.mode &&
      (v.indirect->space == kKernelSpace || v.indirect->space == s.user_space)) {
    enter(s, tip.ip);
    s.node = v.indirect;
    return used(s, trial);
  }
  enter(s, tip.ip);
  return used(s, trial);
}

// The block ran to its end: where does it lead? kEnd: walk on.
template <bool Emit>
Flow::Stop Flow::branch(State& s, Variant& v, Trial* trial) {
  const Block& b = v.block;
  switch (b.kind) {
    case BranchKind::kCond: {
      if (s.tnt_count == 0) break;
      const bool taken = ((s.tnt >> --s.tnt_count) & 1) != 0;
      emit<Emit>(s, v, b.count, taken ? Step::kTaken : 0);
      s.ip = taken ? b.target : b.end();
      s.node = taken ? v.taken : v.fall;
      return used(s, trial);
    }
    case BranchKind::kRet: {
      if (s.tnt_count == 0) break;
      Addr to = 0;
      if (((s.tnt >> (s.tnt_count - 1)) & 1) == 0) break;
      if (!s.rets.pop(to)) {
        if constexpr (Emit) {
          contradiction(s, "E-FLOW-002",
                        fmt::format("a compressed return at {:#x} has no call", b.end() - 1));
        }
        return Stop::kContradiction;
      }
      --s.tnt_count;
      emit<Emit>(s, v, b.count, Step::kTaken);
      s.ip = to;
      s.node = v.indirect_ip == to ? v.indirect : nullptr;
      return used(s, trial);
    }
    case BranchKind::kJump:
    case BranchKind::kCall:
      if (s.tnt_count == 0 && leaves_filter(s, b)) {
        stop_tracing<Emit>(s, &v);
        return used(s, trial);
      }
      emit<Emit>(s, v, b.count, Step::kTaken);
      // "call next" reads the program counter; hardware does not record it (SDM, "RET compression").
      if (b.kind == BranchKind::kCall && b.target != b.end()) s.rets.push(b.end());
      s.ip = b.target;
      s.node = v.taken;
      return Stop::kEnd;
    case BranchKind::kPtwrite: {
      const bool binds = s.tnt_count == 0 && s.pending.kind == Pending::Kind::kPtwrite;
      emit<Emit>(s, v, b.count, 0);
      s.ip = b.end();
      s.node = v.fall;
      if (!binds) return Stop::kEnd;
      if constexpr (Emit) {
        const Event& e = s.pending.events[0];
        add_event(e.kind, s.now, b.end() - b.lengths[b.count - 1], e.a, e.b, e.offset);
      }
      s.pending = Pending{};
      return used(s, trial);
    }
    case BranchKind::kPaging:
      if (config_.cr3_filter && v.last_writes_cr3 && s.tnt_count == 0 &&
          s.pending.kind == Pending::Kind::kPgd && !s.pending.has_ip) {
        stop_tracing<Emit>(s, &v);
        return used(s, trial);
      }
      [[fallthrough]];
    case BranchKind::kNone:
      emit<Emit>(s, v, b.count, 0);
      if constexpr (Emit) {
        if (v.last_wrmsr) wrmsr_steps_ = chunk_.steps.size();
      }
      s.ip = b.end();
      s.node = v.fall;
      return Stop::kEnd;
    default:
      break;
  }
  if (needs_target(b.kind)) return take_target<Emit>(s, v, trial);
  // A conditional branch, and no TNT bit.
  if (s.pending.kind == Pending::Kind::kPgd) {
    if (!s.pending.has_ip) return stopped_somewhere<Emit>(s, trial);
    if (s.pending.ip == b.target || s.pending.ip == b.end()) {
      stop_tracing<Emit>(s, &v);
      return used(s, trial);
    }
  }
  if (s.pending.kind == Pending::Kind::kEos) {
    emit<Emit>(s, v, b.count, 0);
    return Stop::kOut;
  }
  if (errata_.bdm64 && s.pending.tsx_abort && s.pending.kind == Pending::Kind::kAsync) {
    emit<Emit>(s, v, b.count, 0);  // BDM64: its TNT bit is missing, the abort's address counts
    enter(s, s.pending.at);
    return Stop::kEnd;
  }
  if constexpr (Emit) {
    const bool bound = s.pending.kind == Pending::Kind::kAsync || s.pending.kind == Pending::Kind::kReach;
    const char* code = s.pending.kind == Pending::Kind::kEnd ? "E-FLOW-006"
                       : bound                               ? "E-FLOW-004"
                                                             : "E-FLOW-001";
    contradiction(s, code,
                  fmt::format("a conditional branch ends the block at {:#x}, but {}", b.ip, describe(s)));
  }
  return Stop::kContradiction;
}

template <bool Emit>
Flow::Stop Flow::walk(State& s, Trial* trial) {
  for (;;) {
    if (s.tnt_count == 0 && s.pending.kind == Pending::Kind::kNone) fetch<Emit>(s);
    if (s.tnt_count == 0 && s.pending.kind >= Pending::Kind::kPge) [[unlikely]] {
      // Things that stop the flow wherever it is, or at a certain address.
      if (s.pending.kind == Pending::Kind::kOverflow) {
        if constexpr (!Emit) return Stop::kOut;
        const uint64_t at = s.pending.offset;
        open_gap(s, "E-LOST-003", "the trace hardware lost packets (OVF)", at);
        s.pending = Pending{};
        resolve_overflow(s);
        close_gap(s, s.enabled ? s.ip : 0, static_cast<uint64_t>(s.p - begin_));
        add_event(EventKind::kOverflow, s.now, s.enabled ? s.ip : 0, 0, 0, at);
        if (s.enabled) enter(s, s.ip);
        continue;
      }
      if (s.pending.kind == Pending::Kind::kBad) {
        if constexpr (Emit) {
          const uint64_t at = s.pending.offset;
          open_gap(s, "E-DATA-001", fmt::format("bytes at offset {:#x} are no packet", segment_->begin + at),
                   at);
        }
        return Stop::kOut;
      }
      if (s.enabled && !s.lost && s.pending.kind == Pending::Kind::kPge) {
        if (s.pending.has_ip && s.pending.ip == s.ip) {  // BDM70 on a machine whose model is not known
          s.pending = Pending{};
          continue;
        }
        if constexpr (!Emit) return Stop::kContradiction;
        contradiction(s, "E-DATA-003", "a TIP.PGE while tracing is on: its TIP.PGD is missing");
      }
      if (s.enabled && !s.lost && s.pending.kind == Pending::Kind::kEnd && !s.pending.has_ip)
        return Stop::kOut;
      if (s.enabled && !s.lost && s.pending.binds() && s.pending.bound_ip() == s.ip) {
        const bool vm_entry = errata_.skd022 && s.pending.to_pgd;
        if (vm_entry) {
          // SKD022: the FUP on a VM entry may be bogus; it is a plain stop then.
          Node* n = cache_->node(is_kernel_address(s.ip) ? kKernelSpace : s.user_space, s.ip, s.mode);
          if (n->state == TextState::kStable && n->only->block.count == 1 && n->only->last_vm_entry) {
            s.pending.kind = Pending::Kind::kPgd;
            continue;
          }
        }
        if (!arrive<Emit>(s)) return Stop::kEnd;
        const Stop stop = used(s, trial);
        if (stop != Stop::kEnd) return stop;
        continue;
      }
    }
    if (!s.enabled || s.lost) [[unlikely]] {
      if constexpr (!Emit) {
        if (s.lost) return Stop::kOut;
      }
      if (!without_flow<Emit>(s)) return Stop::kEnd;
      continue;
    }
    if (s.tnt_count == 0 && s.pending.kind == Pending::Kind::kPgd && s.pending.has_ip &&
        s.pending.ip == s.ip) {
      stop_tracing<Emit>(s, nullptr);
      continue;
    }
    if constexpr (Emit) {
      if (chunk_.steps.size() >= options_.chunk_steps && !gap_) [[unlikely]]
        flush(false);
    }
    if (++s.idle_blocks > kMaxIdleBlocks) [[unlikely]] {
      if constexpr (Emit) {
        contradiction(s, "E-FLOW-003",
                      fmt::format("{} blocks from {:#x} on without use of the trace", kMaxIdleBlocks, s.ip));
        s.idle_blocks = 0;
        continue;
      }
      return Stop::kContradiction;
    }

    Stop why = Stop::kEnd;
    Variant* v = nullptr;
    Node* const from = s.node;
    if (from != nullptr && from->state == TextState::kStable) [[likely]] {
      v = from->only;
    } else {
      v = text_of_spaces<Emit>(s, trial, why);
      if (v == nullptr) {
        if constexpr (Emit) continue;  // the gap is open
        return why;
      }
    }
    uint32_t count = 0;
    if (s.tnt_count == 0 && cut_at_bound(s, v->block, count)) {
      emit<Emit>(s, *v, count, 0);
      s.ip = s.pending.binds() ? s.pending.bound_ip() : s.pending.ip;
      s.node = nullptr;
      continue;
    }
    if (s.tnt_count == 0 && s.pending.kind == Pending::Kind::kPtwrite &&
        v->block.kind != BranchKind::kPtwrite &&
        (v->block.kind == BranchKind::kCond || needs_target(v->block.kind))) {
      // No PTWRITE before trace is needed: report it without an address and look further.
      if constexpr (Emit) report_bound_events(s);
      s.pending = Pending{};
      continue;
    }
    const Stop stop = branch<Emit>(s, *v, trial);
    if (stop == Stop::kEnd) {
      // Learn the way for the next visit.
      if (s.node == nullptr && s.enabled && !s.lost) {
        Node* n = cache_->node(is_kernel_address(s.ip) ? kKernelSpace : v->block.space, s.ip, s.mode);
        const BranchKind kind = v->block.kind;
        if (kind == BranchKind::kRet || kind == BranchKind::kJumpInd || kind == BranchKind::kCallInd) {
          v->indirect = n;
          v->indirect_ip = s.ip;
          s.node = n;
        } else if (!needs_target(kind)) {
          if (s.ip == v->block.end() && !(kind == BranchKind::kJump || kind == BranchKind::kCall))
            v->fall = n;
          else if (s.ip == v->block.target)
            v->taken = n;
          s.node = n;
        }
      }
      continue;
    }
    if (stop == Stop::kContradiction) {
      if constexpr (Emit) continue;
      return stop;
    }
    if constexpr (Emit) {
      if (stop == Stop::kOut) return Stop::kEnd;  // end of the stretch
    }
    return stop;
  }
}

template Flow::Stop Flow::walk<true>(State&, Trial*);
template Flow::Stop Flow::walk<false>(State&, Trial*);

}  // namespace asof::x86
