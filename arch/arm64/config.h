// What a capture says of the trace units (CoreSight ETMv4, ETE, ETMv3, PTM) and of the kernel that was
// traced.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "arch/time_conversion.h"
#include "textstore/address.h"
#include "textstore/time.h"

namespace asof::arm64 {

enum class Protocol : uint8_t { kEtm4, kEte, kEtm3, kPtm };

// The trace unit that made one stream: register values as recorded (Arm IHI 0064 for TRC*, IHI 0014 and IHI
// 0035 for ETM*); 0 where the capture has none.
struct Source {
  Protocol protocol = Protocol::kEtm4;
  uint8_t trace_id = 0;
  bool armv7 = false;  // the core has no AArch64 state
  bool m_profile = false;
  uint32_t configr = 0;  // TRCCONFIGR
  uint32_t traceidr = 0;
  uint32_t idr0 = 0, idr1 = 0, idr2 = 0;  // TRCIDRn
  uint32_t idr8 = 0, idr9 = 0, idr10 = 0, idr11 = 0, idr12 = 0, idr13 = 0;
  uint32_t devarch = 0;
  uint32_t etmcr = 0, etmidr = 0, etmccer = 0;  // ETMv3 and PTM
};

// More than this of Config::time_error is worth a word to users. ns
inline constexpr Time kCoarseClock = 10'000;

struct Config {
  std::vector<Source> sources;         // sources[i] made streams[i]
  std::optional<TimeConversion> time;  // absent: timestamps give order only
  // How far `time` may be off, each way: what a conversion that was derived from the capture's own records
  // leaves open. Comes on top of DecodeOptions::clock_error.
  Time time_error = 0;
  // Kernel text may have changed with nothing in the capture telling of it (no TEXT_POKE records, no samples
  // of the jump label code): what is known of it is one state, and no step in it is certain.
  bool unrecorded_changes = false;
  // But for this range, all of whose places that can change have all their states in the text store.
  AddrRange complete_text{};
  // aarch64_insn_patch_text_cb() of the traced kernel, where kprobes are all that it patches (anchors.cpp);
  // 0: not known.
  Addr patch_text_cb = 0;
};

}  // namespace asof::arm64
