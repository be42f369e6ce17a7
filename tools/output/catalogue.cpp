#include "tools/output/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace asof {
namespace {

#include "tools/output/catalogue_entries.inc"

constexpr bool sorted_by_code() {
  for (size_t i = 1; i < std::size(kEntries); ++i) {
    if (kEntries[i - 1].code >= kEntries[i].code) return false;
  }
  return true;
}
static_assert(sorted_by_code(), "find_code() searches by halves");

struct Family {
  std::string_view name, meaning;
};
constexpr std::array<Family, 6> kFamilies{{
    {"DATA", "The trace bytes themselves are damaged or out of order."},
    {"FILE", "An input cannot be used, or only in part."},
    {"FLOW", "Trace and text disagree: with these bytes the path cannot have been taken."},
    {"LOST", "Trace or records were lost before they reached the file. A gap, not a decoding error."},
    {"SIDE", "The side-band records do not fit together: clock, order, context."},
    {"TEXT", "No bytes, or no trustworthy bytes, for an address that was executed."},
}};

}  // namespace

std::span<const CodeInfo> catalogue() { return kEntries; }

const CodeInfo* find_code(std::string_view code) {
  const auto it = std::lower_bound(std::begin(kEntries), std::end(kEntries), code,
                                   [](const CodeInfo& e, std::string_view c) { return e.code < c; });
  return it != std::end(kEntries) && it->code == code ? it : nullptr;
}

std::string_view family_of(std::string_view code) {
  const size_t first = code.find('-');
  const size_t last = code.rfind('-');
  return first == std::string_view::npos || last <= first ? std::string_view()
                                                          : code.substr(first + 1, last - first - 1);
}

std::string explain(const CodeInfo& e) {
  return fmt::format("{} {}\n\n  What it means: {}\n  Usual causes:  {}\n  What to do:    {}\n", e.code,
                     e.title, e.meaning, e.causes, e.remedy);
}

std::string catalogue_markdown() {
  std::string out =
      "# Error codes\n\n"
      "Made from the table in `tools/output/catalogue_entries.inc` by `asof errors --markdown`; a test keeps "
      "both "
      "equal.\n"
      "`asof errors --explain CODE` prints one entry. `E-` is an error or a loss, `I-` is information (shown "
      "with `-v`).\n";
  for (const Family& family : kFamilies) {
    out += fmt::format("\n## {}\n\n{}\n", family.name, family.meaning);
    for (const CodeInfo& e : kEntries) {
      if (family_of(e.code) != family.name) continue;
      out += fmt::format("\n### {} {}\n\n* **Means:** {}\n* **Causes:** {}\n* **Remedy:** {}\n", e.code,
                         e.title, e.meaning, e.causes, e.remedy);
    }
  }
  return out;
}

}  // namespace asof
