// What the text store must know of x86 instructions at patch sites.
#pragma once
#include "textstore/patch_rules.h"

namespace asof::x86 {

extern const PatchRules kPatchRules;

}  // namespace asof::x86
