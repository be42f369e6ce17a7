// What libipt is told of the CPU. Only for the files that include libipt: reference.cpp, reference_sum.cpp.
#pragma once
#include <intel-pt.h>

#include <cstring>
#include <span>

#include "arch/x86/config.h"

namespace asof::x86 {

inline pt_config libipt_config(const Config& config, std::span<const uint8_t> bytes) {
  pt_config c;
  pt_config_init(&c);
  c.begin = const_cast<uint8_t*>(bytes.data());
  c.end = c.begin + bytes.size();
  c.mtc_freq = config.mtc_freq;
  c.cpuid_0x15_eax = config.tsc_ctc_d;
  c.cpuid_0x15_ebx = config.tsc_ctc_n;
  c.nom_freq = config.max_nonturbo;
  if (config.cpu.intel) {
    c.cpu = {pcv_intel, config.cpu.family, config.cpu.model, config.cpu.stepping};
    if (pt_cpu_errata(&c.errata, &c.cpu) < 0) std::memset(&c.errata, 0, sizeof c.errata);
  }
  return c;
}

}  // namespace asof::x86
