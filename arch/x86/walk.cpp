// The careful walk: block by block, over everything that the fast walk (fast.cpp) leaves to it.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "arch/x86/flow.h"

namespace asof::x86 {

// The trace hardware lost packets (OVF).
void Flow::overflow(State& s) {
  const uint64_t at = s.pending.offset;
  open_gap(s, Code::kTraceOverflow, "the trace hardware lost packets (OVF)", at);
  s.pending.clear();
  packets_.resolve_overflow(s);
  close_gap(s, s.enabled ? s.ip : 0, static_cast<uint64_t>(s.p - begin_));
  add_event(EventKind::kOverflow, s.now, s.enabled ? s.ip : 0, 0, 0, at);
  s.started = s.decisions;
  if (s.enabled) enter(s, s.ip);
  doubt_guest(s);
  if (config_.no_tnt && s.enabled && !s.lost) lose_without_tnt(s, static_cast<uint64_t>(s.p - begin_));
}

// SKD022: the FUP on a VM entry may be bogus; it is a plain stop then.
bool Flow::is_bogus_stop(const State& s) {
  if (!errata_.skd022 || !s.pending.to_pgd) return false;
  const Node* n = cache_->node(is_kernel_address(s.ip) ? kKernelSpace : s.user_space, s.ip, s.mode);
  return n->only != nullptr && n->only->block.count == 1 && n->only->last_vm_entry;
}

// What is pending stops the flow wherever it is, or at a certain address. Nothing: it does not happen here.
// kGo: it is done.
template <bool Emit>
std::optional<Flow::Stop> Flow::happens_here(State& s, Trial* trial) {
  const bool known = s.enabled && !s.lost;
  switch (s.pending.kind) {
    case Pending::Kind::kOverflow:
      if constexpr (!Emit) return Stop::kOut;
      overflow(s);
      return Stop::kGo;
    case Pending::Kind::kBad:
      if constexpr (Emit) {
        const uint64_t at = s.pending.offset;
        open_gap(
            s, Code::kBadPacket,
            [&] { return fmt::format("bytes at offset {:#x} are no packet", segment_->begin + at); }, at);
      }
      return Stop::kOut;
    case Pending::Kind::kTimeBack:
      without_flow<Emit>(s);
      return Stop::kOut;
    case Pending::Kind::kPge:
      if (!known) return std::nullopt;
      if (s.pending.has_ip && s.pending.ip == s.ip) {  // BDM70 on a machine whose model is not known
        s.pending.clear();
        return Stop::kGo;
      }
      if constexpr (!Emit) return Stop::kContradiction;
      contradiction(s, Code::kPacketOutOfPlace, "a TIP.PGE while tracing is on: its TIP.PGD is missing");
      return std::nullopt;
    default:
      break;
  }
  if (!known) return std::nullopt;
  if (s.pending.kind == Pending::Kind::kEnd && !s.pending.has_ip) {
    if constexpr (Emit) {
      open_gap(s, Code::kPacketOutOfPlace,
               "tracing is off at the next PSB+, though it was on: its TIP.PGD is missing", s.pending.offset);
    }
    return Stop::kOut;
  }
  if (!s.pending.binds() || s.pending.bound_ip() != s.ip) return std::nullopt;
  if (is_bogus_stop(s)) {
    s.pending.kind = Pending::Kind::kPgd;
    return Stop::kGo;
  }
  if (arrive<Emit>(s)) return used(s, trial);
  if constexpr (!Emit) trial->path = s.path;
  return Stop::kSegmentEnd;
}

// Remembers the node after `v` for the next visit; between kernel and user code whose address it is has to be
// asked each time.
void Flow::link_successor(State& s, Variant& v) {
  const BranchKind kind = v.block.kind;
  const bool direct = kind == BranchKind::kNone || kind == BranchKind::kCond || kind == BranchKind::kJump;
  if (!direct)
    s.life = kNoOrigin;
  else if (!is_poke(v.block.origin))
    s.life = v.block.origin;
  const bool same_half = is_kernel_address(s.ip) == (v.block.space == kKernelSpace);
  if (s.node != nullptr || !s.enabled || s.lost || !options_.block_cache || !same_half) return;
  Node* const n = cache_->node(v.block.space, s.ip, s.mode);
  if (kind == BranchKind::kRet || kind == BranchKind::kJumpInd || kind == BranchKind::kCallInd) {
    v.indirect = n;
    v.indirect_ip = s.ip;
    s.node = n;
  } else if (!needs_target(kind)) {
    if (s.ip == v.block.end() && !(kind == BranchKind::kJump || kind == BranchKind::kCall))
      v.fall = n;
    else if (s.ip == v.block.target)
      v.taken = n;
    s.node = n;
  }
}

// Over one block, or the part of it up to what is pending. kContradiction, kNoText: a gap is open (Emit), or
// the hypothesis ends.
template <bool Emit>
Flow::Stop Flow::step(State& s, Trial* trial) {
  Stop why = Stop::kGo;
  Node* const from = s.node;
  Variant* const v =
      from != nullptr && from->state == TextState::kStable ? from->only : text<Emit>(s, trial, why);
  if (v == nullptr) return why;
  meet(s, v->block, trial);
  uint32_t count = 0;
  if (s.tnt_count == 0 && cut_at_bound(s, v->block, count)) {
    emit<Emit>(s, *v, count, 0);
    s.ip = s.pending.binds() ? s.pending.bound_ip() : s.pending.ip;
    s.node = nullptr;
    return Stop::kGo;
  }
  const BranchKind kind = v->block.kind;
  if (s.tnt_count == 0 && s.pending.kind == Pending::Kind::kPtwrite && kind != BranchKind::kPtwrite &&
      (kind == BranchKind::kCond || needs_target(kind))) {
    // No PTWRITE before trace is needed: report it without an address and look further.
    if constexpr (Emit) packets_.report_bound_events(s);
    s.pending.clear();
    return Stop::kGo;
  }
  if (s.rets.split() && kind == BranchKind::kRet && s.tnt_count != 0) [[unlikely]] {
    if (!settle_return<Emit>(s, *v, trial, why)) return why;
  }
  const Stop stop = branch<Emit>(s, *v, trial);
  if (stop == Stop::kGo) link_successor(s, *v);
  return stop;
}

template <bool Emit>
Flow::Stop Flow::walk(State& s, Trial* trial) {
  for (;;) {
    if constexpr (Emit) {
      if (chunk_.steps.size() >= options_.chunk_steps && !gap_) [[unlikely]]
        flush(false);
      if (const RunId run = fast_start(s); run != RunId::kNone) fast_walk(s, run);
      if (s.lost && gap_) lost_walk(s);
    }
    if (s.tnt_count == 0 && s.pending.kind == Pending::Kind::kNone) packets_.fetch<Emit>(s);
    if (s.tnt_count == 0 && s.pending.kind >= Pending::Kind::kPge) [[unlikely]] {
      if (const auto stop = happens_here<Emit>(s, trial)) {
        if (*stop != Stop::kGo) return *stop;
        continue;
      }
    }
    if (!s.enabled || s.lost) [[unlikely]] {
      if constexpr (!Emit) {
        if (s.lost) return Stop::kOut;
      }
      // A hypothesis that ends while tracing is off has not met another one there.
      if (!without_flow<Emit>(s)) return Emit ? Stop::kSegmentEnd : Stop::kOut;
      continue;
    }
    if (s.tnt_count == 0 && s.pending.kind == Pending::Kind::kPgd && s.pending.has_ip &&
        s.pending.ip == s.ip) {
      stop_tracing<Emit>(s, nullptr);
      continue;
    }
    Stop stop = idle<Emit>(s);
    if (stop == Stop::kGo) [[likely]]
      stop = step<Emit>(s, trial);
    const bool gap_is_open = Emit && (stop == Stop::kContradiction || stop == Stop::kNoText);
    if (stop != Stop::kGo && !gap_is_open) return stop;
  }
}

template Flow::Stop Flow::walk<true>(State&, Trial*);
template Flow::Stop Flow::walk<false>(State&, Trial*);

}  // namespace asof::x86
