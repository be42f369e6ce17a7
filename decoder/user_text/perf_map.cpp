#include "decoder/user_text/perf_map.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace asof {
namespace {

// A number in hex and the space behind it, off the front of `line`.
bool take_number(std::string_view& line, uint64_t& number) {
  const char* stop = line.data() + line.size();
  const auto [after, error] = std::from_chars(line.data(), stop, number, 16);
  if (error != std::errc() || after == stop || *after != ' ') return false;
  line.remove_prefix(static_cast<size_t>(after + 1 - line.data()));
  return true;
}

}  // namespace

void read_perf_map(std::string_view text,
                   const std::function<bool(AddrRange range, std::string_view name)>& take) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    Addr begin = 0;
    uint64_t size = 0;
    if (take_number(line, begin) && take_number(line, size) && !take(range_of(begin, size), line)) return;
  }
}

}  // namespace asof
