#include "decoder/blocks/stable_origins.h"

namespace asof::blocks {

void StableOrigins::move_to(const TextStore& store) {
  numbers_.assign(1, kNoOrigin);
  for (OriginRef i = 1; i <= store.origin_count(); ++i) {
    const Origin& origin = store.origin(i);
    const auto next = static_cast<OriginRef>(all_.size() + 1);
    const auto [at, added] =
        known_.try_emplace(Key{origin.kind, origin.id, origin.name, origin.build_id}, next);
    if (added) all_.push_back(origin);
    numbers_.push_back(at->second);
  }
}

}  // namespace asof::blocks
