// What one fact states about one address, for the two parts of NaiveStore.
#pragma once
#include <cstdint>
#include <optional>

#include "textstore/facts.h"

namespace asof::test {

// The old byte that `poke` gives for address `a`.
inline std::optional<uint8_t> old_at(const Poke& poke, Addr a) {
  if (a < poke.addr || a - poke.addr >= poke.old_bytes.size()) return std::nullopt;
  return poke.old_bytes[a - poke.addr];
}

inline std::optional<uint8_t> new_at(const Poke& poke, Addr a) {
  if (a < poke.addr || a - poke.addr >= poke.new_bytes.size()) return std::nullopt;
  return poke.new_bytes[a - poke.addr];
}

// The byte it leaves there: a removal leaves what it removed.
inline std::optional<uint8_t> left_at(const Poke& poke, Addr a) {
  return poke.new_bytes.empty() ? old_at(poke, a) : new_at(poke, a);
}

inline bool covers(const Poke& poke, Addr a) { return old_at(poke, a) || new_at(poke, a); }

inline std::optional<uint8_t> layer_byte(const Layer* layer, Addr a) {
  if (layer == nullptr || layer->bytes.empty()) return std::nullopt;
  return layer->bytes[a - layer->range.begin];
}

}  // namespace asof::test
