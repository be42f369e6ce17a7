#include "tools/output/error_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "textstore/check.h"

namespace asof {
namespace {

#include "tools/output/error_entries.inc"

constexpr auto kCodes = std::to_array<std::string_view>({
#define ASOF_CODE(name, text) text,
#include "textstore/codes.def"
#undef ASOF_CODE
});
static_assert(std::ranges::equal(kEntries, kCodes, {}, &CodeInfo::code), "every code has an entry, in order");

struct Family {
  CodeFamily family;
  std::string_view meaning;
};
constexpr std::array<Family, 6> kFamilies{{
    {CodeFamily::kData, "The trace bytes themselves are damaged or out of order."},
    {CodeFamily::kFile, "An input cannot be used, or only in part."},
    {CodeFamily::kFlow, "Trace and text disagree: with these bytes the path cannot have been taken."},
    {CodeFamily::kLost,
     "Trace or records were lost before they reached the file. A gap, not a decoding error."},
    {CodeFamily::kSide, "The side-band records do not fit together: clock, order, context."},
    {CodeFamily::kText, "No bytes, or no trustworthy bytes, for an address that was executed."},
}};

}  // namespace

std::span<const CodeInfo> error_table() { return kEntries; }

const CodeInfo& info_of(Code code) {
  ASOF_CHECK(code != Code::kNone);
  return kEntries[static_cast<size_t>(code) - 1];
}

std::string explain(const CodeInfo& e) {
  return fmt::format("{} {}\n\n  What it means: {}\n  Usual causes:  {}\n  What to do:    {}\n", e.code,
                     e.title, e.meaning, e.causes, e.remedy);
}

std::string error_table_markdown() {
  std::string out =
      "# Error codes\n\n"
      "Made from the table in `tools/output/error_entries.inc` by `asof errors --markdown`; a test keeps "
      "both "
      "equal.\n"
      "`asof errors --explain CODE` prints one entry. `E-` is an error or a loss, `I-` is information (shown "
      "with `-v`).\n";
  for (const Family& family : kFamilies) {
    out += fmt::format("\n## {}\n\n{}\n", family_text(family.family), family.meaning);
    for (const CodeInfo& e : kEntries) {
      if (family_of(*code_of(e.code)) != family.family) continue;
      out += fmt::format("\n### {} {}\n\n* **Means:** {}\n* **Causes:** {}\n* **Remedy:** {}\n", e.code,
                         e.title, e.meaning, e.causes, e.remedy);
    }
  }
  return out;
}

}  // namespace asof
