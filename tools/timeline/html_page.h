// The page of a timeline, put together from tools/timeline/html when asof is built, with places for the data:
// /*META*/ and /*BYTES*/.
#pragma once
#include <string_view>

namespace asof {

extern const std::string_view kHtmlPage;

}  // namespace asof
