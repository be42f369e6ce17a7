// NaiveStore: a second text store, written only from the rules in textstore/{facts,builder,text_store}.h. It
// keeps the facts as they came and answers each query by going through all of them. Slow on purpose: the
// property tests compare the real store with it.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "textstore/facts.h"
#include "textstore/text_store.h"

namespace asof::test {

class NaiveStore {
 public:
  // All facts first, then the queries.
  void add_layer(const Layer& layer) { layers_.push_back(layer); }
  // In chain order; times may be equal.
  void add_poke(const Poke& poke) { pokes_.push_back(poke); }
  void add_lost(const LostRecords& lost) { lost_.push_back(lost); }
  void all_rings_recorded() { all_rings_ = true; }

  // Every text that can be in `site` at instant t, one byte per character; "?": backed but not completely
  // known. `site` is what overlapping pokes join, or is covered by one set of layers and no poke.
  std::set<std::string> possible(AddrRange site, Time t) const;

 private:
  using Bytes = std::vector<std::optional<uint8_t>>;
  using Choice = std::vector<const Layer*>;  // the layer taken for each byte of a site; null: none

  // An interval during which one choice of layers holds.
  struct Lifetime {
    Time from, until;
    Choice choice;
    Time shown_until = kTimeMax;  // according to the layers alone
    bool over_limit = false;      // too many choices to list
    bool backed() const;
    bool epoch() const;                    // of code with a limited lifetime in memory
    std::optional<Time> observed() const;  // none: unknown, or different for some bytes
  };
  static constexpr size_t kMaxChoices = 16;
  struct Break {
    std::map<size_t, uint8_t> found;  // by offset in the site
    Time first, last_old, last;
  };

  // An instant at which all bytes of a site were seen: as just before it, just after it, or both.
  struct Sighting {
    Time time = kTimeMin;
    bool before = false, after = false;
  };
  // What does not depend on the instant of the query.
  struct LifetimeFacts {
    Lifetime lifetime;
    Bytes base;
    std::vector<Break> breaks;
    std::optional<Break> extra;
    std::vector<Sighting> sightings;
    Time lost_from = kTimeMin;     // losses that matter for the first of them
    bool doubtful = false;         // a poke was made on this or on another possible content
    std::set<std::string> states;  // all its states according to the records
  };

  Time soft_end(const Layer& layer, Addr a) const;
  std::set<const Layer*> candidates(Addr a, Time t) const;
  bool alike(Addr a, Addr b) const;
  std::vector<Choice> choices(AddrRange site, Time t) const;
  Time announced_end(const Layer& layer, Addr a) const;
  // Later pokes belong to this lifetime only if they fit.
  bool after_announced_end(AddrRange site, const Lifetime& lifetime, const Poke& poke) const;
  std::vector<Lifetime> shown_lifetimes(AddrRange site) const;
  std::vector<Lifetime> lifetimes(AddrRange site) const;
  std::vector<const Poke*> pokes_of(AddrRange site, const Lifetime& lifetime) const;
  Bytes base(AddrRange site, const std::vector<Lifetime>& lifetimes, const Lifetime& lifetime) const;
  void roll(AddrRange site, Bytes& bytes, const Poke& poke, bool forward) const;
  Bytes value(AddrRange site, const Bytes& base, const Lifetime& lifetime, Time t) const;
  std::vector<Break> breaks(AddrRange site, const Lifetime& lifetime) const;
  std::optional<Break> observation(AddrRange site, const std::vector<Lifetime>& lifetimes,
                                   const Lifetime& lifetime) const;
  static bool shows_again(const Lifetime& lifetime, const Lifetime& earlier);
  bool consistent(AddrRange site, const std::vector<Lifetime>& lifetimes, const Lifetime& lifetime) const;
  void doubt_overlaps(AddrRange site, const std::vector<Lifetime>& lifetimes,
                      std::vector<LifetimeFacts>& facts) const;
  std::optional<std::pair<Time, Time>> lost_between(Time after, Time before) const;
  const std::vector<LifetimeFacts>& facts_of(AddrRange site) const;
  std::set<std::string> recorded(AddrRange site, const LifetimeFacts& facts, Time t) const;
  void find_sightings(AddrRange site, const std::vector<Lifetime>& lifetimes, LifetimeFacts& facts) const;
  bool lost_at(const LifetimeFacts& facts, Time t) const;

  std::vector<Layer> layers_;
  std::vector<Poke> pokes_;
  std::vector<LostRecords> lost_;
  bool all_rings_ = false;
  mutable std::map<std::pair<Addr, Addr>, std::vector<LifetimeFacts>> known_facts_;
};

// What the real store gives for a part of one of its cells, written like NaiveStore::possible().
std::set<std::string> possible_texts(const Cell& cell, AddrRange part, Time t);

}  // namespace asof::test
