// An address in a space as the key of a table.
#pragma once
#include "arch/block.h"

namespace asof {

struct AddrKey {
  Space space;
  Addr ip;
  bool operator==(const AddrKey&) const = default;
};

struct AddrKeyHash {
  size_t operator()(const AddrKey& k) const {
    return (k.ip ^ (uint64_t{k.space} << 48U)) * kHashFactor >> 16U;
  }
};

}  // namespace asof
