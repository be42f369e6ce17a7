// Versions of one site: for bytes that pokes cover, the chain of pokes alone decides; what a snapshot says of
// them is only compared with it (docs/live-text.md 6, 7.1). Breaks of the chain become intervals with two
// candidates.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "textstore/build_state.h"
#include "textstore/byte_pool.h"
#include "textstore/lifetimes.h"
#include "textstore/lost_index.h"
#include "textstore/patch_rules.h"
#include "textstore/poke_sites.h"

namespace asof {

// A poke whose old bytes neither the pokes before it nor the layer beneath have, and no loss explains.
struct Contradiction {
  Addr addr = 0;
  Time time = 0;
};

struct SiteContext {
  std::span<PokeRecord> pokes;
  const LostIndex& lost;
  bool all_rings;  // what is missing was lost: Builder::all_rings_recorded()
  const PatchRules& rules;
  BytePool& pool;
  NoticeLog& log;
  BuildLimits& limits;
  std::vector<bool>& dropped;  // by poke: the same poke was recorded twice; empty until the first
  std::vector<Contradiction>& contradictions;
};

class PatchReplay;

class SiteVersions {
 public:
  explicit SiteVersions(SiteContext context);
  ~SiteVersions();
  // Appends the versions of `site`, not yet tidied. `members`: its pokes, ascending indices; those with equal
  // times are reordered as their bytes demand.
  void make(AddrRange site, std::span<const uint32_t> members, std::span<const Lifetime> lifetimes,
            std::vector<Version>& out);

 private:
  void play_lifetimes(AddrRange site, std::span<const Lifetime> lifetimes, std::vector<Version>& out);
  void play_successor(std::span<const Lifetime> lifetimes, size_t ended, Time from,
                      std::vector<Version>& out);
  bool copied_too_late(std::span<const uint32_t> pokes, const Lifetime& lifetime) const;
  void doubt_overlaps(std::span<const uint32_t> pokes, std::span<const Lifetime> lifetimes,
                      std::vector<Version>& out);

  SiteContext context_;
  std::unique_ptr<PatchReplay> replay_;
  std::vector<uint32_t> kept_;
  std::vector<bool> consistent_;  // by lifetime
  class Carried;
  std::unique_ptr<Carried> carried_;
};

}  // namespace asof
