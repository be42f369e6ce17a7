// Atoms: the address axis cut wherever a layer begins or ends, so that each piece lies wholly in each of its
// layers.
#pragma once
#include <span>
#include <vector>

#include "textstore/layer_stack.h"

namespace asof {

struct LayerAtom {
  AddrRange range;
  uint32_t first = 0;  // of its layers in LayerAtoms::members
  uint32_t count = 0;
  bool over_limit = false;  // more layers meet here than the budget allows: members are left out
};

struct LayerAtoms {
  std::vector<LayerAtom> atoms;   // by address; where no layer is, no atom is
  std::vector<uint32_t> members;  // indices of layers
};

LayerAtoms cut_layers(std::span<const LayerView> layers, Budget& budget);

}  // namespace asof
