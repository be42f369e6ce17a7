// Time in the trace: TSC, TMA, MTC, CYC, CBR, and PSB+ (SDM vol. 3, "Tracking Time", "Cycle-Accurate Mode",
// "Decoder Synchronization (PSB+)").
#include "tools/board/pt_plugin/unit.h"

namespace asof::pt {

// Time passes. "Mini Time Counter (MTC) Packet": one whenever the watched bits of the crystal's counter change; it
// tells the time at which they did. Outcomes that are older precede it.
void TraceUnit::advance(uint64_t tsc) {
  if (tsc > now_) now_ = tsc;
  if (!(ctl_ & kMtcEn) || !trigger_) return;
  while (mtc_next_ <= now_) {
    ++mtc_done_;
    if (emitting()) {
      flush_tnt();
      stamp(mtc_next_);
      write(packet_mtc(mtc_done_));
    }
    mtc_next_ = tsc_of((mtc_done_ + 1) << mtc_shift());
  }
}

// "Cycle Count (CYC) Packet", "Cycle Packet Semantics", "Cycle Thresholds": precedes the packets of a cycle; with
// CycThresh only after 2^(n-1) cycles.
void TraceUnit::stamp(uint64_t tsc) {
  if (!(ctl_ & kCycEn) || tsc <= cyc_at_) return;
  const unsigned threshold = ctl_ >> 19 & 15;
  if (threshold != 0 && tsc - cyc_at_ < uint64_t{1} << (threshold - 1)) return;
  if (write(packet_cyc(tsc - cyc_at_))) cyc_at_ = tsc;
}

// "Timestamp Counter (TSC) Packet": at TraceEn, after sleep, in PSB+; "TSC/MTC Alignment (TMA) Packet": with every
// TSC packet. MTC goes on from here.
void TraceUnit::time_packets() {
  const uint64_t tick = ctc(now_);
  mtc_done_ = tick >> mtc_shift();
  mtc_next_ = tsc_of((mtc_done_ + 1) << mtc_shift());
  if (!(ctl_ & kTscEn)) return;
  put(packet_tsc(now_));
  if (ctl_ & kMtcEn) put(packet_tma(tick, now_ - tsc_of(tick)));
}

// "Decoder Synchronization (PSB+)": PIP needs ContextEn and OS; MODE.Exec and FUP need PacketEn.
void TraceUnit::psb(const Place& here) {
  flush_tnt();
  stamp(now_);
  const uint64_t at = output_.written();
  if (!write(packet_psb())) return;
  sync_at_ = at;
  sync_tsc_ = now_;
  ++syncs_;
  psb_bytes_ = packet_psb().size;
  last_ip_ = 0;
  return_count_ = 0;
  mode_.reset();
  time_packets();
  put(packet_cbr(config_.ratio));
  if (context_en_ && (ctl_ & kOs)) put(packet_pip(cr3_));
  if (packet_en_) {
    mode_if_changed(here);
    put_ip(IpPacket::kFup, here.ip);
  }
  put(packet_psbend());
}

// "Timestamp Counter (TSC) Packet", "Core:Bus Ratio (CBR) Packet": after waking; "Cycle Counter": does not count
// while the clock stands; no MTC meanwhile.
void TraceUnit::wake(uint64_t tsc) {
  if (!trigger_) return;
  if (tsc > now_) now_ = tsc;
  cyc_at_ += now_ - slept_at_;
  if (loss_ == Loss::kOverflow) drain(now_);
  time_packets();
  put(packet_cbr(config_.ratio));
  // "Power Exit (PWRX) Packet": the deepest core state was C1, whose MWAIT encoding is 0; an interrupt ended it.
  if (ctl_ & kPwrEvtEn) put(packet_pwrx(0, 0, 1));
}

}  // namespace asof::pt
