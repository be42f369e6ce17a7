// Every stable code that asof prints: what it means, what causes it, what to do. `asof errors --explain CODE`
// and docs/errors.md come from this table; a test keeps the sources, the table and the document in step.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace asof {

struct CodeInfo {
  std::string_view code;     // "E-LOST-001"
  std::string_view title;    // one line
  std::string_view meaning;  // what asof saw, and what it did then
  std::string_view causes;
  std::string_view remedy;
};

std::span<const CodeInfo> catalogue();             // sorted by code
const CodeInfo* find_code(std::string_view code);  // nullptr: no such code

// "LOST" of "E-LOST-001"; empty for anything else.
std::string_view family_of(std::string_view code);

// One entry as text for a terminal; the whole table as a Markdown page (docs/errors.md).
std::string explain(const CodeInfo& info);
std::string catalogue_markdown();

}  // namespace asof
