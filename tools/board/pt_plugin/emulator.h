// What the emulator exports beside its plugin interface (because it has loadable modules), and why it is needed:
//
// With -icount one thread runs all CPUs in turn, and they share translations. QEMU 11.1 puts the index of the CPU
// that translated a block into its callbacks and scoreboard accesses, whichever CPU then runs it. So the CPU that
// runs is taken from the emulator's own variable, and inline operations act on one variable for all CPUs.
#pragma once
#include <cstdint>

#include "tools/board/machine/qemu_api.h"

extern "C" {
struct CPUState;
extern __thread CPUState* current_cpu;
CPUState* qemu_get_cpu(int index);
// Runs a function between two blocks, where interrupts can be raised.
void async_run_on_cpu(CPUState*, void (*)(CPUState*, void*), void*);
// The guest's clock in ns; outside of translated code only.
int64_t icount_get();
}

namespace asof::pt {

// Variables that translated code counts in and tests.
class InlineCells {
 public:
  InlineCells() : score_(qemu_plugin_scoreboard_new(1)) {}
  // For use while the CPU with this index translates: its index is added to the address that is meant.
  qemu_plugin_u64 cell(uint64_t& variable, unsigned translator) const {
    const auto base = reinterpret_cast<uintptr_t>(qemu_plugin_scoreboard_find(score_, 0));
    return {score_, reinterpret_cast<uintptr_t>(&variable) - base - translator};
  }

 private:
  qemu_plugin_scoreboard* score_;
};

}  // namespace asof::pt
