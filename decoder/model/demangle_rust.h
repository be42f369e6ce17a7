// Rust's v0 mangling (RFC 2603), for demangle.cpp.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace asof {

// `name` begins with "_R". At most `limit` bytes come out, otherwise nothing; time is bounded by that, too.
std::optional<std::string> demangle_rust_v0(std::string_view name, size_t limit);

}  // namespace asof
