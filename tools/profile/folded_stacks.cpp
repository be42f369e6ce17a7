#include "tools/profile/folded_stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "decoder/calls/flow_ops.h"
#include "tools/output/output.h"

namespace asof {
namespace {

constexpr const char* kDeeper = "[deeper]";
constexpr size_t kFew = 16;  // kids of a node that are looked through

// ';' separates frames and a line ends a stack; names come from files and may hold both.
std::string frame_text(std::string name) {
  for (char& c : name) {
    if (c == ';') c = ':';
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
  }
  return name.empty() ? "?" : name;
}

}  // namespace

uint64_t weight_of(const Cost& cost, StackWeight weight) {
  if (weight == StackWeight::kInstructions) return cost.instructions;
  return weight == StackWeight::kCalls ? cost.calls : cost.ns;
}

bool has_cpu_streams(const Capture& capture) {
  return std::ranges::any_of(capture.streams, [](const Stream& s) { return s.cpu >= 0; });
}

uint32_t FoldedStacks::name_id(std::string name) {
  const auto [it, fresh] = ids_.try_emplace(std::move(name), static_cast<uint32_t>(names_.size()));
  if (fresh) names_.push_back(it->first);
  return it->second;
}

bool FoldedStacks::stopped() const { return interrupted(); }

void FoldedStacks::track(const TimelineTrack& t) {
  tracks_[t.id] = {t.kind == TimelineTrack::Kind::kCpu ? -1 : t.tid, t.cpu};
  if (options_.tracks) track_names_[t.id] = name_id(frame_text(t.name));
}

void FoldedStacks::function(const TimelineFunction& f) {
  if (functions_.size() <= f.id) functions_.resize(size_t{f.id} + 1);
  functions_[f.id] = f;
}

uint32_t FoldedStacks::frame_name(uint32_t function, uint32_t version_of_text) {
  if (frame_names_.size() <= function) frame_names_.resize(functions_.size());
  auto& names = frame_names_[function];
  const size_t version = options_.versions ? version_of_text : 0;
  if (names.size() <= version) names.resize(version + 1, kNone);
  if (names[version] == kNone) {
    const TimelineFunction& f = functions_[function];
    names[version] = name_id(frame_text(options_.versions ? versioned_name(f, version_of_text) : f.name));
  }
  return names[version];
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

void FoldedStacks::index_kids(NodeId node) {
  const auto& kids = nodes_[node].kids;
  for (uint32_t i = 0; i < kids.size(); ++i) index_[uint64_t{node} << 32U | kids[i].name] = i;
}

void FoldedStacks::forget_kids(NodeId node) {
  auto& kids = nodes_[node].kids;
  if (kids.size() > kFew) {
    for (const Kid& k : kids) index_.erase(uint64_t{node} << 32U | k.name);
  }
  kids = {};
}

FoldedStacks::NodeId& FoldedStacks::kid(NodeId under, uint32_t name) {
  auto& kids = nodes_[under].kids;
  if (kids.size() > kFew) {
    const auto [it, fresh] =
        index_.try_emplace(uint64_t{under} << 32U | name, static_cast<uint32_t>(kids.size()));
    if (!fresh) return kids[it->second].node;
    return kids.emplace_back(name, kNone).node;
  }
  for (Kid& k : kids) {
    if (k.name == name) return k.node;
  }
  kids.emplace_back(name, kNone);
  if (kids.size() > kFew) index_kids(under);
  return kids.back().node;
}

std::vector<FoldedStacks::Kid> FoldedStacks::sorted_kids(NodeId node) const {
  std::vector<Kid> kids = nodes_[node].kids;
  std::ranges::sort(kids, {}, [this](const Kid& k) { return std::string_view(names_[k.name]); });
  return kids;
}

// Adds the tree `child` to the kids of `under`. Without recursion: stacks are as deep as the traced program
// made them.
void FoldedStacks::hang(NodeId under, uint32_t name, NodeId child) {
  struct Task {
    NodeId under;
    Kid kid;
  };
  nodes_[under].height = std::max(nodes_[under].height, nodes_[child].height + 1);
  std::vector<Task> tasks{{under, {name, child}}};
  while (!tasks.empty()) {
    const Task t = tasks.back();
    tasks.pop_back();
    NodeId& there = kid(t.under, t.kid.name);
    if (there == kNone) {
      there = t.kid.node;
      continue;
    }
    NodeId into = there;
    NodeId from = t.kid.node;
    if (nodes_[into].kids.size() < nodes_[from].kids.size()) {
      std::swap(into, from);
      there = into;
    }
    nodes_[into].own += nodes_[from].own;
    nodes_[into].height = std::max(nodes_[into].height, nodes_[from].height);
    for (const Kid& k : nodes_[from].kids) tasks.push_back({into, k});
    forget_kids(from);
    nodes_[from].own = {};
    nodes_[from].height = 0;
    free_.push_back(from);
  }
}

void FoldedStacks::free_below(NodeId node) {
  std::vector<NodeId> rest;
  const auto leave = [&](NodeId n) {
    for (const Kid& k : nodes_[n].kids) rest.push_back(k.node);
    forget_kids(n);
  };
  leave(node);
  while (!rest.empty()) {
    const NodeId n = rest.back();
    rest.pop_back();
    leave(n);
    nodes_[n] = {};
    free_.push_back(n);
  }
}

// Frames of `tree` beyond `depth` become one.
void FoldedStacks::cut(NodeId tree, size_t depth) {
  const uint32_t deeper = name_id(kDeeper);
  std::vector<std::pair<NodeId, size_t>> rest{{tree, 0}};
  while (!rest.empty()) {
    const auto [node, at] = rest.back();
    rest.pop_back();
    const auto& kids = nodes_[node].kids;
    if (at < depth) {
      for (const Kid& k : kids) rest.emplace_back(k.node, at + 1);
      continue;
    }
    if (kids.empty() || (kids.size() == 1 && kids[0].name == deeper && nodes_[kids[0].node].kids.empty()))
      continue;
    Cost sum;
    for (const Kid& k : kids) sum += whole(k.node);
    free_below(node);
    const NodeId one = make_node();
    nodes_[one].own = sum;
    kid(node, deeper) = one;
  }
  nodes_[tree].height = std::min(nodes_[tree].height, static_cast<uint32_t>(depth) + 1);
}

// After a slice was hung into `tree`. It is cut at twice the depth only, so that each level is looked at once; a tree within
// a slice that has not ended may be cut already where it is too deep by itself.
void FoldedStacks::limit(NodeId tree) {
  if (nodes_[tree].height > 2 * depth_) cut(tree, depth_);
  while (depth_ > 1 && nodes_.size() - free_.size() > options_.most_nodes) {
    depth_ /= 2;
    for (const auto& [track, root] : roots_) {
      if (root != kNone) cut(root, depth_);
    }
    for (const auto& [id, open] : open_) {
      if (open.tree != kNone) cut(open.tree, depth_);
    }
  }
}

std::string FoldedStacks::shallow_note() const {
  if (depth_ == kMaxDepth) return "";
  return fmt::format("there are too many different stacks to hold: frames deeper than {} are one, [deeper]",
                     depth_);
}

void FoldedStacks::gap(const GapSlice& g) {
  if (g.cpu >= 0) lost_[{-1, g.cpu}].add(g.begin, g.end);
  if (g.tid >= 0) lost_[{g.tid, g.tid == 0 ? g.cpu : -1}].add(g.begin, g.end);
}

// Time of a slice in which its flow was known, within the requested time.
uint64_t FoldedStacks::known_time(const Slice& s) const {
  const Time begin = std::max(s.begin, options_.time.lo), end = std::min(s.end, options_.time.hi);
  if (end <= begin) return 0;
  const uint64_t duration = static_cast<uint64_t>(end) - static_cast<uint64_t>(begin);
  const auto track = tracks_.find(s.track);
  const auto lost = track == tracks_.end() ? lost_.end() : lost_.find(track->second);
  if (lost == lost_.end()) return duration;
  return duration - std::min(duration, lost->second.within(begin, end));
}

void FoldedStacks::begin(const Capture& capture) {
  if (!options_.source.any()) return;
  lines_.emplace(capture);
  chain_ids_[{}] = 0;
  chains_.emplace_back();
}

uint32_t FoldedStacks::chain_at(const Place& place, Time t) {
  const auto known = chain_at_.find(place);
  if (known != chain_at_.end()) return known->second;
  const uint32_t chain = make_chain(place.space, place.address, t);
  chain_at_.emplace(place, chain);
  return chain;
}

// The frames inside the function there.
uint32_t FoldedStacks::make_chain(Space space, Addr a, Time t) {
  std::vector<uint32_t> chain;
  if (options_.source.inlined) {
    const auto names = inlined_names(lines_->frames_at(space, a, t));
    for (size_t i = 1; i < names.size(); ++i) chain.push_back(name_id(frame_text(names[i])));
  }
  if (options_.source.lines) {
    if (const std::string line = source_text(lines_->at(space, a, t)); !line.empty())
      chain.push_back(name_id(frame_text(line)));
  }
  const auto [it, fresh] = chain_ids_.try_emplace(chain, static_cast<uint32_t>(chains_.size()));
  if (fresh) chains_.push_back(std::move(chain));
  return it->second;
}

void FoldedStacks::block(const BlockSlice& b) {
  if (!lines_ || b.in == 0) return;
  auto& parts = open_[b.in].parts;
  Addr at = b.piece.ip;
  for (const uint8_t length : b.piece.lengths) {
    ++parts[chain_at({b.piece.space, at, b.piece.origin}, b.begin)];
    at += length;
  }
}

// A function's own cost goes to the frames inside it, as far as its instructions are known one by one.
void FoldedStacks::divide(NodeId function, const Cost& own, const Open& below) {
  Cost rest = own;
  uint64_t all = 0;
  for (const auto& [chain, instructions] : below.parts) all += instructions;
  for (const auto& [chain, instructions] : below.parts) {
    if (chain == 0) continue;
    const auto share = [&](uint64_t of) {
      return static_cast<uint64_t>(static_cast<unsigned __int128>(of) * instructions / all);
    };
    Cost part;
    part.ns = share(own.ns);
    part.instructions = std::min(instructions, rest.instructions);
    rest.ns -= part.ns;
    rest.instructions -= part.instructions;
    NodeId at = function;
    for (const uint32_t name : chains_[chain]) {
      NodeId next = kid(at, name);
      if (next == kNone) {
        next = make_node();
        kid(at, name) = next;
      }
      at = next;
    }
    nodes_[at].own += part;
  }
  nodes_[function].own += rest;
}

void FoldedStacks::slice(const Slice& s) {
  Open below;
  if (const auto it = open_.find(s.id); it != open_.end()) {
    below = std::move(it->second);
    open_.erase(it);
  }
  const uint64_t duration = known_time(s);
  Cost own;
  own.ns = duration - std::min(duration, below.child_time);
  own.instructions = s.self_instructions;
  const bool begins = (s.flags & (Slice::kResumed | Slice::kBeganBefore)) == 0;
  own.calls = begins && s.begin >= options_.time.lo && s.begin <= options_.time.hi;
  if (!options_.untraced && functions_[s.function].kind == TimelineFunction::Kind::kUntraced) own.ns = 0;
  const uint32_t name = frame_name(s.function, s.version);
  NodeId* under = nullptr;
  if (s.parent == 0) {
    under = &roots_.try_emplace(options_.tracks ? s.track : 0, kNone).first->second;
  } else {
    Open& parent = open_[s.parent];
    parent.child_time += duration;
    under = &parent.tree;
  }
  if (*under == kNone) *under = make_node();
  const NodeId root = *under;
  if (below.tree == kNone && !below.parts.empty()) below.tree = make_node();
  if (below.tree != kNone) {
    divide(below.tree, own, below);
    hang(root, name, below.tree);
    return limit(root);
  }
  // It called nothing: most are like this.
  NodeId node = kid(root, name);
  if (node == kNone) {
    node = make_node();
    kid(root, name) = node;
    nodes_[root].height = std::max(nodes_[root].height, 1U);
  }
  nodes_[node].own += own;
  limit(root);
}

bool FoldedStacks::takes_sums() const {
  return !options_.source.any() && options_.time.lo == kTimeMin && options_.time.hi == kTimeMax;
}

// Where time was lost, each slice has lost its own part of it.
bool FoldedStacks::takes_sum(uint32_t track, Time begin, Time /*end*/) const {
  const auto by = tracks_.find(track);
  const auto lost = by == tracks_.end() ? lost_.end() : lost_.find(by->second);
  return lost == lost_.end() || lost->second.latest() <= begin;
}

void FoldedStacks::sum(const CallSums& sums, uint32_t /*track*/, uint64_t parent) {
  Open& below = open_[parent];
  below.child_time += sums.span.call_time;
  if (below.tree == kNone) below.tree = make_node();
  struct Under {
    NodeId node;
    size_t end;  // of what is below it
  };
  const std::vector<SumNode>& nodes = sums.span.sums;
  std::vector<Under> path{{below.tree, nodes.size()}};
  for (size_t i = 0; i < nodes.size(); ++i) {
    while (path.back().end == i) path.pop_back();
    const SumNode& n = nodes[i];
    const NodeId under = path.back().node;
    const uint32_t name = frame_name(sums.of.functions[n.key], sums.of.keys[n.key].version);
    NodeId node = kid(under, name);
    if (node == kNone) {
      node = make_node();
      kid(under, name) = node;
    }
    nodes_[node].own += {n.time, n.instructions, n.calls};
    if (n.size > 1) path.push_back({node, i + n.size});
  }
}

Cost FoldedStacks::whole(NodeId node) const {
  Cost sum;
  std::vector<NodeId> rest{node};
  while (!rest.empty()) {
    const Node& n = nodes_[rest.back()];
    rest.pop_back();
    sum += n.own;
    for (const Kid& k : n.kids) rest.push_back(k.node);
  }
  return sum;
}

void FoldedStacks::visit(const Visit& visit) {
  struct Pending {
    NodeId node;
    uint32_t name;
    size_t depth;  // of its callers
  };
  const uint32_t deeper = name_id(kDeeper);
  std::vector<uint32_t> path;
  std::vector<Pending> rest;
  const auto push_kids = [&](NodeId node) {
    const std::vector<Kid> kids = sorted_kids(node);
    for (auto it = kids.rbegin(); it != kids.rend(); ++it) rest.push_back({it->node, it->name, path.size()});
  };
  for (const auto& [track, root] : roots_) {
    path.clear();
    if (const auto it = track_names_.find(track); it != track_names_.end()) path.push_back(it->second);
    const size_t deepest = path.size() + depth_;
    push_kids(root);
    while (!rest.empty()) {
      const Pending p = rest.back();
      rest.pop_back();
      path.resize(p.depth);
      const bool cut = p.depth == deepest;
      path.push_back(cut ? deeper : p.name);
      const Cost own = cut ? whole(p.node) : nodes_[p.node].own;
      if (!own.empty()) visit(path, own);
      if (!cut) push_kids(p.node);
    }
  }
}

void FoldedStacks::write(StackWeight weight, const std::function<void(std::string_view)>& write) {
  std::string line;
  visit([&](std::span<const uint32_t> stack, const Cost& own) {
    const uint64_t value = weight_of(own, weight);
    if (value == 0) return;
    line.clear();
    for (const uint32_t name : stack) {
      if (!line.empty()) line += ';';
      line += names_[name];
    }
    fmt::format_to(std::back_inserter(line), " {}\n", value);
    write(line);
  });
}

}  // namespace asof
