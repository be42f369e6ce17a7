#include "tools/board/pt_plugin/unit.h"

namespace asof::pt {

namespace {

// "Control Flow Event (CFE) Packet", "Event Data (EVD) Packet": types
enum : uint8_t { kCfeIntr = 1, kCfeIret = 2, kEvdPageFault = 0 };

}  // namespace

void TraceUnit::boundary(const Place& here, uint64_t tsc) {
  if (!trigger_) return;
  advance(tsc);
  if (loss_ == Loss::kOverflow) end_overflow(here);
  // "Packet Stream Boundary (PSB) Packet": each time PacketByteCnt crosses the threshold of IA32_RTIT_CTL.PSBFreq
  if (emitting() && psb_bytes_ >= uint64_t{2048} << (ctl_ >> 24 & 15)) psb(here);
}

// Cases 6 to 10 of the table "Packet Generation under Different Enable Conditions"; "Change of Flow Instruction (COFI)
// Tracing": a direct jump or call has no packet, a near indirect one and a far transfer have a TIP.
void TraceUnit::branch(const Branch& b, const Place& to, uint64_t tsc) {
  if (!trigger_) return;
  advance(tsc);
  const bool taken = b.flow != Flow::kCond || to.ip != b.after;
  const bool was_context = context_en_;
  if (taken) {
    context_en_ = context(to);
    filter_en_ = filter(to.ip);
  }
  const bool was = packet_en_;
  const bool stop = taken && context_en_ && in_range(2, to.ip);
  const bool is = context_en_ && filter_en_ && !stop;
  // "Control Flow Event (CFE) Packet": IRET, when it completes; the FUP is the IRET's own address, and is not there
  // where the IRET leads into the traced context.
  if (b.flow == Flow::kIret && (ctl_ & kEventEn) && (was_context || context_en_)) {
    put(packet_cfe(kCfeIret, 0, was));
    if (was) put_ip(IpPacket::kFup, b.ip);
  }
  if (was && !is) {
    // Cases 7e and 7f: a decoder knows where a conditional branch or a compressed return leads to.
    const bool known = b.flow == Flow::kCond || (b.flow == Flow::kRet && returns_to(to.ip));
    pgd(to, context_en_ && !known);
  } else if (!was && is) {
    pge(to);
  } else if (was && (ctl_ & kBranchEn)) {
    switch (b.flow) {
      case Flow::kCond:
        outcome(taken);
        break;
      case Flow::kJump:
        break;
      case Flow::kCall:
        // "Indirect Transfer Compression for Returns (RET)": a call to the next instruction is not matched with a
        // return.
        if (to.ip != b.after) push(b.after);
        break;
      case Flow::kCallIndirect:
        push(b.after);
        indirect(IpPacket::kTip, to.ip);
        break;
      case Flow::kRet:
        if (returns_to(to.ip)) {
          outcome(true);
        } else {
          indirect(IpPacket::kTip, to.ip);
        }
        break;
      default:
        mode_if_changed(to);
        indirect(IpPacket::kTip, to.ip);
        break;
    }
  }
  if (stop) trace_stop();
}

// Cases 5a to 5f; "Paging Information Packet (PIP)": it needs ContextEn and OS, not FilterEn.
void TraceUnit::mov_cr3(uint64_t cr3, const Place& next, uint64_t tsc) {
  cr3_ = cr3;
  if (!trigger_) return;
  advance(tsc);
  context_en_ = context(next);
  if (context_en_ && (ctl_ & kOs)) {
    if (loss_ == Loss::kOverflow) overflow_cr3_ = true;
    put(packet_pip(cr3));
  }
  const bool stop = context_en_ && in_range(2, next.ip);
  const bool is = context_en_ && filter_en_ && !stop;
  if (packet_en_ && !is) {
    pgd(next, context_en_);
  } else if (!packet_en_ && is) {
    pge(next);
  }
  if (stop) trace_stop();
}

// Cases 11 to 13; "Flow Update Packet (FUP)": the address is that of the next instruction, or of the one that
// faults. "Control Flow Event (CFE) Packet", "Event Data (EVD) Packet": with EventEn a CFE precedes the packets of
// the transfer and binds to their FUP; if there are none, it has the IP bit and a FUP of its own. A page fault's
// EVD precedes the CFE.
void TraceUnit::interrupt(const Interruption& i, const Place& to, uint64_t tsc) {
  if (!trigger_) return;
  advance(tsc);
  const bool was = packet_en_, was_context = context_en_;
  context_en_ = context(to);
  filter_en_ = filter(to.ip);
  const bool stop = context_en_ && in_range(2, to.ip);
  const bool is = context_en_ && filter_en_ && !stop;
  const bool event = (ctl_ & kEventEn) && i.vector && (was_context || context_en_);
  if (event && i.fault_address) put(packet_evd(kEvdPageFault, *i.fault_address));
  if (event) put(packet_cfe(kCfeIntr, *i.vector, was && !(ctl_ & kBranchEn)));
  if (was && ((ctl_ & kBranchEn) || event)) put_ip(IpPacket::kFup, i.from);
  if (was && !is) {
    pgd(to, context_en_);
  } else if (!was && is) {
    pge(to);
  } else if (was && (ctl_ & kBranchEn)) {
    mode_if_changed(to);
    indirect(IpPacket::kTip, to.ip);
  }
  if (stop) trace_stop();
}

// "PTWRITE (PTW) Packet": TriggerEn, ContextEn, FilterEn, PTWEn; a FUP with FUPonPTW
void TraceUnit::ptwrite(uint64_t ip, uint64_t value, bool eight_bytes, uint64_t tsc) {
  if (!packet_en_ || !(ctl_ & kPtwEn)) return;
  advance(tsc);
  put(packet_ptw(value, eight_bytes, ctl_ & kFupOnPtw));
  if (ctl_ & kFupOnPtw) put_ip(IpPacket::kFup, ip);
}

// "MODE Packets", MODE.Exec: with EventEn it has RFLAGS.IF, and follows its changes outside of transfers with a FUP. Its
// address is that of the instruction from which on the change applies (libipt 2.3, ptet-mode_exec-if.ptt).
void TraceUnit::interrupt_flag(const Place& next, uint64_t tsc) {
  if (!packet_en_ || !(ctl_ & kEventEn) || !mode_) return;
  const Packet mode = packet_mode_exec(next.exec, next.interrupts);
  if (mode.bytes == mode_->bytes) return;
  advance(tsc);
  put(mode);
  put_ip(IpPacket::kFup, next.ip);
  if (emitting()) mode_ = mode;
}

// "MWAIT Packet", "Power Entry (PWRE) Packet", "Execution Stop (EXSTOP) Packet": one FUP for all, with the address
// of the instruction that went to sleep. Both lead to C1, whose MWAIT encoding is 0.
void TraceUnit::sleep(Sleep how, uint64_t ip, uint32_t hints, uint32_t extensions, uint64_t tsc) {
  if (!trigger_) return;
  advance(tsc);
  slept_at_ = tsc;
  if (!(ctl_ & kPwrEvtEn)) return;
  if (how == Sleep::kMwait && context_en_) put(packet_mwait(hints, extensions));
  put(packet_pwre(0, 0));
  put(packet_exstop(context_en_));
  if (context_en_) put_ip(IpPacket::kFup, ip);
}

// "Taken/Not-taken (TNT) Packet": the short form, which has room for six
void TraceUnit::outcome(bool taken) {
  // "TNT Disable": neither conditional branches nor compressed returns are in the trace.
  if (!emitting()) return;
  if (ctl_ & kDisTnt) return show(1);
  if (tnt_count_ == 0) tnt_tsc_ = now_;
  tnt_ = tnt_ << 1 | (taken ? 1 : 0);
  if (++tnt_count_ == 6) flush_tnt();
}

// "Target IP (TIP) Packet"
void TraceUnit::indirect(IpPacket kind, uint64_t ip) {
  if (put_ip(kind, ip)) show(1);
}

void TraceUnit::show(unsigned outcomes) {
  shown_.count += outcomes;
  shown_.at = output_.written();
}

// "MODE Packets", MODE.Exec: if the mode has changed since the last one, or there was none since PSB.
void TraceUnit::mode_if_changed(const Place& to) {
  const Packet mode = packet_mode_exec(to.exec, (ctl_ & kEventEn) && to.interrupts);
  if (mode_ && mode_->bytes == mode.bytes) return;
  put(mode);
  if (emitting()) mode_ = mode;
}

// "Indirect Transfer Compression for Returns (RET)": the youngest 64 calls
void TraceUnit::push(uint64_t address) {
  returns_[return_top_++ % kReturns] = address;
  if (return_count_ < kReturns) ++return_count_;
}

// The same section: a return to the youngest call is a taken branch; also after PSB and OVF the decoder knows no calls.
bool TraceUnit::returns_to(uint64_t target) {
  if ((ctl_ & kDisRetC) || return_count_ == 0 || returns_[(return_top_ - 1) % kReturns] != target) {
    return_count_ = 0;
    return false;
  }
  --return_top_;
  --return_count_;
  return true;
}

}  // namespace asof::pt
