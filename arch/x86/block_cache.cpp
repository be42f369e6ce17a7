#include "arch/x86/block_cache.h"

#include "arch/walk/block_cache_impl.h"

namespace asof::x86 {

// Is `a` in the middle of a jump or call that a poke put there? No CPU starts an instruction in it: the
// kernel patches only where it knows that nobody does (optprobes, static calls).
bool Isa::starts_inside(const TextStore& text, const Version& v, Addr a) {
  if (!is_poke(v.origin) || is_before_poke(v.origin)) return false;
  const PokeRecord& p = text.pokes()[poke_index(v.origin)];
  if (a <= p.addr || a - p.addr >= 5 || p.new_len < 5) return false;
  const uint8_t first = p.new_bytes()[0];
  return (first == 0xe8 || first == 0xe9) && p.old_len != 0;
}

void Isa::set_hook(Node& node) {
  node.hooked = true;
  if (node.state == TextState::kStable) node.state = TextState::kHooked;
}

void hook(BlockCache& cache, Addr ip) {
  Isa& isa = cache.isa();
  if (isa.hooks(ip)) return;
  isa.hooks_.push_back(ip);
  if (Node* const node = cache.find(kKernelSpace, ip, 64)) Isa::set_hook(*node);
}

}  // namespace asof::x86

namespace asof::walk {

template Node<x86::Isa>* BlockCache<x86::Isa>::make_node(Space, Addr, uint8_t);
template void BlockCache<x86::Isa>::candidates(Node&, TimeBounds, Candidates<x86::Isa>&);

}  // namespace asof::walk
