#include "tools/text/text_places.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/cli/options.h"

namespace asof {
namespace {

constexpr uint64_t kDefaultLength = 64;

bool looks_like_address(std::string_view text) {
  return text.starts_with("0x") || (text[0] >= '0' && text[0] <= '9') || text.size() == 16;
}

// "A-B" of two addresses; a symbol may hold '-', so both sides must be numbers.
bool parse_range(std::string_view text, TextQuery& q) {
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos || dash == 0 || dash + 1 == text.size()) return false;
  const auto begin = parse_hex(text.substr(0, dash));
  const auto end = parse_hex(text.substr(dash + 1));
  if (!begin || !end || *end <= *begin || !looks_like_address(text.substr(0, dash))) return false;
  q.address = *begin;
  q.length = *end - *begin;
  return true;
}

TextPlace place_of(const Symbol* symbol, Space space, Addr a, uint64_t length) {
  TextPlace p{space, range_of(a, length != 0 ? length : kDefaultLength), symbol};
  if (symbol == nullptr) return p;
  if (length == 0 && symbol->range.contains(a))
    p.range.end = std::min(symbol->range.end, range_of(a, kMaxTextLength).end);
  return p;
}

}  // namespace

std::optional<Time> parse_instant(std::string_view text) {
  if (text == "start") return kTimeMin;
  if (text == "end") return kTimeMax;
  return parse_seconds(text);
}

std::optional<TextQuery> parse_text_query(std::string text) {
  TextQuery q;
  if (const size_t at = text.rfind('@'); at != std::string::npos) {
    q.time = parse_instant(std::string_view(text).substr(at + 1));
    if (!q.time) return std::nullopt;
    text.resize(at);
  }
  if (parse_range(text, q)) return q;
  if (const size_t plus = text.rfind('+'); plus != std::string::npos) {
    const auto offset = parse_hex(std::string_view(text).substr(plus + 1));
    if (!offset) return std::nullopt;
    q.offset = *offset;
    text.resize(plus);
  }
  if (text.empty()) return std::nullopt;
  const auto address = parse_hex(text);
  if (address && looks_like_address(text)) {
    q.address = *address;
  } else {
    q.name = text;
  }
  return q;
}

std::vector<TextPlace> find_text_places(const Capture& capture, const TextQuery& q, uint64_t length,
                                        const std::vector<Space>& spaces) {
  std::vector<TextPlace> places;
  const auto wanted = [&](Space s) {
    return spaces.empty() || std::find(spaces.begin(), spaces.end(), s) != spaces.end();
  };
  const auto add = [&](const TextPlace& p) {
    const bool known = std::any_of(places.begin(), places.end(), [&](const TextPlace& o) {
      return o.space == p.space && o.range == p.range;
    });
    if (!known && wanted(p.space)) places.push_back(p);
  };
  if (!q.name.empty()) {
    for (const Symbol* s : capture.symbols.called(q.name)) {
      if (q.time && (*q.time < s->from || *q.time > s->until)) continue;
      add(place_of(s, s->space, s->range.begin + q.offset, length));
    }
    return places;
  }
  const Addr a = q.address + q.offset;
  const uint64_t size = q.length.value_or(length);
  const size_t count = is_kernel_address(a) ? 1 : capture.text->space_count();
  for (Space space = 0; space < count; ++space) {
    // Of a range, its first byte need not be known.
    const std::vector<Cell> cells = capture.text->cells(space, range_of(a, std::max<uint64_t>(size, 1)));
    const auto known =
        std::find_if(cells.begin(), cells.end(), [](const Cell& c) { return !c.versions.empty(); });
    if (known == cells.end()) continue;
    const auto at = capture.symbols.find(space, a, q.time.value_or(known->versions[0].from));
    add(place_of(at ? at->symbol : nullptr, space, a, size));
  }
  return places;
}

std::string name_of_place(const TextPlace& place) {
  std::string name = fmt::format("{:x}", place.range.begin);
  if (place.symbol != nullptr) {
    name += fmt::format(" {}+{:#x} ({})", place.symbol->shown(),
                        place.range.begin - place.symbol->range.begin, place.symbol->dso);
  }
  return name;
}

std::vector<Space> spaces_of(const Capture& capture, int32_t pid) {
  std::vector<Space> out;
  for (const Stream& stream : capture.streams) {
    for (const ContextChange& change : stream.contexts) {
      const bool fresh = std::find(out.begin(), out.end(), change.space) == out.end();
      if (change.pid == pid && change.space != kNoSpace && fresh) out.push_back(change.space);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace asof
