// Names like one that does not exist: "did you mean".
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace asof {

// Insertions, deletions, replacements and exchanges of neighbours that make `a` of `b`; `most` + 1 where it is
// more than `most`.
size_t edit_distance(std::string_view a, std::string_view b, size_t most);

// Up to three of `names` that are near to `word`, the nearest first: few letters differ, in any case, or one
// begins with the other. Sorted and without duplicates where they are equally near.
std::vector<std::string> near_names(std::string_view word, std::span<const std::string_view> names);

// "did you mean 'report' or 'repeat'?", or empty.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> names);

}  // namespace asof
