// What the text store must know of arm64 instructions at patch sites.
#pragma once
#include "textstore/patch_rules.h"

namespace asof::arm64 {

extern const PatchRules kPatchRules;

}  // namespace asof::arm64
