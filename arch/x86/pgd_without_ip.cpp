// A TIP.PGD without an address while the flow is known: where did tracing stop? Intel SDM vol. 3, "TIP.PGD packet" and
// the table "Packet Generation under Different Enable Conditions".
#include <algorithm>

#include "arch/x86/flow.h"

namespace asof::x86 {
namespace {

// Instructions of the first `count` of `b` in front of the one at `ip`; UINT32_MAX: it is none of them.
uint32_t instructions_before(const Block& b, uint32_t count, Addr ip) {
  Addr at = b.ip;
  for (uint32_t i = 0; i < count; at += b.lengths[i++]) {
    if (at == ip) return i;
  }
  return UINT32_MAX;
}

}  // namespace

// The TIP.PGD belongs to a far transfer, or to the WRMSR that switched tracing off; the flow met the near branch of `v`
// first. After the last WRMSR, if there was one, nothing ran. Where tracing goes on at an address on the path, the flow
// stopped there without a FUP, as hardware does at a fault on the first instruction after a TIP.PGE. Else the branch is
// taken for the place, as the peers do, and all since the last packet is marked ambiguous.
//
// With address filters the branch itself may have left the range. All up to it is kept then; it is certain where
// nothing else can have ended tracing.
template <bool Emit>
Flow::Stop Flow::stopped_somewhere(State& s, Variant& v, Trial* trial) {
  Variant* last = &v;
  const bool filtered = may_leave_range(s, v.block);
  if constexpr (Emit) {
    if (filtered) {
      if (!leaves_range(s, v.block)) {
        doubt_unconfirmed();
        s.unsure = true;
      }
    } else if (marked_steps_ > verified_steps_) {
      take_back(marked_steps_);
      last = nullptr;
    } else if (cut_at_restart(s, v)) {
      last = nullptr;
    } else {
      doubt_unconfirmed();
      s.unsure = true;
    }
  }
  stop_tracing<Emit>(s, last);
  if (Addr to = 0; filtered && v.block.kind == BranchKind::kRet) s.rets.pop(to);
  return used(s, trial);
}

// Cases 7e and 7f of the table: a conditional branch that is taken, or a compressed return, out of the range (or into
// one that stops tracing) has neither a TNT bit nor an address. Other branches have the address.
bool Flow::may_leave_range(const State& s, const Block& b) const {
  if (config_.filter.empty()) return false;
  Addr to = b.target;
  if (b.kind == BranchKind::kRet) {
    // Not known where to: any call may be missing.
    if (!s.rets.top_if_kept(to))
      return !config_.no_ret_compression && (s.calls_missing || !s.rets.next_is_sure());
  } else if (b.kind != BranchKind::kCond) {
    return false;
  }
  return std::ranges::none_of(config_.filter, [to](const AddrRange& r) { return r.contains(to); });
}

// Is it the branch of `b` for sure? There was a packet since the last TIP.PGE, the path is as the trace says, nothing else
// on it stops tracing, and it does not come by the place where tracing goes on, which is known.
bool Flow::leaves_range(const State& s, const Block& b) {
  const bool known = b.kind != BranchKind::kRet || (s.rets.next_is_sure() && !s.rets.split());
  Addr restart = 0;
  if (!known || path_in_doubt(s) || s.decisions == s.started || marked_steps_ > verified_steps_ ||
      !restart_ip(s, restart) || instructions_before(b, b.count, restart) != UINT32_MAX)
    return false;
  // SKL014: a direct branch has no address either.
  const bool skl014 = errata_.skl014 || config_.cpu.family == 0;
  for (size_t i = verified_steps_; i < chunk_.steps.size(); ++i) {
    const Step& step = chunk_.steps.at(i);
    const BranchKind kind = step.block->kind;
    if (skl014 && (kind == BranchKind::kJump || kind == BranchKind::kCall)) return false;
    if (instructions_before(*step.block, step.count, restart) != UINT32_MAX) return false;
  }
  return true;
}

// The address of the TIP.PGE that follows, if nothing but state and time precedes it.
bool Flow::restart_ip(const State& s, Addr& ip) const {
  const std::optional<Packet> pge = pge_ahead(s.p, end_, config_.guest_text);
  ip = s.last_ip;
  return pge && update_ip(pge->ipc, pge->value, ip);
}

// Cuts the unconfirmed steps, and `v` after them, at the address where tracing starts again.
bool Flow::cut_at_restart(State& s, const Variant& v) {
  Addr restart = 0;
  if (!restart_ip(s, restart)) return false;
  for (size_t i = verified_steps_; i < chunk_.steps.size(); ++i) {
    Step& step = chunk_.steps.at(i);
    const uint32_t n = instructions_before(*step.block, step.count, restart);
    if (n == UINT32_MAX) continue;
    step.count = n;
    take_back(n == 0 ? i : i + 1);
    return true;
  }
  const uint32_t n = instructions_before(v.block, v.block.count, restart);
  if (n == UINT32_MAX) return false;
  if (n != 0) emit<true>(s, v, n, 0);
  return true;
}

template Flow::Stop Flow::stopped_somewhere<true>(State&, Variant&, Trial*);
template Flow::Stop Flow::stopped_somewhere<false>(State&, Variant&, Trial*);

}  // namespace asof::x86
