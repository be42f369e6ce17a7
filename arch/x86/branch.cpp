// How a block ends: where the flow goes from there, and what it uses of the trace to know.
#include <fmt/format.h>

#include <algorithm>

#include "arch/x86/flow.h"

namespace asof::x86 {

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

// SKL014: a direct branch out of the filter region gives a TIP.PGD without IP.
bool Flow::leaves_filter(const State& s, const Block& b) const {
  const bool known = !config_.filter.empty() && std::ranges::none_of(config_.filter, &AddrRange::empty);
  if (!errata_.skl014 || !known || s.pending.kind != Pending::Kind::kPgd || s.pending.has_ip) {
    return false;
  }
  return std::ranges::none_of(config_.filter, [&](const AddrRange& r) { return r.contains(b.target); });
}

template <bool Emit>
void Flow::stop_tracing(State& s, Variant* v) {
  if (v != nullptr) emit<Emit>(s, *v, v->block.count, 0);
  change_mode<Emit>(s, s.pending, s.pending.has_ip ? s.pending.ip : 0);
  if constexpr (Emit) {
    add_event(EventKind::kTraceStop, s.now, s.pending.has_ip ? s.pending.ip : 0, 0, 0, s.pending.offset);
  }
  s.enabled = false;
  s.in_user = false;
  s.node = nullptr;
  s.pending.clear();
}

// The trace ends in the middle of everything, and `v` with a branch that needs more of it. What ran since the last
// packet is only likely: packets of an interrupt may be among those that are missing, and the interrupt that a full
// buffer causes comes just then.
template <bool Emit>
Flow::Stop Flow::out_of_trace(State& s, Variant& v) {
  emit<Emit>(s, v, v.block.count, 0);
  if constexpr (Emit) doubt_unconfirmed();
  return Stop::kOut;
}

// The target of an indirect branch, return or far transfer comes from a TIP; or tracing ends with it.
template <bool Emit>
Flow::Stop Flow::take_target(State& s, Variant& v, Trial* trial) {
  const Block& b = v.block;
  const PendingPacket tip = s.pending;
  if (s.tnt_count != 0) {
    // The SDM lets a processor defer TIPs until after the TNT bits of later branches; none is known to, and
    // no peer decodes it. Taken for that, wrong text at the place of an indirect branch would pass unnoticed.
    if constexpr (Emit) {
      contradiction(s, Code::kTraceContradictsText, [&] {
        return fmt::format("an indirect branch ends the block at {:#x}, but {}", b.ip, describe(s));
      });
    }
    return Stop::kContradiction;
  }
  if (tip.kind == Pending::Kind::kPgd) {
    const bool near =
        b.kind == BranchKind::kJumpInd || b.kind == BranchKind::kCallInd || b.kind == BranchKind::kRet;
    if (near && !tip.has_ip) return stopped_somewhere<Emit>(s, v, trial);
    if (b.kind == BranchKind::kRet) s.rets.uncompressed();
    stop_tracing<Emit>(s, &v);
    return used(s, trial);
  }
  if (tip.kind == Pending::Kind::kGuest && v.last_vm_entry) {
    emit<Emit>(s, v, b.count, Step::kTaken);
    s.pending.clear();
    s.ip = b.end();
    const Stop stop = used(s, trial);
    if constexpr (!Emit) return stop == Stop::kGo ? Stop::kOut : stop;
    enter_guest(s, tip.offset);
    return Stop::kContradiction;
  }
  if (tip.kind == Pending::Kind::kEos) return out_of_trace<Emit>(s, v);
  if (tip.kind != Pending::Kind::kTip) {
    if constexpr (Emit) {
      contradiction(s, Code::kTraceContradictsText, [&] {
        return fmt::format("an indirect branch ends the block at {:#x}, but {}", b.ip, describe(s));
      });
    }
    return Stop::kContradiction;
  }
  emit<Emit>(s, v, b.count, Step::kTaken);
  if (b.kind == BranchKind::kCallInd) call(s, b.end());
  if (b.kind == BranchKind::kRet) s.rets.uncompressed();
  s.pending.clear();
  change_mode<Emit>(s, tip, tip.ip);
  if (!tip.has_ip) {
    if constexpr (Emit) contradiction(s, Code::kPacketOutOfPlace, "a TIP without an address");
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

// The block ran to its end: where does it lead? kGo: walk on.
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
      const bool sure = s.rets.next_is_sure();
      if (!s.rets.pop(to)) {
        if constexpr (!Emit) {
          if (!sure && !s.calls_missing) {  // the call may have been missed where the flow was in doubt
            trial->unsure = true;
            return Stop::kContradiction;
          }
        }
        if (s.calls_missing ||
            !sure) {  // the return itself is as the trace says; where it leads to was missed
          --s.tnt_count;
          emit<Emit>(s, v, b.count, Step::kTaken);
          if constexpr (!Emit) {
            // No signature: the place is not known, and the state is where it was before the return.
            trial->end = ++s.decisions;
            return Stop::kOut;
          }
          used(s, trial);
          lose(s, Code::kReturnWithoutItsCall, [&] {
            return text_with("the return at ", b.end() - 1,
                             s.calls_missing ? " goes to a call in an earlier gap"
                                             : " goes to a call in code that was in doubt");
          });
          return Stop::kContradiction;
        }
        if constexpr (Emit) {
          contradiction(s, Code::kReturnWithoutItsCall, [&] {
            return fmt::format("a compressed return at {:#x} {}", b.end() - 1,
                               config_.no_ret_compression
                                   ? "in a trace that was recorded without such returns"
                                   : "has no call");
          });
        }
        return Stop::kContradiction;
      }
      --s.tnt_count;
      // The return itself is in doubt with its target: where no instruction runs before the next address,
      // nothing else would show that one may be missing here.
      s.unsure = s.unsure || !sure;
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
      if (b.kind == BranchKind::kCall && b.target != b.end()) call(s, b.end());
      s.ip = b.target;
      s.node = v.taken;
      return Stop::kGo;
    case BranchKind::kPtwrite: {
      const bool binds = s.tnt_count == 0 && s.pending.kind == Pending::Kind::kPtwrite;
      emit<Emit>(s, v, b.count, 0);
      s.ip = b.end();
      s.node = v.fall;
      if (!binds) return Stop::kGo;
      if constexpr (Emit) {
        const Event& e = s.pending.events[0];
        add_event(e.kind, s.now, b.end() - b.lengths[b.count - 1], e.a, e.b, e.offset);
      }
      s.pending.clear();
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
        if (v.last_wrmsr) marked_steps_ = chunk_.steps.size();
      }
      s.ip = b.end();
      s.node = v.fall;
      return Stop::kGo;
    default:
      break;
  }
  if (needs_target(b.kind)) return take_target<Emit>(s, v, trial);
  // A conditional branch, and no TNT bit.
  if (s.pending.kind == Pending::Kind::kPgd) {
    if (!s.pending.has_ip) return stopped_somewhere<Emit>(s, v, trial);
    if (s.pending.ip == b.target || s.pending.ip == b.end()) {
      stop_tracing<Emit>(s, &v);
      return used(s, trial);
    }
  }
  if (s.pending.kind == Pending::Kind::kEos) return out_of_trace<Emit>(s, v);
  if (errata_.bdm64 && s.pending.tsx_abort && s.pending.kind == Pending::Kind::kAsync) {
    emit<Emit>(s, v, b.count, 0);  // BDM64: its TNT bit is missing, the abort's address counts
    enter(s, s.pending.at);
    return Stop::kGo;
  }
  if constexpr (Emit) {
    const bool bound = s.pending.kind == Pending::Kind::kAsync || s.pending.kind == Pending::Kind::kReach;
    Code code = s.pending.kind == Pending::Kind::kEnd ? Code::kSyncPointNotReached
                : bound                               ? Code::kInterruptNotReached
                                                      : Code::kTraceContradictsText;
    contradiction(s, code, [&] {
      return fmt::format("a conditional branch ends the block at {:#x}, but {}", b.ip, describe(s));
    });
  }
  return Stop::kContradiction;
}

// A compressed return ends `v`, and the two return stacks of Returns may lead to different places. True: they
// do not (any more). False, in a hypothesis only: it ended as `why` says.
template <bool Emit>
bool Flow::settle_return(State& s, Variant& v, Trial* trial, Stop& why) {
  Addr kept = 0, taken = 0;
  const bool has_kept = s.rets.top_if_kept(kept), has_taken = s.rets.top_if_taken(taken);
  if (has_kept && has_taken && kept == taken) return true;
  const bool bit = ((s.tnt >> (s.tnt_count - 1)) & 1) != 0;
  if (!bit || (!has_kept && !has_taken)) return true;  // branch() says what is wrong with it
  // Nothing to return to: hardware has kept the entry, if no call was missed.
  if (!has_taken && !s.calls_missing) {
    if (!path_in_doubt(s) && s.rets.next_is_sure()) s.rets.settle(Returns::Policy::kKeep);
    return true;
  }
  std::vector<Hypothesis> rules;
  if (has_kept) rules.push_back({{&v, kTimeMin}, Returns::Policy::kKeep});
  if (has_taken) rules.push_back({{&v, kTimeMin}, Returns::Policy::kTake});
  const Hypothesis* h = choose<Emit>(s, rules, rules.size() < 2, trial, why);
  if (h == nullptr) return false;
  if (s.rets.split()) s.rets.follow(h->returns);  // not proved
  return true;
}

template Flow::Stop Flow::branch<true>(State&, Variant&, Trial*);
template Flow::Stop Flow::branch<false>(State&, Variant&, Trial*);
template bool Flow::settle_return<true>(State&, Variant&, Trial*, Stop&);
template bool Flow::settle_return<false>(State&, Variant&, Trial*, Stop&);
template void Flow::stop_tracing<true>(State&, Variant*);
template void Flow::stop_tracing<false>(State&, Variant*);

}  // namespace asof::x86
