// When packets are enabled (SDM vol. 3, "Trace Filtering", "Packet Generation Enable Controls").
#include "tools/board/pt_plugin/unit.h"

namespace asof::pt {

// "Filtering by Current Privilege Level", "Filtering by CR3"
bool TraceUnit::context(const Place& p) const {
  if (!(ctl_ & (p.user ? kUser : kOs))) return false;
  constexpr uint64_t kCr3 = 0x000fffffffffffe0;
  return !(ctl_ & kCr3Filter) || (cr3_ & kCr3) == (cr3_match & kCr3);
}

bool TraceUnit::in_range(unsigned config, uint64_t ip) const {
  for (size_t i = 0; i < 2; ++i) {
    if ((ctl_ >> (32 + 4 * i) & 15) == config && ip >= ranges[2 * i] && ip <= ranges[2 * i + 1]) return true;
  }
  return false;
}

// "Filtering by IP": ADDRn_CFG 1. Table "Packet Generation under Different Enable Conditions" has packets for taken
// branches, other transfers, MOV CR3 and WRMSR only: sequential flow changes neither FilterEn nor Stopped.
bool TraceUnit::filter(uint64_t ip) const {
  const bool any = (ctl_ >> 32 & 15) == 1 || (ctl_ >> 36 & 15) == 1;
  return !any || in_range(1, ip);
}

// "IA32_RTIT_STATUS MSR"
uint64_t TraceUnit::status() const {
  return status_ | (filter_en_ ? kFilterEn : 0) | (context_en_ ? kContextEn : 0) |
         (trigger_ && loss_ != Loss::kOutput ? kTriggerEn : 0) | (psb_bytes_ & 0x1ffff) << 32;
}

// FilterEn, ContextEn and TriggerEn cannot be written.
void TraceUnit::write_status(uint64_t value) {
  status_ = value & (kError | kStopped);
  psb_bytes_ = value >> 32 & 0x1ffff;
}

// "IA32_RTIT_CTL MSR": while TraceEn is set, nothing else can be changed (#GP on hardware; ignored here).
void TraceUnit::write_ctl(uint64_t value, uint64_t ip, const Place& next, uint64_t cr3, uint64_t tsc) {
  const bool was = ctl_ & kTraceEn, is = value & kTraceEn;
  if (was) advance(tsc);
  if (was && !is) disable(ip);
  if (!was || !is) ctl_ = value;
  if (was || !is) return;
  now_ = tsc;
  enable(next, cr3);
}

// "Enabling and Disabling Packet Generation with TraceEn"; cases 2a to 2e of the table.
void TraceUnit::enable(const Place& next, uint64_t cr3) {
  loss_ = Loss::kNone;
  cr3_ = cr3;
  tnt_ = tnt_count_ = return_count_ = 0;
  mode_.reset();
  full_ip_ = true;  // the buffer may be another than the one with the last address
  cyc_at_ = now_;   // "Cycle Counter": reset when TriggerEn is cleared
  drained_at_ = now_;
  packet_en_ = false;
  context_en_ = context(next);
  filter_en_ = filter(next.ip);
  if (!(status_ & (kError | kStopped)) && output_.begin(ctl_ & kToPa) != Output::State::kRunning)
    status_ |= kError;
  trigger_ = !(status_ & (kError | kStopped));
  if (!trigger_) return;
  if (psb_bytes_ == 0) {
    psb(next);
  } else {
    time_packets();
    put(packet_cbr(config_.ratio));
  }
  // "TraceStop packet": also for a WRMSR that sets TraceEn in a TraceStop region
  if (context_en_ && in_range(2, next.ip)) return trace_stop();
  if (context_en_ && filter_en_) pge(next);
}

// Cases 3a and 3b; "Flushing Trace Output". An overflow ends at the latest here, as the buffer is flushed.
void TraceUnit::disable(uint64_t ip) {
  if (loss_ == Loss::kOverflow) {
    loss_ = Loss::kNone;
    full_ip_ = true;
    put(packet_ovf());
  } else if (packet_en_ && (ctl_ & kBranchEn)) {
    put_ip(IpPacket::kFup, ip);
    if (put(packet_no_ip(IpPacket::kPgd))) show(1);
  } else {
    flush_tnt();
  }
  trigger_ = packet_en_ = false;
}

// "Packet Generation Enable (TIP.PGE) Packet"; cases b and c of the table
void TraceUnit::pge(const Place& to) {
  packet_en_ = true;
  if (!(ctl_ & kBranchEn)) return;
  mode_if_changed(to);
  indirect(IpPacket::kPge, to.ip);
}

// "Packet Generation Disable (TIP.PGD) Packet": without an address when ContextEn is clear. Calls from before are
// not matched with later returns.
void TraceUnit::pgd(const Place& to, bool has_context) {
  packet_en_ = false;
  return_count_ = 0;
  if (!(ctl_ & kBranchEn)) return;
  if (has_context) return indirect(IpPacket::kPgd, to.ip);
  if (put(packet_no_ip(IpPacket::kPgd))) show(1);
}

// "TraceStop Packet", "Filtering by IP": Stopped clears TriggerEn, and FilterEn is forced to 0. Processed during an
// overflow as well.
void TraceUnit::trace_stop() {
  if (loss_ == Loss::kOverflow) {
    loss_ = Loss::kNone;
    full_ip_ = true;
    put(packet_ovf());
  }
  put(packet_trace_stop());
  status_ |= kStopped;
  trigger_ = filter_en_ = packet_en_ = false;
}

}  // namespace asof::pt
