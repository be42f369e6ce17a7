// Where the kernel goes from one task to another.
#pragma once
#include <algorithm>

#include "decoder/model/capture.h"

namespace asof {

// The function that exchanges the stacks of tasks (arch/x86/entry/entry_64.S, arch/arm64/kernel/entry.S); nullptr: unknown.
inline const Symbol* stack_switcher(const Capture& capture) {
  for (const char* name : {"__switch_to_asm", "cpu_switch_to"}) {
    const auto found = capture.symbols.named(name);
    if (!found.empty()) return found.front();
  }
  return nullptr;
}

// How much later than the flow's time a switch record's may be, in ns. It is written before the stacks are exchanged, but
// the time of the flow is that of its last timing packet: it may seem late by two steps between these, `timing` each, and
// never by more than 20 ms.
constexpr Time switch_lateness(Time timing) {
  constexpr Time kMost = 20'000'000;
  return 2 * std::min(kMost / 2, timing);
}

}  // namespace asof
