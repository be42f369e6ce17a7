// What a capture says of the CPU that was traced with Intel PT, and of how.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "arch/time_conversion.h"
#include "textstore/address.h"

namespace asof::x86 {

// For errata; family 0: unknown, no erratum is applied. SDM vol. 2 CPUID: display family and model.
struct CpuModel {
  bool intel = false;
  uint16_t family = 0;
  uint8_t model = 0;
  uint8_t stepping = 0;
};

struct Config {
  CpuModel cpu;
  uint8_t mtc_freq = 0;    // IA32_RTIT_CTL.MTCFreq: log2 of CTC ticks per MTC
  uint32_t tsc_ctc_n = 0;  // CPUID.15H:EBX and EAX: TSC ticks per CTC tick = n / d; 0: unknown
  uint32_t tsc_ctc_d = 0;
  uint8_t max_nonturbo = 0;         // core crystal ratio at TSC rate, for CYC before the first calibration
  bool has_cyc = false;             // asked for; for people, the packets themselves say it
  bool guest_text = false;          // the text is that of a guest (VMX non-root operation), not of the host
  bool no_tnt = false;              // IA32_RTIT_CTL.DisTNT: conditional branches are not in the trace
  bool no_ret_compression = false;  // IA32_RTIT_CTL.DisRETC: every return has a TIP
  bool no_branches = false;         // IA32_RTIT_CTL.BranchEn is 0: no packets tell of the flow
  bool event_trace = false;         // IA32_RTIT_CTL.EventEn: MODE.Exec says whether interrupts are enabled
  bool cr3_filter = false;          // CR3Filter (of a bundle; perf has none): MOV CR3 may leave the trace
  std::vector<AddrRange> filter;  // address filter regions, an empty one for those not known; none: no filter
  std::optional<TimeConversion> time;  // absent: decoded without time
  // Of the traced kernel, for anchors in the trace itself (anchors.h); 0: not known.
  Addr perf_event_text_poke = 0;
  Addr do_sync_core = 0;
};

}  // namespace asof::x86
