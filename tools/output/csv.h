// A field of comma-separated values (RFC 4180): quoted where it has to be. Spreadsheets take what begins with = + - or @
// for a formula; a name that does gets an apostrophe before it, which makes it text.
#pragma once
#include <string>
#include <string_view>

namespace asof {

inline std::string csv_field(std::string_view text) {
  constexpr std::string_view kFormula = "=+-@";
  if (text.size() > 1 && kFormula.contains(text[0])) return csv_field("'" + std::string(text));
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

}  // namespace asof
