// Why a gap opens. To say it takes longer than to find out that the gap goes on and needs no reason.
#pragma once
#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>

#include "textstore/address.h"

namespace asof {

// `why` is the reason, or makes it.
template <class Why>
std::string reason_of(const Why& why) {
  if constexpr (std::is_invocable_v<const Why&>)
    return why();
  else
    return why;
}

// `before`, the address as 0x..., `after`: for gaps that there may be hundreds of thousands of.
inline std::string text_with(std::string_view before, Addr a, std::string_view after = "") {
  std::array<char, 16> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), a, 16).ptr;
  std::string text;
  text.reserve(before.size() + 2 + digits.size() + after.size());
  return text.append(before)
      .append("0x")
      .append(digits.data(), static_cast<size_t>(end - digits.data()))
      .append(after);
}

}  // namespace asof
