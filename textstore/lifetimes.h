// Lifetime: one interval of one content under the pokes of a site. Pokes change bytes within a lifetime;
// between lifetimes memory was rewritten without a record (BPF load, module load), so that a chain of pokes
// never reaches across.
#pragma once
#include <span>
#include <vector>

#include "textstore/layer_stack.h"

namespace asof {

struct Lifetime {
  Time from = kTimeMin;
  Time until = kTimeMax;
  const uint8_t* whole = nullptr;  // the base bytes, when one layer holds them all
  std::vector<uint8_t> bytes;      // else, when some are known: put together from several layers,
  std::vector<uint8_t> known;      // and 1 where known
  OriginRef origin = kNoOrigin;
  // A poke later than this is only taken for one of this lifetime when it fits: else it was made on what
  // comes next.
  Time announced = kTimeMax;         // for all bytes at least; and, when put together,
  std::vector<Time> announced_byte;  // for each
  Time observed = kTimeMin;          // kTimeMin: unknown, or before every poke
  // The layer that holds all of it; null where none does, or several do: then they are in `parts`.
  const Layer* layer = nullptr;
  struct Part {
    uint32_t at, size;  // in the site
    const Layer* layer;
  };
  std::vector<Part> parts;
  Time sure_until = kTimeMax;  // unsure_after() of its layers, the first of them
  bool unsure = false;         // a layer of it is
  bool backed = false;         // a layer covers it; else nothing is known except what pokes say
  // Of code that has its memory for a while (kRankEpoch): another lifetime is other memory.
  bool epoch = false;
  bool over_limit = false;  // too many candidates: unknown, whatever pokes say

  bool is_known(size_t i) const { return whole != nullptr || (!known.empty() && known[i] != 0); }
  uint8_t byte(size_t i) const { return whole != nullptr ? whole[i] : bytes[i]; }
};

// One stretch of addresses of a site, under the same layers.
struct LifetimePart {
  AddrRange range;
  std::span<const Visible> visible;
};

// Lifetimes of `site` in order of `from`; those of candidates overlap. `parts` cover the site without gaps.
// Times at which no layer covers it become unbacked lifetimes.
std::vector<Lifetime> make_lifetimes(AddrRange site, std::span<const LifetimePart> parts);

}  // namespace asof
