// Model-specific registers and CPUID leaves that the emulator lacks: those of the trace unit, and of a performance
// monitoring unit whose counters stand still (the kernel's driver for Intel PT takes its interrupt).
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "tools/board/pt_plugin/output.h"
#include "tools/board/pt_plugin/unit.h"

namespace asof::pt {

constexpr uint32_t kMsrRtitCtl = 0x570;

class Msrs {
 public:
  Msrs(const UnitConfig& config, TraceUnit& unit, Output& output)
      : config_(config), unit_(unit), output_(output) {}

  // Nothing: the emulator knows that register, or nobody does.
  std::optional<uint64_t> read(uint32_t number) const;
  // False likewise. IA32_RTIT_CTL is written by the caller, who knows where the CPU stands.
  bool write(uint32_t number, uint64_t value);
  uint64_t counter(uint32_t number) const;  // RDPMC
  // IA32_PERF_GLOBAL_STATUS.Trace_ToPA_PMI
  void set_topa_interrupt() { global_status_ |= uint64_t{1} << 55; }

 private:
  static constexpr uint32_t kFirst = 0x180;
  const uint64_t* plain(uint32_t number) const;

  UnitConfig config_;
  TraceUnit& unit_;
  Output& output_;
  uint64_t global_status_ = 0;
  std::array<uint64_t, 4> counters_{}, selects_{};  // IA32_PMCx, IA32_PERFEVTSELx
  std::array<uint64_t, 3> fixed_{};                 // IA32_FIXED_CTRx
  uint64_t fixed_control_ = 0, global_control_ = 0;
};

struct CpuidResult {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};
// Changes what the emulator answers; false: nothing to change.
bool change_cpuid(uint32_t leaf, uint32_t subleaf, const UnitConfig& config, CpuidResult& r);

}  // namespace asof::pt
