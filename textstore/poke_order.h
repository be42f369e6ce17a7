// Order of pokes that carry one time. All pokes run under text_mutex, so there is one true order, and the
// bytes show it: each poke's old bytes are what the one before left (docs/live-text.md 2.5, P4).
#pragma once
#include <span>

#include "textstore/build_state.h"
#include "textstore/lifetimes.h"
#include "textstore/poke_sites.h"

namespace asof {

struct TieContext {
  std::span<PokeRecord> pokes;
  NoticeLog& log;
  Budget& steps;
};

// `members` of a site, ascending indices into `pokes`: records of equal time are reordered until the chain of
// bytes fits best. Pokes that reach beyond the site stay where they are.
void order_ties(AddrRange site, std::span<const uint32_t> members, std::span<const Lifetime> lifetimes,
                TieContext& context);

}  // namespace asof
