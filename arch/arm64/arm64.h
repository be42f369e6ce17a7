// arm64: CoreSight ETMv4, ETE, ETMv3 and PTM. The factory of its Arch.
#pragma once
#include <memory>

#include "arch/arch.h"
#include "arch/arm64/config.h"

namespace asof::arm64 {

std::unique_ptr<Arch> make_arch(const Config& config);

}  // namespace asof::arm64
