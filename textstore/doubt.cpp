#include "textstore/doubt.h"

#include <algorithm>
#include <map>
#include <memory>

#include "textstore/text_store_impl.h"

namespace asof {

void doubt(TextStore& store, OriginRef origin) {
  const auto has = [&](const Version& v) { return v.origin == origin && v.bytes != nullptr; };
  std::map<const SpaceTable*, std::shared_ptr<const SpaceTable>> changed;  // spaces share tables
  for (std::shared_ptr<const SpaceTable>& space : StoreAccess::of(store).spaces) {
    if (!space || std::ranges::none_of(space->versions, has)) continue;
    std::shared_ptr<const SpaceTable>& with_doubt = changed[space.get()];
    if (!with_doubt) {
      auto copy = std::make_shared<SpaceTable>(*space);
      for (Version& v : copy->versions) v.unsure = v.unsure || has(v);
      with_doubt = std::move(copy);
    }
    space = with_doubt;
  }
}

}  // namespace asof
