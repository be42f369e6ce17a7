// Text for a terminal: lines no wider than it is.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace asof {

// `line` in lines of at most `columns` columns, broken at blanks; all but the first begin with `indent` blanks. A word
// that is longer stays whole. 0 columns: as it is.
std::string fold_line(std::string_view line, size_t indent, size_t columns);

}  // namespace asof
