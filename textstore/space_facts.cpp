#include "textstore/space_facts.h"

#include <map>
#include <utility>

#include "textstore/check.h"

namespace asof {
namespace {

// What a child sees of a layer its parent holds at t: the same, but the parent's later end is not the
// child's. It ends there only when the child puts something else in its place.
LayerView inherited_view(const LayerView& v, Time t) {
  if (v.soft || v.until == kTimeMax) return v;
  return {v.layer, t, true};
}

bool held_at(const LayerView& v, Time t) { return v.layer->from <= t && (v.soft || v.until >= t); }

}  // namespace

Space SpaceFacts::fork(Space parent, Time t) {
  const uint64_t own = spaces_[parent].own.size();
  const Space child = add();
  spaces_[child].parent = parent;
  spaces_[child].forked = t;
  spaces_[child].parents_own = own;
  return child;
}

std::vector<LayerList> SpaceFacts::resolve(std::span<const Layer> layers, BuildLimits& limits) const {
  using List = std::vector<LayerView>;
  std::vector<LayerList> lists(spaces_.size());
  std::vector<size_t> inherited(spaces_.size());  // length of the part that is not a space's own
  std::map<std::pair<const List*, size_t>, LayerList> prefixes;  // of a parent's list, as they are
  for (size_t s = 0; s < spaces_.size(); ++s) {
    const Facts& facts = spaces_[s];
    const List* parent = nullptr;
    size_t seen = 0;
    bool same = false;
    if (facts.parent != kNoSpace) {
      parent = lists[facts.parent].get();
      if (parent == nullptr) continue;
      seen = inherited[facts.parent] + facts.parents_own;
      if (!limits.fork_steps.take(seen)) continue;
      same = facts.own.empty();
      for (size_t i = 0; i < seen && same; ++i) {
        const LayerView& v = (*parent)[i];
        same = held_at(v, facts.forked) && (v.soft || v.until == kTimeMax);
      }
    }
    if (same) {
      LayerList& shared = seen == parent->size() ? lists[facts.parent] : prefixes[{parent, seen}];
      if (shared != nullptr) {
        lists[s] = shared;
        inherited[s] = seen;
        continue;
      }
    }
    if (!limits.inherited.take(seen)) continue;
    auto list = std::make_shared<List>();
    for (size_t i = 0; i < seen; ++i) {
      if (held_at((*parent)[i], facts.forked)) list->push_back(inherited_view((*parent)[i], facts.forked));
    }
    inherited[s] = list->size();
    for (uint32_t i : facts.own) list->push_back({&layers[i], layers[i].until, layers[i].soft_until});
    lists[s] = std::move(list);
    if (same) prefixes[{parent, seen}] = lists[s];
  }
  return lists;
}

}  // namespace asof
