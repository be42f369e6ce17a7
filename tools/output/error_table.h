// Every stable code that asof prints: what it means, what causes it, what to do. `asof errors --explain CODE`
// and docs/errors.md come from this table; a test keeps the sources, the table and the document in step.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "textstore/code.h"

namespace asof {

struct CodeInfo {
  std::string_view code;     // as text: "E-LOST-003"
  std::string_view title;    // one line
  std::string_view meaning;  // what asof saw, and what it did then
  std::string_view causes;
  std::string_view remedy;
};

std::span<const CodeInfo> error_table();  // sorted by code
const CodeInfo& info_of(Code code);       // not of kNone

// One entry as text for a terminal; the whole table as a Markdown page (docs/errors.md).
std::string explain(const CodeInfo& info);
std::string error_table_markdown();

}  // namespace asof
