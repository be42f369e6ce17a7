// An address in a space as the key of a table.
#pragma once
#include "arch/block.h"

namespace asof {

struct PlaceKey {
  Space space;
  Addr ip;
  bool operator==(const PlaceKey&) const = default;
};

struct PlaceHash {
  size_t operator()(const PlaceKey& k) const {
    return (k.ip ^ (uint64_t{k.space} << 48U)) * kHashFactor >> 16U;
  }
};

}  // namespace asof
