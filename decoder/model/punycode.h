// Characters of names that are not ASCII, as manglings write them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace asof {

// Appends one character.
void put_utf8(std::string& out, uint32_t c);
// RFC 3492, with '_' where that has '-', to UTF-8. nullopt: it is none.
std::optional<std::string> punycode(std::string_view text);

}  // namespace asof
