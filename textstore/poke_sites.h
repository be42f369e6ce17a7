// Sites: the address axis cut by pokes. Pokes that replace bytes (old and new) and overlap form one site,
// whatever their lengths (a kprobe's one byte inside an optprobe's five), so that no fetch mixes two states
// of it. Neighbours that do not overlap stay apart. An install or removal joins nothing, no CPU runs across
// it; it adds its changes to the sites inside it and makes sites of what is between them. Where layers begin
// or end there, each has sites of its own: a freed trampoline's page goes to several others.
#pragma once
#include <span>
#include <vector>

#include "textstore/build_state.h"
#include "textstore/text_store.h"

namespace asof {

struct PokeSite {
  AddrRange range;
  uint32_t first = 0;  // of its pokes in PokeSites::members
  uint32_t count = 0;
  bool over_limit = false;  // more pokes meet here than the budget allows: members are left out
};

struct PokeSites {
  std::vector<PokeSite> sites;    // by address, disjoint
  std::vector<uint32_t> members;  // indices of pokes, ascending within a site
};

inline uint32_t poke_length(const PokeRecord& p) { return std::max(p.old_len, p.new_len); }
inline AddrRange poke_range(const PokeRecord& p) { return range_of(p.addr, poke_length(p)); }

// `layer_edges`: addresses at which a layer begins or ends, in any order.
PokeSites find_sites(std::span<const PokeRecord> pokes, std::span<const Addr> layer_edges, Budget& budget);

// Sorts by time (ties: file offset, then content, so that the order facts came in does not matter), drops
// records that say the same at the same time, and returns how many.
size_t sort_pokes(std::vector<PokeRecord>& pokes, NoticeLog& log);

}  // namespace asof
