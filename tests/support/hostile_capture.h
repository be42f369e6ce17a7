// A capture whose maker chose every name to harm its reader: the demo's machine, with names that command terminals, split
// records, are markup, formulas, no UTF-8, or very long.
#pragma once
#include <filesystem>
#include <string_view>

namespace asof::test {

// A line of output that begins with this was forged: it stands behind line ends in the names.
inline constexpr std::string_view kForged = "FORGED";
// Commands to terminals: the title, clear the screen, C1's CSI, backspaces.
inline constexpr std::string_view kEscapes = "\x1b]0;owned\x07\x1b[2J\xc2\x9b\x32\x4a\b\b\b";
inline constexpr std::string_view kLines = "\r\nFORGED 1 [000] 6.0: 0 x\n";
// Ends a script, an attribute, a CDATA section, a comment; each sets window.owned where it runs as a script.
inline constexpr std::string_view kMarkup =
    "</script><script>window.owned=1</script><img src=x "
    "onerror=window.owned=1>\"'`&lt;]]>--><svg/onload=window.owned=1>";
inline constexpr std::string_view kFormula = "=cmd|'/c calc'!A1";
inline constexpr std::string_view kNoText =
    "\xff\xfe\x80\xe2\x80\xae\xe2\x80\xa8\xed\xa0\x80";  // no UTF-8, U+202E, U+2028
inline constexpr size_t kLong = 60'000;

// Below `directory`: perf.data/, symfs/, and hostile.pipe, the same as perf writes it to a pipe.
void write_hostile(const std::filesystem::path& directory);

}  // namespace asof::test
