// What a PSB+ says: Intel SDM vol. 3, "PSB and PSBEND packets".
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "arch/arch.h"
#include "arch/x86/clock.h"
#include "arch/x86/errata.h"

namespace asof::x86 {

struct SyncGroup {
  bool has_ip = false;    // tracing is on, at ip
  bool overflow = false;  // it ended in an OVF
  Addr ip = 0;
  uint8_t mode = 64;
  std::optional<bool> interrupts;  // of its MODE.Exec
  bool transaction = false;
  uint64_t cr3 = 0;
  bool non_root = false;  // of the PIP
  bool guest = false;     // another machine's than the text, as far as a PIP shows
  bool has_cr3 = false;
  uint8_t cbr = 0;   // core:bus ratio; 0: it says none
  bool bad = false;  // damaged: `size` bytes were good
  size_t size = 0;   // bytes up to and with PSBEND (or up to the OVF)
  Clock clock;
};
// Reads the PSB+ at bytes[0].
SyncGroup read_sync_group(std::span<const uint8_t> bytes, const Clock& clock, const Errata& errata);
// Where tracing was switched on without a PSB: TSC first, and a TIP.PGE with the whole address before any other packet
// of the flow, in the kernel or with its mode before it. Nothing: what is at bytes[0] needs to be known from before. `size` is 0: the flow reads the packets.
std::optional<SyncGroup> read_start(std::span<const uint8_t> bytes, const Clock& clock);

}  // namespace asof::x86
