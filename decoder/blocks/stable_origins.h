// Numbers of origins of text that stay the same when the store is built again of more records.
#pragma once
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "textstore/text_store.h"

namespace asof::blocks {

class StableOrigins {
 public:
  // The store that number_of() is about from now on.
  void move_to(const TextStore& store);
  // From 1. Pokes have numbers that stay: they are in order of time.
  OriginRef number_of(OriginRef origin) const {
    return origin == kNoOrigin || is_poke(origin) ? origin : numbers_[origin];
  }
  // By number.
  std::span<const Origin> all() const { return all_; }

 private:
  using Key = std::tuple<OriginKind, uint64_t, std::string, std::string>;  // all of an Origin

  std::vector<Origin> all_;
  std::map<Key, OriginRef> known_;
  std::vector<OriginRef> numbers_;  // by the store's
};

}  // namespace asof::blocks
