// Which layers can be what a CPU runs, and when: ranks, ends and successors of the layers over one piece of
// address space (rules in facts.h, reasons in docs/live-text.md 3.6 and 6).
#pragma once
#include <span>
#include <vector>

#include "textstore/build_state.h"
#include "textstore/facts.h"

namespace asof {

// A layer as one space sees it; a fork may have ended it softly earlier than its owner did.
struct LayerView {
  const Layer* layer = nullptr;
  Time until = kTimeMax;
  bool soft = false;
};

// An interval in which `layer` is a candidate; nullptr: too many are, the bytes count as unknown.
struct Visible {
  Time from = kTimeMin;
  Time until = kTimeMax;
  const Layer* layer = nullptr;
  // Of a soft end: the last instant before the end of the layer, or its successor, was announced.
  Time announced = kTimeMax;

  bool operator==(const Visible&) const = default;
};

// Sorted by `from`; intervals of different layers overlap where both are candidates. All of `layers` are over
// the same addresses, which are wholly in each. Results replace `out`.
void resolve_layers(std::span<const LayerView> layers, std::vector<Visible>& out);

}  // namespace asof
