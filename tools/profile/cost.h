// Cost: what ran, measured in three ways.
#pragma once
#include <cstdint>

namespace asof {

struct Cost {
  uint64_t ns = 0, instructions = 0;
  uint64_t calls = 0;  // activations whose beginning was seen; of a function alone: entries at its beginning

  Cost& operator+=(const Cost& o) {
    ns += o.ns;
    instructions += o.instructions;
    calls += o.calls;
    return *this;
  }
  bool empty() const { return ns == 0 && instructions == 0 && calls == 0; }
};

}  // namespace asof
