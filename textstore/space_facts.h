// Which layers each address space sees: its own and, after a fork, those of its parent at that instant.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "textstore/build_state.h"
#include "textstore/layer_stack.h"

namespace asof {

using LayerList = std::shared_ptr<const std::vector<LayerView>>;

class SpaceFacts {
 public:
  explicit SpaceFacts(size_t spaces) : spaces_(spaces) {}

  Space add() {
    spaces_.emplace_back();
    return static_cast<Space>(spaces_.size() - 1);
  }
  // What `parent` has at this call and holds at instant t. Costs nothing here: lists are made by resolve().
  Space fork(Space parent, Time t);
  void add_layer(Space space, uint32_t layer) { spaces_[space].own.push_back(layer); }
  size_t size() const { return spaces_.size(); }

  // The lists of all spaces; a child that sees what its parent saw shares its list. A space whose list the
  // limits do not allow has none.
  std::vector<LayerList> resolve(std::span<const Layer> layers, BuildLimits& limits) const;

 private:
  struct Facts {
    Space parent = kNoSpace;
    Time forked = kTimeMin;
    uint64_t parents_own = 0;   // of the parent's own layers, those it had at the fork
    std::vector<uint32_t> own;  // indices of layers
  };
  std::vector<Facts> spaces_;
};

}  // namespace asof
