// x86-64: Intel PT. The configuration a capture gives, and the factory of its Arch.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "arch/arch.h"
#include "arch/time_conversion.h"

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
  uint8_t max_nonturbo = 0;       // core crystal ratio at TSC rate, for CYC before the first calibration
  bool has_cyc = false;           // asked for; for people, the packets themselves say it
  bool guest_text = false;        // the text is that of a guest (VMX non-root operation), not of the host
  bool no_tnt = false;            // IA32_RTIT_CTL.DisTNT: conditional branches are not in the trace
  bool no_branches = false;       // IA32_RTIT_CTL.BranchEn is 0: no packets tell of the flow
  bool cr3_filter = false;        // IA32_RTIT_CTL.CR3Filter: a TIP.PGD without IP may bind to MOV CR3
  std::vector<AddrRange> filter;  // address filter regions; empty: no filter
  std::optional<TimeConversion> time;  // absent: decoded without time
  // Of the traced kernel, for anchors in the trace itself (anchors.cpp); 0: not known.
  Addr perf_event_text_poke = 0;
  Addr do_sync_core = 0;
};

std::unique_ptr<Arch> make_arch(const Config& config);

// Was all of this trace recorded in VMX non-root operation, by its PIP packets (NR; SDM vol. 3, "Paging
// Information (PIP) Packet")? False where the first sync point has none. Of mapped trace, not of sources.
bool is_guest_trace(const Stream& stream);

}  // namespace asof::x86
