#include "tools/board/pt_plugin/msrs.h"

namespace asof::pt {

const uint64_t* Msrs::plain(uint32_t n) const {
  if (n >= 0xc1 && n <= 0xc4) return &counters_[n - 0xc1];
  if (n >= 0x186 && n <= 0x189) return &selects_[n - 0x186];
  if (n >= 0x309 && n <= 0x30b) return &fixed_[n - 0x309];
  if (n >= 0x580 && n <= 0x583) return &unit_.ranges[n - 0x580];
  switch (n) {
    case 0x38d:
      return &fixed_control_;
    case 0x38e:
      return &global_status_;
    case 0x38f:
      return &global_control_;
    case 0x560:
      return &output_.base;
    case 0x561:
      return &output_.mask;
    case 0x572:
      return &unit_.cr3_match;
    default:
      return nullptr;
  }
}

std::optional<uint64_t> Msrs::read(uint32_t n) const {
  // MSR_PLATFORM_INFO: the maximum non-turbo ratio
  if (n == 0xce) return uint64_t{config_.ratio} << 8;
  if (n == kMsrRtitCtl) return unit_.ctl();
  if (n == 0x571) return unit_.status();
  const uint64_t* at = plain(n);
  if (at == nullptr) return {};
  return *at;
}

bool Msrs::write(uint32_t n, uint64_t value) {
  if (n == 0x390) {  // IA32_PERF_GLOBAL_OVF_CTRL
    global_status_ &= ~value;
    return true;
  }
  if (n == 0x571) {
    unit_.write_status(value);
    return true;
  }
  auto* at = const_cast<uint64_t*>(plain(n));
  if (at == nullptr) return false;
  if (n != 0x38e) *at = value;  // IA32_PERF_GLOBAL_STATUS is read-only
  return true;
}

uint64_t Msrs::counter(uint32_t number) const {
  return number & 1U << 30 ? fixed_[(number & 3) % fixed_.size()] : counters_[number & 3];
}

bool change_cpuid(uint32_t leaf, uint32_t subleaf, const UnitConfig& config, CpuidResult& r) {
  switch (leaf) {
    case 0:
      if (r.eax < 0x16) r.eax = 0x16;
      return true;
    case 5:  // MONITOR/MWAIT: C1 only, and no break on interrupts while they are disabled, which the emulator lacks
      r = {64, 64, 1, 1 << 4};
      return true;
    case 7:
      if (subleaf == 0) r.ebx |= 1U << 25;
      return subleaf == 0;
    case 0xa:  // version 2, 4 counters of 48 bits, 3 fixed ones
      r = {0x07300402, 0, 0, 0x603};
      return true;
    case 0x14:
      // SDM vol. 3, "Detection of Intel Processor Trace": CR3 filter, PSB period and CYC, IP filter and TraceStop, MTC,
      // PTWRITE, power events, event trace, TNT disable; ToPA with many entries, single range. Two address ranges;
      // MTC periods 0, 3, 6, 9; CYC thresholds to 2048 cycles; PSB every 2 to 64 KiB.
      r = {};
      if (subleaf == 0) r = {1, 0x1bf, 7, 0};
      if (subleaf == 1) r = {0x0249U << 16 | 2, 0x003fU << 16 | 0x1fff, 0, 0};
      return true;
    case 0x15:  // no crystal frequency: the kernel would take it for that of the APIC's timer
      r = {config.tsc_d, config.tsc_n, 0, 0};
      return true;
    case 0x16:
      r = {};
      return true;
    default:
      return false;
  }
}

}  // namespace asof::pt
