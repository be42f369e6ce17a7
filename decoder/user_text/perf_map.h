// perf-<pid>.map: names of code that a JIT made. tools/perf/Documentation/jit-interface.txt: "START SIZE name", numbers in hex.
#pragma once
#include <functional>
#include <string_view>

#include "textstore/address.h"

namespace asof {

// Of each line that says something, until `take` gives false. The name is part of `text`.
void read_perf_map(std::string_view text,
                   const std::function<bool(AddrRange range, std::string_view name)>& take);

}  // namespace asof
