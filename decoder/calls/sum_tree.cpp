#include "decoder/calls/sum_tree.h"

namespace asof {

void SumTree::begin(std::vector<SumKey>& keys) {
  keys_ = &keys;
  key_ids_.clear();
  ++chunk_;
}

uint32_t SumTree::key_of(const EndedCall& call, const FunctionTable& functions) {
  if (latest_.size() <= call.function) latest_.resize(size_t{call.function} + 1);
  Latest& latest = latest_[call.function];
  if (latest.chunk == chunk_ && latest.version == call.version) return latest.key;
  const auto [at, fresh] = key_ids_.try_emplace(uint64_t{call.function} << 32U | call.version,
                                                static_cast<uint32_t>(keys_->size()));
  if (fresh) {
    const TimelineFunction& f = functions[call.function];
    keys_->push_back({functions.symbol(call.function), f.space, f.range.begin, call.version});
  }
  latest = {chunk_, call.version, at->second};
  return at->second;
}

uint32_t SumTree::new_kid(uint32_t under, uint32_t key) {
  const auto id = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({.key = key, .next = nodes_[under].first});
  nodes_[under].first = id;
  const uint32_t kids = ++nodes_[under].kids;
  if (kids < kFew) return id;
  if (kids > kFew) {
    index_[uint64_t{under} << 32U | key] = id;
    return id;
  }
  for (uint32_t k = id; k != kNone; k = nodes_[k].next) index_[uint64_t{under} << 32U | nodes_[k].key] = k;
  return id;
}

uint32_t SumTree::kid(uint32_t under, uint32_t key) {
  if (nodes_[under].kids >= kFew) {
    const auto at = index_.find(uint64_t{under} << 32U | key);
    return at != index_.end() ? at->second : new_kid(under, key);
  }
  for (uint32_t k = nodes_[under].first; k != kNone; k = nodes_[k].next) {
    if (nodes_[k].key == key) return k;
  }
  return new_kid(under, key);
}

// Read backwards, callers come before what they called.
void SumTree::add_up(std::span<const EndedCall> ended, uint32_t least_depth, const FunctionTable& functions,
                     std::vector<SumNode>& out) {
  nodes_.assign(1, {});
  index_.clear();
  path_.assign(1, 0);
  for (size_t i = ended.size(); i-- > 0;) {
    const EndedCall& call = ended[i];
    path_.resize(call.depth - least_depth + 1);
    const uint32_t node = kid(path_.back(), key_of(call, functions));
    ++nodes_[node].calls;
    nodes_[node].instructions += call.own_instructions;
    nodes_[node].time += call.own_time;
    path_.push_back(node);
  }
  write(out);
}

void SumTree::write(std::vector<SumNode>& out) {
  out.reserve(nodes_.size() - 1);
  struct Open {
    uint32_t next;
    uint32_t written;  // index + 1; 0: the root
  };
  std::vector<Open> open{{nodes_[0].first, 0}};
  while (!open.empty()) {
    const uint32_t id = open.back().next;
    if (id == kNone) {
      if (const uint32_t at = open.back().written; at != 0)
        out[at - 1].size = static_cast<uint32_t>(out.size()) - (at - 1);
      open.pop_back();
      continue;
    }
    const Node& n = nodes_[id];
    open.back().next = n.next;
    out.push_back({n.key, 1, n.calls, n.instructions, n.time});
    if (n.first != kNone) open.push_back({n.first, static_cast<uint32_t>(out.size())});
  }
}

}  // namespace asof
