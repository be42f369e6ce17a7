// The way of a packet: outcomes and CYC before it, the internal buffer, the output.
#include "tools/board/pt_plugin/unit.h"

#include <algorithm>

namespace asof::pt {

bool TraceUnit::put(const Packet& p) {
  if (!emitting()) return false;
  flush_tnt();
  stamp(now_);
  return write(p);
}

// "Target IP (TIP) Packet", "IP Compression": against the last address that was written; suppressed ones do not count.
bool TraceUnit::put_ip(IpPacket kind, uint64_t ip) {
  if (!emitting()) return false;
  flush_tnt();
  stamp(now_);
  if (!write(packet_ip(kind, ip, last_ip_, full_ip_))) return false;
  last_ip_ = ip;
  full_ip_ = false;
  return true;
}

// "Taken/Not-taken (TNT) Packet": at most six outcomes, fewer before any packet that is ordered behind them; the
// CYC before it is the time of the first.
void TraceUnit::flush_tnt() {
  if (tnt_count_ == 0 || !emitting()) return;
  const Packet p = packet_tnt(tnt_, tnt_count_);
  stamp(tnt_tsc_);
  const unsigned outcomes = tnt_count_;
  if (!write(p)) return;
  tnt_ = tnt_count_ = 0;
  show(outcomes);
  flushed_ = shown_;
}

// False when the packet, or its end, was lost.
bool TraceUnit::write(const Packet& p) {
  if (!emitting()) return false;
  if (config_.buffer_bytes != 0) {
    drain(now_);
    if (occupied_ + p.size > config_.buffer_bytes) {
      begin_overflow();
      return false;
    }
    occupied_ += p.size;
  }
  const bool whole = output_.write(p.span());
  psb_bytes_ += p.size;
  if (output_.state() == Output::State::kRunning) return true;
  // "IA32_RTIT_STATUS MSR", "Operational Errors": no more packets until software clears them and enables the trace
  // again
  status_ |= output_.state() == Output::State::kError ? kError : kStopped;
  loss_ = Loss::kOutput;
  return whole;
}

// "Internal Buffer Overflow": packets are dropped until it has been drained; outcomes not yet in a packet are lost.
void TraceUnit::begin_overflow() {
  loss_ = Loss::kOverflow;
  overflow_cr3_ = false;
  ++overflows_;
}

void TraceUnit::drain(uint64_t tsc) {
  const uint64_t bytes = (tsc - drained_at_) * config_.drain / 1000;
  if (bytes == 0) return;
  occupied_ -= std::min(occupied_, bytes);
  drained_at_ = tsc;
}

// "Internal Buffer Overflow", "Overflow (OVF) Packet": OVF, and a FUP with the address where tracing resumes if
// PacketEn is set; a TIP.PGE follows later if not. What comes after is not compressed against what was lost. A PSB+
// repeats the mode and CR3 if those changed meanwhile.
void TraceUnit::end_overflow(const Place& here) {
  drain(now_);
  if (occupied_ != 0) return;
  loss_ = Loss::kNone;
  tnt_ = tnt_count_ = return_count_ = 0;
  full_ip_ = true;
  last_ip_ = 0;
  put(packet_ovf());
  const Packet mode = packet_mode_exec(here.exec, (ctl_ & kEventEn) && here.interrupts);
  if (packet_en_ && (ctl_ & kBranchEn)) indirect(IpPacket::kFup, here.ip);
  if (overflow_cr3_ || (mode_ && mode_->bytes != mode.bytes)) psb(here);
}

}  // namespace asof::pt
