// A field of comma-separated values (RFC 4180): quoted where it has to be. Spreadsheets take what begins with = + - or @
// for a formula; a name that does gets an apostrophe before it, which makes it text.
#pragma once
#include <string>
#include <string_view>

namespace asof {

std::string csv_field(std::string_view text);

}  // namespace asof
