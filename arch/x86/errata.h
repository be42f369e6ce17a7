// Errata of the trace hardware by CPU model, the set that libipt applies (pt_config.c, pt_cpu_errata()), and
// what each means for the flow. Sources: Intel specification updates of the named families.
#pragma once
#include "arch/x86/config.h"

namespace asof::x86 {

struct Errata {
  // Intel PT may insert a PSB+ whose FUP is not followed by its TIP.PGE's context: a FUP in PSB+ right before
  // a TIP.PGE is bogus, tracing is off.
  bool bdm70 = false;
  // A TNT or TIP of a branch inside an aborted transaction may be missing: the abort's FUP counts.
  bool bdm64 = false;
  // The FUP of an asynchronous VM entry may be bogus: FUP + TIP.PGD on VMLAUNCH/VMRESUME is a plain disable.
  bool skd022 = false;
  // After an overflow the FUP or TIP.PGE may be missing.
  bool skd010 = false;
  // TIP.PGD for a direct branch that leaves the filter region may have no IP.
  bool skl014 = false;
  // A CYC packet in front of an OVF may be garbled.
  bool skd007 = false;
  // CYC packets right before a PSB may be missing: the first MTC after it does not measure the cycle rate.
  bool skl168 = false;
  // TMA packets may be garbled under VMX TSC scaling.
  bool skz84 = false;
  // After an overflow there may be a TIP.PGD without its FUP.
  bool apl11 = false;
  // After an overflow there may be a FUP although tracing is off.
  bool apl12 = false;
};

Errata errata_of(const CpuModel& cpu);

}  // namespace asof::x86
