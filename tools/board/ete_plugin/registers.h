// The system registers of the trace unit and the trace buffer: one table gives name, number, value after reset and
// writable bits. A trace unit register has the number of its offset in the memory-mapped view, divided by 4, and
// from it follow CRn, CRm and op2 (DDI 0487, D24.4 "Trace registers"; op0 2, op1 1).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "tools/board/ete_plugin/instruction.h"

namespace asof::ete {

constexpr uint32_t trace_register(unsigned offset) {
  const unsigned n = offset / 4;
  return system_register(2, 1, n >> 7 & 7, n & 15, n >> 4 & 7);
}

namespace idr {  // DDI 0487, D24.4: TRCIDR0 and on
// TRCIDR0: branch broadcast, cycle counts, return stack, 64-bit timestamps; COMMOPT: counts commit nothing.
inline constexpr uint64_t k0 = 1 | 1 << 5 | 1 << 7 | 1 << 9 | 8 << 24 | 1 << 29;
inline constexpr uint64_t k1 = 0x41'00'ff'f0;  // an ETE: the version is in TRCDEVARCH
inline constexpr uint64_t k2 = 8 | 4 << 5;     // 64-bit addresses, 32-bit context IDs, no VMID, no WFXMODE
inline constexpr uint64_t k3 =
    4 | 3 << 20 | 1 << 24;  // counts of 4 and more; EL0 and EL1 of Non-secure state
inline constexpr uint64_t k4 = 4 | 7 << 16 | 1 << 24;  // 4 address ranges, 8 pairs of selectors, 1 context ID
inline constexpr uint64_t k5 =
    0x1ff | 7 << 16 | 2 << 28;                    // PMU events are selected; 2 counters, no sequencer
inline constexpr uint64_t kDevArch = 0x47705a13;  // ETEv1.0
}  // namespace idr

// X(name, number, after reset, writable bits)
#define ASOF_ETE_REGISTERS(X)                                                \
  X(kPrgCtl, trace_register(0x004), 0, 1)                                    \
  X(kStat, trace_register(0x00c), 0, 0)                                      \
  X(kConfig, trace_register(0x010), 0, 0x1d59)                               \
  X(kAuxCtl, trace_register(0x018), 0, 0)                                    \
  X(kEventCtl0, trace_register(0x020), 0, 0xff)                              \
  X(kEventCtl1, trace_register(0x024), 0, 0x1801)                            \
  X(kResources, trace_register(0x028), 0, 0x1f1f)                            \
  X(kStallCtl, trace_register(0x02c), 0, 0)                                  \
  X(kTimestampCtl, trace_register(0x030), 0, 0xff)                           \
  X(kSyncPeriod, trace_register(0x034), 0, 0x1f)                             \
  X(kCycleCtl, trace_register(0x038), 0, 0xfff)                              \
  X(kBroadcastCtl, trace_register(0x03c), 0, 0x1ff)                          \
  X(kTraceId, trace_register(0x040), 0, 0x7f)                                \
  X(kViewInst, trace_register(0x080), 0, 0x7f'0fff)                          \
  X(kIncludeExclude, trace_register(0x084), 0, 0x00ff'00ff)                  \
  X(kStartStop, trace_register(0x088), 0, 0x00ff'00ff)                       \
  X(kReload0, trace_register(0x140), 0, 0xffff)                              \
  X(kReload1, trace_register(0x144), 0, 0xffff)                              \
  X(kCounterCtl0, trace_register(0x150), 0, 0x3'ffff)                        \
  X(kCounterCtl1, trace_register(0x154), 0, 0x3'ffff)                        \
  X(kCounter0, trace_register(0x160), 0, 0xffff)                             \
  X(kCounter1, trace_register(0x164), 0, 0xffff)                             \
  X(kIdr8, trace_register(0x180), 0, 0)                                      \
  X(kIdr9, trace_register(0x184), 0, 0)                                      \
  X(kIdr10, trace_register(0x188), 0, 0)                                     \
  X(kIdr11, trace_register(0x18c), 0, 0)                                     \
  X(kIdr12, trace_register(0x190), 0, 0)                                     \
  X(kIdr13, trace_register(0x194), 0, 0)                                     \
  X(kImspec0, trace_register(0x1c0), 0, 0)                                   \
  X(kIdr0, trace_register(0x1e0), idr::k0, 0)                                \
  X(kIdr1, trace_register(0x1e4), idr::k1, 0)                                \
  X(kIdr2, trace_register(0x1e8), idr::k2, 0)                                \
  X(kIdr3, trace_register(0x1ec), idr::k3, 0)                                \
  X(kIdr4, trace_register(0x1f0), idr::k4, 0)                                \
  X(kIdr5, trace_register(0x1f4), idr::k5, 0)                                \
  X(kIdr6, trace_register(0x1f8), 0, 0)                                      \
  X(kIdr7, trace_register(0x1fc), 0, 0)                                      \
  X(kOsLockStatus, trace_register(0x304), 0x10, 0) /* the PE's OS lock */    \
  X(kContextId0, trace_register(0x600), 0, 0xffff'ffff)                      \
  X(kContextIdCtl0, trace_register(0x680), 0, 0xf)                           \
  X(kVmidCtl0, trace_register(0x688), 0, 0)                                  \
  X(kDevId, trace_register(0xfc8), 0, 0)                                     \
  X(kClaimSet, trace_register(0xfa0), 0xf, 0xf)                              \
  X(kClaimClear, trace_register(0xfa4), 0, 0xf)                              \
  X(kAuthStatus, trace_register(0xfb8), 0xc, 0)                              \
  X(kDevArch, trace_register(0xfbc), idr::kDevArch, 0)                       \
  X(kTrfcr, system_register(3, 0, 1, 2, 1), 0, 0x6b)                         \
  X(kBufferLimit, system_register(3, 0, 9, 11, 0), 0, 0xffff'ffff'ffff'f07f) \
  X(kBufferPointer, system_register(3, 0, 9, 11, 1), 0, ~0ull)               \
  X(kBufferBase, system_register(3, 0, 9, 11, 2), 0, 0xffff'ffff'ffff'f000)  \
  X(kBufferStatus, system_register(3, 0, 9, 11, 3), 0, 0xfff7'ffff)          \
  X(kBufferAttributes, system_register(3, 0, 9, 11, 4), 0, 0xfff)            \
  X(kBufferTrigger, system_register(3, 0, 9, 11, 6), 0, 0xffff'ffff)         \
  X(kBufferId, system_register(3, 0, 9, 11, 7), 0x20, 0) /* any byte; flags are updated */

enum class Register : uint8_t {
#define ASOF_ETE_NAME(name, number, reset, writable) name,
  ASOF_ETE_REGISTERS(ASOF_ETE_NAME)
#undef ASOF_ETE_NAME
  // Registers of which there are several: resource selectors 2 to 15, address comparators 0 to 7.
  kSelector2,
  kAddress0 = kSelector2 + 14,
  kAddressType0 = kAddress0 + 8,
  kCount = kAddressType0 + 8,
  kNone = 255,
};

constexpr size_t kRegisters = static_cast<size_t>(Register::kCount);

// The register with this number (system_register()), or kNone: the access stays undefined.
Register register_of(uint32_t number);

class Registers {
 public:
  Registers();
  uint64_t& operator[](Register r) { return values_[static_cast<size_t>(r)]; }
  uint64_t operator[](Register r) const { return values_[static_cast<size_t>(r)]; }
  uint64_t at(Register first, unsigned i) const { return values_[static_cast<size_t>(first) + i]; }
  void write(Register r, uint64_t value);  // the writable bits
  uint64_t read(Register r) const;

 private:
  std::array<uint64_t, kRegisters> values_{};
};

}  // namespace asof::ete
