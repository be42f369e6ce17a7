#include "arch/arm64/block_cache.h"

#include "arch/walk/block_cache_impl.h"

namespace asof::arm64 {

// Nearly always there is one. nullptr: the block has to be put together.
Variant* Isa::stable_block(const Node& node, Arena& arena) {
  if (node.mode != kA64 || (node.ip & 3) != 0 || !stable_.contains(node.space, node.ip)) return nullptr;
  Insn last;
  Variant& v = *new (arena.take<Variant>(1)) Variant;
  if (!stable_.read(node.space, node.ip, arena, v.block, last)) return nullptr;
  v.waypoint = last.waypoint;
  v.may_skip = last.conditional;
  v.link = last.link;
  v.exception_return = last.exception_return;
  return &v;
}

}  // namespace asof::arm64

namespace asof::walk {

template Node<arm64::Isa>* BlockCache<arm64::Isa>::make_node(Space, Addr, uint8_t);
template void BlockCache<arm64::Isa>::candidates(Node&, TimeBounds, Candidates<arm64::Isa>&);
template Variant<arm64::Isa>* BlockCache<arm64::Isa>::synthetic(Node&, std::span<const uint8_t>, OriginRef);

}  // namespace asof::walk
