#include "textstore/layer_atoms.h"

#include <algorithm>

namespace asof {

LayerAtoms cut_layers(std::span<const LayerView> layers, Budget& budget) {
  std::vector<Addr> cuts;
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < layers.size(); ++i) {
    const AddrRange& r = layers[i].layer->range;
    if (r.empty()) continue;
    order.push_back(i);
    cuts.push_back(r.begin);
    cuts.push_back(r.end);
  }
  std::ranges::sort(cuts);
  cuts.erase(std::ranges::unique(cuts).begin(), cuts.end());
  const auto begin_of = [&](uint32_t i) { return layers[i].layer->range.begin; };
  std::ranges::sort(order, {}, begin_of);

  LayerAtoms result;
  std::vector<uint32_t> live;
  size_t next = 0;
  for (size_t c = 0; c + 1 < cuts.size(); ++c) {
    LayerAtom atom{{cuts[c], cuts[c + 1]}, static_cast<uint32_t>(result.members.size()), 0, false};
    if (!budget.take(live.size() + 1)) {
      atom.range.end = cuts.back();
      atom.over_limit = true;
      result.atoms.push_back(atom);
      break;
    }
    std::erase_if(live, [&](uint32_t i) { return layers[i].layer->range.end <= atom.range.begin; });
    while (next < order.size() && begin_of(order[next]) == atom.range.begin) live.push_back(order[next++]);
    if (live.empty()) continue;
    atom.count = static_cast<uint32_t>(live.size());
    result.members.insert(result.members.end(), live.begin(), live.end());
    result.atoms.push_back(atom);
  }
  return result;
}

}  // namespace asof
