// Where the trace unit's bytes go: the guest's memory, through a table of physical addresses (ToPA) or as a single
// range (SDM vol. 3, "Trace Output").
#pragma once
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>

namespace asof::pt {

class Output {
 public:
  enum class State : uint8_t { kRunning, kStopped, kError };

  explicit Output(std::span<uint8_t> ram) : ram_(ram) {}

  // All that is written goes there as well, one region after the other. Null: nowhere.
  void copy_to(std::FILE* file) { copy_ = file; }

  // IA32_RTIT_OUTPUT_BASE and IA32_RTIT_OUTPUT_MASK_PTRS, which the unit advances while it writes.
  uint64_t base = 0;
  uint64_t mask = 0x7f;

  // TraceEn has been set: looks up the region. An unusable configuration is an operational error.
  State begin(bool topa);
  // False when the end was lost, because the output had stopped or just did.
  bool write(std::span<const uint8_t> bytes);

  // Entry number `index` of the current table; nothing if it is not in memory.
  std::optional<uint64_t> entry(unsigned index) const;

  State state() const { return state_; }
  uint64_t written() const { return written_; }  // since power-on
  uint64_t lost() const { return lost_; }
  // A region that asks for an interrupt has been filled since the last call.
  bool take_interrupt();

 private:
  void copy(std::span<const uint8_t> bytes) const;
  State load_entry();
  State next_region();
  State use(uint64_t address, uint64_t size);

  std::span<uint8_t> ram_;
  std::span<uint8_t> region_;
  std::FILE* copy_ = nullptr;
  uint64_t entry_ = 0;
  uint64_t written_ = 0, lost_ = 0;
  State state_ = State::kStopped;
  bool topa_ = false;
  bool interrupt_ = false;
};

}  // namespace asof::pt
