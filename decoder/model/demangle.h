// Names of functions as their source has them: C++, Rust (both manglings), Go.
#pragma once
#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "textstore/plain_text.h"

namespace asof {

// A longer name is shown as it is, and one whose source name would be much longer than itself. Both bound what
// a made-up name can cost.
inline constexpr size_t kMaxMangled = 2048;
constexpr size_t max_demangled(size_t mangled) { return std::min(16 * mangled + 256, kMostPlainBytes); }

// False for nearly all names that are not mangled.
bool looks_mangled(std::string_view name);

enum class Parameters : bool { kNo, kYes };  // `ns::f` or `ns::f(int)`, as far as the language has them

// Nothing if the name is not mangled, or not as any compiler does it.
std::optional<std::string> demangle(std::string_view name, Parameters parameters);

// Whether the mangled `name` can be that of the function `wanted`, which is as in source: false rules it out,
// for a small part of what demangling costs.
bool may_be_called(std::string_view name, std::string_view wanted);

}  // namespace asof
