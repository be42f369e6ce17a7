// What a kept answer has beside its tables, as bytes.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "tools/query/answer_cache.h"

namespace asof {

std::string facts_bytes(const std::string& key, const KeptTables& facts);
// Empty: they are not of this key, or damaged.
std::optional<KeptTables> facts_of(std::string_view bytes, const std::string& key);

}  // namespace asof
