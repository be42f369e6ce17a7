// What a TextStore holds. Made by Builder::build(), const afterwards.
#pragma once
#include <memory>
#include <vector>

#include "textstore/byte_pool.h"
#include "textstore/space_table.h"

namespace asof {

struct TextStore::Impl {
  std::vector<std::shared_ptr<const void>> owners;
  std::vector<Origin> origins;  // [kNoOrigin] is "unknown"
  Origin poke_origin{OriginKind::kPoke, "TEXT_POKE", 0, {}};
  BytePool pool;
  std::vector<PokeRecord> pokes;
  std::vector<TextNotice> notices;
  std::vector<LostRecords> losses;
  Time unsure_from = kTimeMax;
  std::vector<std::shared_ptr<const SpaceTable>> spaces;  // children of fork share their parent's where equal
};

// For what reads or alters a finished store as a whole: files of it (core_text), doubt.
struct StoreAccess {
  using Impl = TextStore::Impl;
  static Impl& of(TextStore& store) { return *store.impl_; }
  static const Impl& of(const TextStore& store) { return *store.impl_; }
};

}  // namespace asof
