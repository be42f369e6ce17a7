// perf-<pid>.map: each line is a symbol or none, and what is made of them is found again by its address.
#include "decoder/user_text/perf_map.h"

#include <string>

#include "decoder/model/demangle.h"
#include "decoder/model/symbols.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(perf_map) {
  constexpr asof::Space kProcess = 5;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  asof::SymbolTable symbols;
  std::vector<asof::AddrRange> ranges;
  asof::read_perf_map(text, [&](asof::AddrRange range, std::string_view name) {
    FUZZ_CHECK(range.begin <= range.end);
    FUZZ_CHECK(name.find('\n') == std::string_view::npos);
    FUZZ_CHECK(name.empty() ||
               (name.data() >= text.data() && name.data() + name.size() <= text.data() + text.size()));
    symbols.add({.space = kProcess, .range = range, .name = std::string(name), .dso = "map", .rank = 2});
    ranges.push_back(range);
    asof::demangle(name, asof::Parameters::kYes);
    return ranges.size() < 256;
  });
  symbols.finish();
  FUZZ_CHECK(symbols.all().size() <= ranges.size());
  for (const asof::AddrRange& range : ranges) {
    const auto found = symbols.find(kProcess, range.begin, 0);
    if (range.empty()) continue;
    FUZZ_CHECK(found.has_value());
    FUZZ_CHECK(found->symbol->range.begin + found->offset == range.begin);
  }
}
