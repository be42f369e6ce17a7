// Sites that are patched, none of whose pokes is recorded: where records were lost, that may be because
// nothing changed there, or because all of the site's records were among the lost ones. (Sites with pokes
// are PatchReplay's, which knows from them what can have been there.)
#pragma once
#include <span>
#include <vector>

#include "textstore/build_state.h"
#include "textstore/facts.h"
#include "textstore/lost_index.h"
#include "textstore/patch_rules.h"
#include "textstore/text_store.h"

namespace asof {

// Layers to add to those of `layers` that hold the sites, of the same rank and without a soft end (one
// more layer would end them): candidates where a loss came after (or before) the layer was observed. `pokes`
// in any order. Where the budget ends, the sites that are left count as text that never changes, and a
// notice says so.
std::vector<Layer> doubtful_sites(std::span<const PatchSite> sites, std::span<const Layer> layers,
                                  std::span<const PokeRecord> pokes, const LostIndex& lost,
                                  const PatchRules& rules, Budget& budget, NoticeLog& log);

}  // namespace asof
