// What is found out about a finished store before anyone else reads it.
#pragma once
#include "textstore/origin.h"
#include "textstore/text_store.h"

namespace asof {

// No bytes of this origin are sure any more (Version::unsure). Not thread-safe.
void doubt(TextStore& store, OriginRef origin);

}  // namespace asof
