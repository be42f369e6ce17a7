#include "tools/text/text_lister.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/output/format.h"
#include "tools/text/text_changes.h"

namespace asof {
namespace {

constexpr size_t kLongestInstruction = 15;

std::string instant_text(Time t) {
  return t == kTimeMin ? "the start" : t == kTimeMax ? "the end" : format_time(t);
}

}  // namespace

void TextLister::show(const TextPlace& place, const std::optional<Time>& time, bool diff) {
  shown_ = place.range;
  // From the start of the function, so that instructions are cut where they really begin.
  walk_ = shown_;
  if (place.symbol != nullptr) walk_.begin = std::min(walk_.begin, place.symbol->range.begin);
  cells_ = store_.cells(place.space, walk_);
  std::vector<Cell> changing;
  for (const Cell& c : cells_) {
    if (c.range.overlaps(shown_) && c.versions.size() > 1) changing.push_back(c);
  }
  const std::vector<Time> times = change_times(changing);
  header(place, time            ? fmt::format("at {}{}", instant_text(*time), doubt(*time))
                : times.empty() ? unchanged_text(cells_, shown_)
                                : format_plural(times.size(), "change", "changes"));
  if (time) {
    print_image(image_at(cells_, walk_, *time), {});
  } else if (diff) {
    show_diff(times);
  } else {
    print_image(image_at(cells_, walk_, kTimeMin), changing);
    for (const Cell& c : changing) show_versions(c);
  }
}

void TextLister::header(const TextPlace& place, const std::string& what) {
  out_.write(fmt::format("{}, {}{}, {}\n", name_of_place(place),
                         format_plural(place.range.size(), "byte", "bytes"),
                         place.space == kKernelSpace ? "" : fmt::format(", space {}", place.space), what));
}

// What does not have to be so at `t`: several versions are possible, or no record would show another one.
std::string TextLister::doubt(Time t) const {
  uint64_t bytes = 0;
  for (const Cell& c : cells_) {
    if (may_differ(c, t)) bytes += c.range.intersect(shown_).size();
  }
  if (bytes == 0) return {};
  return fmt::format("; {} may have been {} then", format_plural(bytes, "byte", "bytes"),
                     bytes == 1 ? "another" : "others");
}

void TextLister::print(std::string_view mark, const Line& line) {
  out_.write(
      fmt::format("{} {:16x} {:<52} <{}>\n", mark, line.ip, line.text, format_origin(store_, line.origin)));
}

TextLister::Line TextLister::line_at(const TextImage& image, size_t i) {
  Line line{image.begin + i, 1, {}, image.origins[i]};
  const auto rest = std::span(image.bytes).subspan(i);
  if (!image.known(i, 1)) {
    while (line.size < rest.size() && !image.known(i + line.size, 1)) ++line.size;
    line.text = fmt::format("{} not known", format_plural(line.size, "byte", "bytes"));
    return line;
  }
  const unsigned n = disassembler_.length(rest.first(std::min(rest.size(), kLongestInstruction)), mode_);
  if (n == 0 || !image.known(i, n)) {
    line.text = fmt::format("{:<24} .byte {:#04x}", format_bytes(rest.first(1)), rest[0]);
    return line;
  }
  line.size = n;
  line.text = fmt::format("{:<24} {}", format_bytes(rest.first(n)),
                          disassembler_.text(rest.first(n), line.ip, mode_));
  // A poke in any of its bytes explains it better than what is around.
  const auto origins = std::span(image.origins).subspan(i, n);
  const auto poke = std::find_if(origins.begin(), origins.end(), is_poke);
  if (poke != origins.end()) line.origin = *poke;
  return line;
}

// Lines that touch `part`.
std::vector<TextLister::Line> TextLister::lines(const TextImage& image, AddrRange part) {
  std::vector<Line> out;
  for (size_t i = 0; i < image.bytes.size();) {
    Line line = line_at(image, i);
    i += line.size;
    if (part.overlaps(range_of(line.ip, line.size))) out.push_back(std::move(line));
  }
  return out;
}

void TextLister::print_image(const TextImage& image, const std::vector<Cell>& marked) {
  for (const Line& line : lines(image, shown_)) {
    const bool changes = std::any_of(marked.begin(), marked.end(), [&](const Cell& c) {
      return c.range.overlaps(range_of(line.ip, line.size));
    });
    print(changes ? "*" : " ", line);
  }
}

void TextLister::show_versions(const Cell& cell) {
  out_.write(fmt::format("versions of {:x}, {}:\n", cell.range.begin,
                         format_plural(cell.range.size(), "byte", "bytes")));
  for (size_t i = 0; i < cell.versions.size(); ++i) {
    const Version& v = cell.versions[i];
    out_.write(fmt::format("  v{} {}: {}{}\n", i + 1, format_interval(v.from, v.until),
                           format_origin(store_, v.origin), v.unsure ? ", not certain" : ""));
    TextImage image = image_at(cells_, walk_, v.from);
    // Of several versions possible at one instant this one is meant.
    const AddrRange part = cell.range.intersect(walk_);
    for (Addr a = part.begin; a < part.end; ++a) {
      image.bytes[a - walk_.begin] = v.bytes == nullptr ? uint8_t{0} : v.bytes[a - cell.range.begin];
      image.origins[a - walk_.begin] = v.bytes == nullptr ? kNoOrigin : v.origin;
    }
    for (const Line& line : lines(image, cell.range.intersect(shown_))) print("   ", line);
  }
}

void TextLister::show_diff(const std::vector<Time>& times) {
  for (const Time t : times) {
    const std::vector<Line> before = lines(image_at(cells_, walk_, t - 1), shown_);
    const std::vector<Line> after = lines(image_at(cells_, walk_, t), shown_);
    out_.write(fmt::format("@ {}\n", format_time(t)));
    const auto print_missing = [&](std::string_view mark, const std::vector<Line>& from,
                                   const std::vector<Line>& in) {
      for (const Line& line : from) {
        const bool same = std::any_of(in.begin(), in.end(),
                                      [&](const Line& o) { return o.ip == line.ip && o.text == line.text; });
        if (!same) print(mark, line);
      }
    };
    print_missing("-", before, after);
    print_missing("+", after, before);
  }
}

}  // namespace asof
