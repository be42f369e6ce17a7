// What users write: numbers, times, ranges, lists, patterns. Any text is either understood or an error with a reason.
#include "tests/fuzz/fuzz.h"
#include "tools/cli/matches.h"
#include "tools/cli/near_names.h"
#include "tools/cli/options.h"
#include "tools/decode/decode_options.h"

namespace {

template <class T>
void check(const asof::Result<T>& result) {
  FUZZ_CHECK(result.has_value() || !result.error().reason.empty());
}

}  // namespace

FUZZ_TARGET(expressions) {
  const std::string text(bytes.begin(), bytes.end());
  check(asof::parse_number_list(text, "-C"));
  check(asof::parse_time_conversion(text));
  check(asof::parse_fields(text));
  check(asof::parse_address_range(text));
  const asof::TimeBounds whole{1'000'000'000, 5'000'000'000};
  const auto range = asof::parse_time_range(text, whole);
  check(range);
  if (range) FUZZ_CHECK(range->lo <= range->hi);
  if (const auto seconds = asof::parse_seconds(text)) FUZZ_CHECK(*seconds >= 0);
  asof::parse_hex(text);
  asof::split_list(text);
  asof::split_names(text);
  const size_t half = text.size() / 2;
  const std::string_view name(text);
  asof::matches_name(name.substr(0, half), name.substr(half));
  FUZZ_CHECK(asof::matches_name("*", name));
  asof::edit_distance(name.substr(0, half), name.substr(half), 3);
}
