// Do MTC packets come as often as the configuration of a trace says? It comes from other places than the trace (a
// record, an event's attributes, a manifest), and with a wrong one each time is wrong that MTCs count.
#pragma once
#include <cstdint>

#include "arch/stream.h"
#include "arch/x86/config.h"

namespace asof::x86 {

struct MtcFit {
  uint32_t checked = 0;  // TSC packets of the host among consecutive MTCs
  uint32_t wrong = 0;    // at another time than those allow
  void add(const MtcFit& o) {
    checked += o.checked;
    wrong += o.wrong;
  }
  // One may be wrong by chance: while a trace pauses, MTCs are missing, perhaps as many as their numbers repeat after.
  bool contradicts() const { return wrong >= 3 && wrong > checked / 2; }
};

// Of the first `most_bytes` of each piece, up to `most_checks`. Nothing is checked of a configuration without
// the ratio of TSC and CTC.
MtcFit check_mtc(const Stream& stream, const Config& config, uint64_t most_bytes, uint32_t most_checks);

}  // namespace asof::x86
