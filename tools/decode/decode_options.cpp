#include "tools/decode/decode_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tools/cli/decode_words.h"
#include "tools/cli/options.h"

namespace asof {
namespace {

std::unexpected<Error> usage(std::string reason) {
  return fail(Code::kBadOption, "", Error::kNoOffset, std::move(reason));
}

static_assert(kFieldInline == 1U << (kFieldWords.size() - 1));
static_assert(kKindPebs == 1U << (kItraceLetters.size() - 1));

uint32_t field_bit(std::string_view name) {
  const auto* const at = std::find(kFieldWords.begin(), kFieldWords.end(), name);
  return at == kFieldWords.end() ? 0 : 1U << (at - kFieldWords.begin());
}

// Reads a period after `i`: digits and a unit. 0 and "1i" mean every instruction; others would be sampling.
bool take_period(std::string_view& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view number = text.substr(0, digits);
  text.remove_prefix(digits);
  if (number.empty()) return true;
  if (text.starts_with("ns") || text.starts_with("us") || text.starts_with("ms")) {
    text.remove_prefix(2);
    return number == "0";
  }
  if (number == "1" && text.starts_with("i")) {
    text.remove_prefix(1);
    return true;
  }
  return number == "0";
}

}  // namespace

Result<uint32_t> parse_fields(const std::string& text) {
  uint32_t fields = 0;
  bool first = true;
  for (std::string part : split_list(text)) {
    const char sign = part[0];
    if (sign == '+' || sign == '-') {
      if (first) fields = kDefaultFields;
      part.erase(0, 1);
    }
    first = false;
    const uint32_t bit = field_bit(part);
    if (bit == 0) {
      return usage(fmt::format("--fields: no field '{}'; there are {}", part, fmt::join(kFieldWords, ",")));
    }
    fields = sign == '-' ? fields & ~bit : fields | bit;
  }
  if (fields == 0) return usage("--fields: no field is left");
  if ((fields & kFieldSymoff) != 0) fields |= kFieldSym;
  return fields;
}

Result<uint32_t> parse_itrace(const std::string& text) {
  uint32_t kinds = 0;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t bit = kItraceLetters.find(rest[0]);
    if (bit == std::string_view::npos) {
      return usage(fmt::format("--itrace: letter '{}' is not among {}", rest[0], kItraceLetters));
    }
    kinds |= 1U << bit;
    rest.remove_prefix(1);
    if (bit == 0 && !take_period(rest)) return usage("--itrace: asof prints every instruction; use i or i0");
  }
  if (kinds == 0) return usage("--itrace: no letter given");
  return kinds;
}

Result<AddrRange> parse_address_range(const std::string& text) {
  const size_t dash = text.find('-');
  if (dash != std::string::npos) {
    const auto a = parse_hex(std::string_view(text).substr(0, dash));
    const auto b = parse_hex(std::string_view(text).substr(dash + 1));
    if (a && b && *a <= *b) return AddrRange{*a, *b == UINT64_MAX ? *b : *b + 1};
  }
  return usage(fmt::format("--addr-range: '{}' is not like ffffffff81000000-ffffffff81000fff", text));
}

}  // namespace asof
