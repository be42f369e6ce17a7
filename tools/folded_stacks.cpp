#include "tools/folded_stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace asof {
namespace {

// ';' parts frames and a line ends a stack; names come from files and may hold both.
std::string frame_text(std::string name) {
  for (char& c : name) {
    if (c == ';') c = ':';
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
  }
  return name.empty() ? "?" : name;
}

}  // namespace

uint32_t FoldedStacks::name_id(std::string name) {
  const auto [it, fresh] = ids_.try_emplace(std::move(name), static_cast<uint32_t>(names_.size()));
  if (fresh) names_.push_back(it->first);
  return it->second;
}

void FoldedStacks::track(const TimelineTrack& t) {
  if (options_.tracks) track_names_[t.id] = name_id(frame_text(t.name));
}

void FoldedStacks::function(const TimelineFunction& f) {
  if (functions_.size() <= f.id) functions_.resize(size_t{f.id} + 1);
  functions_[f.id] = f;
}

uint32_t FoldedStacks::frame_name(const Slice& s) {
  const TimelineFunction& f = functions_[s.function];
  return name_id(frame_text(options_.versions ? versioned_name(f, s.version) : f.name));
}

FoldedStacks::NodeId FoldedStacks::make_node() {
  if (free_.empty()) {
    nodes_.emplace_back();
    return static_cast<NodeId>(nodes_.size() - 1);
  }
  const NodeId id = free_.back();
  free_.pop_back();
  return id;
}

// Adds the tree `child` to the kids of `under`. Without recursion: stacks are as deep as the traced program
// made them.
void FoldedStacks::hang(NodeId under, uint32_t name, NodeId child) {
  struct Task {
    NodeId under;
    uint32_t name;
    NodeId child;
  };
  std::vector<Task> tasks{{under, name, child}};
  while (!tasks.empty()) {
    const Task t = tasks.back();
    tasks.pop_back();
    const auto [it, fresh] = nodes_[t.under].kids.try_emplace(t.name, t.child);
    if (fresh) continue;
    NodeId into = it->second;
    NodeId from = t.child;
    if (nodes_[into].kids.size() < nodes_[from].kids.size()) {
      std::swap(into, from);
      it->second = into;
    }
    nodes_[into].weight += nodes_[from].weight;
    for (const auto& [kid_name, kid] : nodes_[from].kids) tasks.push_back({into, kid_name, kid});
    nodes_[from] = Node{};
    free_.push_back(from);
  }
}

void FoldedStacks::slice(const Slice& s) {
  Open below;
  if (const auto it = open_.find(s.id); it != open_.end()) {
    below = it->second;
    open_.erase(it);
  }
  const NodeId node = below.tree == kNone ? make_node() : below.tree;
  const uint64_t duration = s.end > s.begin ? static_cast<uint64_t>(s.end - s.begin) : 0;
  switch (options_.weight) {
    case StackWeight::kNanoseconds:
      nodes_[node].weight = duration - std::min(duration, below.child_time);
      break;
    case StackWeight::kInstructions:
      nodes_[node].weight = s.self_instructions;
      break;
    case StackWeight::kCalls:
      nodes_[node].weight = (s.flags & (Slice::kResumed | Slice::kBeganBefore)) == 0;
      break;
  }
  const uint32_t name = frame_name(s);
  NodeId* under = nullptr;
  if (s.parent == 0) {
    under = &roots_.try_emplace(options_.tracks ? s.track : 0, kNone).first->second;
  } else {
    Open& parent = open_[s.parent];
    parent.child_time += duration;
    under = &parent.tree;
  }
  if (*under == kNone) *under = make_node();
  hang(*under, name, node);
}

uint64_t FoldedStacks::whole(NodeId node) const {
  uint64_t sum = 0;
  std::vector<NodeId> rest{node};
  while (!rest.empty()) {
    const Node& n = nodes_[rest.back()];
    rest.pop_back();
    sum += n.weight;
    for (const auto& [name, kid] : n.kids) rest.push_back(kid);
  }
  return sum;
}

void FoldedStacks::write(const std::function<void(std::string_view)>& write) {
  struct Visit {
    NodeId node;
    uint32_t name;
    size_t depth;
    size_t prefix;  // length of the callers' part of the path
  };
  std::string path;
  for (const auto& [track, root] : roots_) {
    path.clear();
    if (const auto it = track_names_.find(track); it != track_names_.end()) path = names_[it->second];
    std::vector<Visit> rest;
    const auto push_kids = [&](NodeId node, size_t depth) {
      const auto& kids = nodes_[node].kids;
      for (auto it = kids.rbegin(); it != kids.rend(); ++it)
        rest.push_back({it->second, it->first, depth, path.size()});
    };
    push_kids(root, 1);
    while (!rest.empty()) {
      const Visit v = rest.back();
      rest.pop_back();
      path.resize(v.prefix);
      if (!path.empty()) path += ';';
      const bool deeper = v.depth > kMaxDepth;
      path += deeper ? "[deeper]" : names_[v.name];
      const uint64_t weight = deeper ? whole(v.node) : nodes_[v.node].weight;
      if (weight != 0) write(fmt::format("{} {}\n", path, weight));
      if (!deeper) push_kids(v.node, v.depth + 1);
    }
  }
}

}  // namespace asof
