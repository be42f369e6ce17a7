// What elements other than atoms do to the flow. Arm IHI 0064, "Trace element descriptions".
#include <fmt/format.h>

#include <algorithm>

#include "arch/arm64/flow.h"

namespace asof::arm64 {
namespace {

// Exception types of A-profile trace units (IHI 0064, "Exception element").
constexpr uint32_t kReset = 0;
constexpr uint32_t kInstructionDebug = 6;
constexpr uint32_t kTransactionFailure = 0x18;

// Branches not taken in front of a source address; a trace unit gives atoms long before.
constexpr uint32_t kMaxUntaken = 4096;

// Instructions of `b` in front of `at`; 0: it is not on one of its boundaries.
uint32_t instructions_before(const Block& b, Addr at) {
  if (at <= b.ip || at > b.end()) return 0;
  if (b.mode != kT32) return (at - b.ip) % 4 == 0 ? static_cast<uint32_t>((at - b.ip) / 4) : 0;
  Addr ip = b.ip;
  for (uint32_t i = 0; i < b.count;) {
    ip += b.lengths[i++];
    if (ip == at) return i;
  }
  return 0;
}

}  // namespace

uint8_t Flow::mode_of(const State& s, uint8_t isa) const { return s.sf ? kA64 : isa == 0 ? kA32 : kT32; }

Addr Flow::address_of(const State& s, const Element& d) const {
  return s.sf ? d.value : d.value & 0xffffffffU;
}

uint64_t Flow::offset_in_use(const State& s) {
  const size_t in_use = s.e == 0 || s.atom_count == 0 ? s.e : s.e - 1;
  if (!elements_->has(in_use) || !elements_->has_parsed(in_use)) return segment_->end - segment_->begin;
  const Element& e = (*elements_)[in_use];
  return e.kind == El::kAtoms && e.count >= s.atom_count
             ? elements_->offset_of_atom(in_use, e.count - s.atom_count)
             : e.offset;
}

void Flow::pass_time(State& s, const Element& d) {
  s.times_seen = d.time + 1;
  if (has_clock_) s.floor = std::max(s.floor, to_time(d.value));
}

// The count was taken when the last atom or exception before it was committed: with nothing speculative, it had retired then,
// and nothing of the next one had (Arm IHI 0064, "Cycle counting").
void Flow::on_cycles(const State& s, const Element& d) {
  if (!options_.cycles || format_.max_spec != 0) return;
  const bool known = (d.flags & Element::kCounted) != 0;
  add_event(EventKind::kCycles, display_time(s), 0, known ? d.type : 0, known ? 0 : 1, d.offset);
}

// Takes the element at s.e. kGo: on with the next.
template <bool Emit>
Flow::Stop Flow::element(State& s, Trial* trial) {
  const Element d = (*elements_)[s.e];  // a copy: the list may grow
  if constexpr (Emit) {
    if (d.synchronises() && d.offset < segment_->end - segment_->begin) last_event_ = s.floor;
  }
  switch (d.kind) {
    case El::kTime:
      pass_time(s, d);
      break;
    case El::kContext:
      on_context<Emit>(s, d);
      break;
    case El::kEvent:
      if constexpr (Emit)
        add_event(EventKind::kTraceEvent, display_time(s), s.position == Position::kKnown ? s.ip : 0, d.type,
                  0, d.offset);
      break;
    case El::kCycles:
      if constexpr (Emit) on_cycles(s, d);
      break;
    case El::kAddress:
      return on_address<Emit>(s, d, trial);
    case El::kException:
      return on_exception<Emit>(s, d, trial);
    case El::kExceptionNoAddress:
      if (d.type == kTransactionFailure) {
        if constexpr (Emit) add_event(EventKind::kTsxAbort, display_time(s), 0, 0, 0, d.offset);
        s.transaction = false;
      } else if constexpr (Emit) {
        add_event(EventKind::kAsync, display_time(s), 0, 0, 0, d.offset);
      }
      synchronise(s);
      if (s.position != Position::kLost && s.position != Position::kWaiting) s.position = Position::kVector;
      break;
    case El::kSourceAddress:
      return on_source_address<Emit>(s, d, trial);
    case El::kQ:
      return on_q<Emit>(s, d, trial);
    case El::kTraceOn:
      on_trace_on<Emit>(s, d);
      break;
    case El::kTraceInfo:
      s.rets.clear();
      break;
    case El::kTransStart:
    case El::kTransCommit:
      s.transaction = d.kind == El::kTransStart;
      if constexpr (Emit) {
        const EventKind kind = s.transaction ? EventKind::kTsxBegin : EventKind::kTsxCommit;
        add_event(kind, display_time(s), s.position == Position::kKnown ? s.ip : 0, 0, 0, d.offset);
      }
      break;
    case El::kInstrumentation:
      if constexpr (Emit) add_event(EventKind::kPtwrite, display_time(s), 0, d.value, 8, d.offset);
      break;
    case El::kEnd:
      return on_end<Emit>(s, d, trial);
    case El::kEos:
      return Stop::kOut;
    case El::kOverflow:
    case El::kDiscard:
      if constexpr (Emit) {
        add_event(EventKind::kOverflow, display_time(s), 0, 0, 0, d.offset);
        open_gap(s, Code::kTraceOverflow,
                 d.kind == El::kOverflow
                     ? "the trace unit's buffer was full: trace is missing up to the next sync point"
                     : "the trace unit threw away what it had not written",
                 d.offset);
      }
      return Stop::kOut;
    case El::kBad:
      if constexpr (Emit) {
        open_gap(
            s, Code::kBadPacket,
            [&] {
              return fmt::format("bytes at offset {:#x} are no packet, or one out of place",
                                 segment_->begin + d.offset);
            },
            d.offset);
      }
      return Stop::kOut;
    default:
      break;
  }
  ++s.e;
  return Stop::kGo;
}

template <bool Emit>
void Flow::on_context(State& s, const Element& d) {
  const Context c = unpack(d.value);
  s.sf = c.sf;
  // It may come after the address that it belongs to. The last address of a flow that is lost, or not traced, is none.
  if (s.position == Position::kKnown && s.fresh && s.sf != (s.mode == kA64))
    enter(s, s.ip, s.sf ? kA64 : kA32);
  if constexpr (Emit) {
    if (d.value == s.context) return;
    s.context = d.value;
    const uint64_t state = c.el | (c.ns ? 4U : 0U) | (c.sf ? 8U : 0U);
    add_event(EventKind::kContext, display_time(s), s.position == Position::kKnown ? s.ip : 0, c.cid, state,
              d.offset);
  }
}

template <bool Emit>
Flow::Stop Flow::on_address(State& s, const Element& d, Trial* trial) {
  const Addr ip = address_of(s, d);
  const uint8_t mode = mode_of(s, d.isa);
  s.lo = s.floor;
  switch (s.position) {
    case Position::kKnown:
      if (ip != s.ip && !s.fresh) {
        if constexpr (!Emit) return Stop::kContradiction;
        contradiction(s, Code::kSyncPointNotReached, [&] {
          return fmt::format("the trace says that the flow is at {:#x}, the text leads to {:#x}", ip, s.ip);
        });
        close_gap(s, ip, d.offset);
      }
      if (ip != s.ip || mode != s.mode) enter(s, ip, mode);
      break;
    case Position::kTarget:
      go_indirect(s, ip, mode);
      break;
    case Position::kVector:
      enter(s, ip, mode);
      break;
    case Position::kWaiting:
      if ((d.flags & Element::kStart) == 0) {
        ++s.e;
        return Stop::kGo;
      }
      enter(s, ip, mode);
      break;
    case Position::kOff:
      if constexpr (Emit) add_event(EventKind::kTraceStart, display_time(s), ip, 0, 0, d.offset);
      enter(s, ip, mode);
      break;
    case Position::kLost:
      if constexpr (!Emit) return Stop::kOut;
      close_gap(s, ip, d.offset);
      enter(s, ip, mode);
      break;
  }
  ++s.e;
  s.fresh = true;
  place_known(s);
  return used(s, trial);
}

template <bool Emit>
void Flow::on_trace_on(State& s, const Element& d) {
  if constexpr (Emit) {
    if (s.position == Position::kKnown || s.position == Position::kTarget ||
        s.position == Position::kVector) {
      add_event(EventKind::kTraceStop, display_time(s), s.position == Position::kKnown ? s.ip : 0, 0, 0,
                d.offset);
    }
  }
  s.lo = s.floor;
  s.rets.clear();
  s.calls_missing = false;
  s.branch = nullptr;
  if (s.position != Position::kWaiting)
    s.anchor_hi = kTimeMax;  // what was not traced may hold visits, not counted
  s.in_user = false;
  if (s.position != Position::kLost && s.position != Position::kWaiting) s.position = Position::kOff;
}

// Straight on to `to`, where an exception was taken: every branch in between would have had its atom.
template <bool Emit>
Flow::Stop Flow::reach(State& s, Addr to, Trial* trial) {
  while (s.ip != to) {
    Stop stop = idle<Emit>(s);
    if (stop != Stop::kGo) return stop;
    Variant* const v =
        s.node != nullptr && s.node->state == TextState::kStable ? s.node->only : text<Emit>(s, trial, stop);
    if (v == nullptr) return stop;
    const Block& b = v->block;
    meet(s, v->block, trial);
    const uint32_t count = instructions_before(b, to);
    const bool ends_here = v->waypoint != Waypoint::kNone;
    if (to < s.ip || v->waypoint == Waypoint::kTrap || (ends_here && (count == 0 || count == b.count))) {
      if constexpr (Emit) {
        contradiction(s, Code::kInterruptNotReached, [&] {
          return fmt::format(
              "an exception was taken at {:#x}, which the text at {:#x} does not lead to "
              "without a branch",
              to, b.ip);
        });
      }
      return Stop::kContradiction;
    }
    emit<Emit>(s, *v, count == 0 ? b.count : count, 0);
    s.ip = count == 0 ? b.end() : to;
    s.node = count == 0 ? v->fall : nullptr;
  }
  return Stop::kGo;
}

template <bool Emit>
Flow::Stop Flow::on_exception(State& s, const Element& d, Trial* trial) {
  const Addr at = address_of(s, d);
  s.lo = s.floor;
  if (s.position == Position::kWaiting) {
    ++s.e;
    return Stop::kGo;
  }
  const bool is_target = (d.flags & Element::kTarget) != 0;
  if (s.position == Position::kTarget && is_target) {
    go_indirect(s, at, mode_of(s, d.isa));
  } else if (s.position == Position::kTarget && !pop_target<Emit>(s)) {
    if constexpr (!Emit) return s.calls_missing ? Stop::kOut : Stop::kContradiction;
    lose(s, Code::kReturnWithoutItsCall, [&] {
      return fmt::format(
          "the target of the branch before {:#x} is not known, an exception at {:#x} "
          "comes first",
          s.ip, at);
    });
  }
  if (s.position == Position::kKnown && is_target && s.ip != at) {
    if constexpr (!Emit) return Stop::kContradiction;
    contradiction(s, Code::kInterruptNotReached, [&] {
      return fmt::format("an exception was taken at the branch target {:#x}, the text leads to {:#x}", at,
                         s.ip);
    });
  }
  if (s.position == Position::kKnown && d.type != kReset) {
    const Stop stop = reach<Emit>(s, at, trial);
    if (stop != Stop::kGo && !Emit) return stop;
  }
  if constexpr (!Emit) {
    if (s.position == Position::kLost) return Stop::kOut;
  }
  ++s.e;
  if constexpr (Emit) {
    Addr vector = 0;
    if (elements_->has(s.e) && (*elements_)[s.e].kind == El::kAddress)
      vector = address_of(s, (*elements_)[s.e]);
    add_event(EventKind::kAsync, display_time(s), at, vector, d.type, d.offset);
    next_flags_ |= Step::kAsyncEntry;
  }
  place_known(s);
  synchronise(s);
  s.trap = d.type == kInstructionDebug ? at : 0;
  s.ip = at;
  s.branch = nullptr;
  s.node = nullptr;
  if (s.position != Position::kLost) s.position = Position::kVector;
  return used(s, trial);
}

// ETE: nothing but branches not taken up to the one at this address, which was.
template <bool Emit>
Flow::Stop Flow::on_source_address(State& s, const Element& d, Trial* trial) {
  const Addr at = address_of(s, d);
  s.lo = s.floor;
  if (s.position != Position::kKnown && s.position != Position::kWaiting && s.position != Position::kLost) {
    const Stop stop = place_for_atom<Emit>(s, trial);
    if (stop != Stop::kGo && !Emit) return stop;
  }
  if (s.position != Position::kKnown) {
    if constexpr (!Emit) return Stop::kOut;
    ++s.e;
    return Stop::kGo;
  }
  ++s.e;
  for (uint32_t blocks = 0;; ++blocks) {
    Stop stop = idle<Emit>(s);
    if (stop != Stop::kGo) return stop;
    Variant* const v = text<Emit>(s, trial, stop);
    if (v == nullptr) return stop;
    const Block& b = v->block;
    meet(s, v->block, trial);
    const bool last = at == b.end() - b.lengths[b.count - 1];
    const bool branch = v->waypoint == Waypoint::kDirect || v->waypoint == Waypoint::kIndirect;
    const bool passed = (at < b.end() && !last) || blocks > kMaxUntaken;
    if (v->waypoint == Waypoint::kTrap || passed || (last && v->waypoint == Waypoint::kNone) ||
        (!last && branch && !v->may_skip)) {
      if constexpr (Emit) {
        contradiction(s, Code::kTraceContradictsText, [&] {
          return fmt::format("a branch was taken at {:#x}, which the text at {:#x} does not lead to", at,
                             b.ip);
        });
      }
      return Stop::kContradiction;
    }
    if (v->waypoint == Waypoint::kNone) {
      emit<Emit>(s, *v, b.count, 0);
      s.ip = b.end();
      s.node = v->fall;
      continue;
    }
    s.atoms = last || !branch ? 1 : 0;
    s.atom_count = 1;
    stop = use_atom<Emit>(s, *v, trial);
    if (last || stop != Stop::kGo) return stop;
  }
}

// Where the next segment starts, this one's flow must have arrived.
template <bool Emit>
Flow::Stop Flow::on_end(State& s, const Element& d, Trial* trial) {
  s.lo = s.floor;
  if (s.position != Position::kKnown || s.fresh || s.ip == address_of(s, d)) {
    used(s, trial);
    if constexpr (Emit) close_gap(s, address_of(s, d), segment_->end - segment_->begin);
    return Stop::kSegmentEnd;
  }
  if constexpr (Emit) {
    contradiction(s, Code::kSyncPointNotReached, [&] {
      return fmt::format("the next sync point is at {:#x}, the text leads to {:#x}", address_of(s, d), s.ip);
    });
    close_gap(s, address_of(s, d), segment_->end - segment_->begin);
    return Stop::kSegmentEnd;
  }
  return Stop::kContradiction;
}

template Flow::Stop Flow::element<true>(State&, Trial*);
template Flow::Stop Flow::element<false>(State&, Trial*);

}  // namespace asof::arm64
