// asof text: what was at an address, when, and where it came from. Without a time: the code as it was first,
// with a mark at each instruction that changes, then every version of those; --diff shows the changes only,
// old against new.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tools/disasm.h"
#include "tools/format.h"
#include "tools/output.h"
#include "tools/text_history.h"
#include "tools/verbs.h"

namespace asof {
namespace {

constexpr uint64_t kDefaultLength = 64;
constexpr uint64_t kMaxLength = 16 << 20;
constexpr size_t kLongestInstruction = 15;

struct Place {
  Space space = kKernelSpace;
  AddrRange range;
  const Symbol* symbol = nullptr;  // range.begin lies in it
};

struct TextOptions {
  InputOptions input;
  std::string where;
  uint64_t length = 0;  // 0: the function, or kDefaultLength
  bool diff = false;
  std::string syntax = "intel";
};

struct Query {
  std::string name;  // symbol, empty: `address`
  Addr address = 0;
  uint64_t offset = 0;
  std::optional<Time> time;
};

struct Line {
  Addr ip = 0;
  uint32_t size = 1;
  std::string text;  // bytes and disassembly
  OriginRef origin = kNoOrigin;
};

// ADDR|SYM[+OFF][@TIME]. An address starts with a digit or is all hexadecimal with 0x; symbols may hold
// almost anything.
std::optional<Query> parse_query(std::string text) {
  Query q;
  if (const size_t at = text.rfind('@'); at != std::string::npos) {
    q.time = parse_seconds(std::string_view(text).substr(at + 1));
    if (!q.time) return std::nullopt;
    text.resize(at);
  }
  if (const size_t plus = text.rfind('+'); plus != std::string::npos) {
    const auto offset = parse_hex(std::string_view(text).substr(plus + 1));
    if (!offset) return std::nullopt;
    q.offset = *offset;
    text.resize(plus);
  }
  if (text.empty()) return std::nullopt;
  const auto address = parse_hex(text);
  const bool looks_like_address =
      text.starts_with("0x") || (text[0] >= '0' && text[0] <= '9') || text.size() == 16;
  if (address && looks_like_address) {
    q.address = *address;
  } else {
    q.name = text;
  }
  return q;
}

Place place_of(const Symbol* symbol, Space space, Addr a, uint64_t length) {
  Place p{space, range_of(a, length != 0 ? length : kDefaultLength), symbol};
  if (symbol == nullptr) return p;
  if (length == 0 && symbol->range.contains(a))
    p.range.end = std::min(symbol->range.end, range_of(a, kMaxLength).end);
  return p;
}

std::vector<Place> find_places(const Capture& capture, const Query& q, uint64_t length) {
  std::vector<Place> places;
  const auto add = [&](const Place& p) {
    const bool known = std::any_of(places.begin(), places.end(),
                                   [&](const Place& o) { return o.space == p.space && o.range == p.range; });
    if (!known) places.push_back(p);
  };
  if (!q.name.empty()) {
    for (const Symbol* s : capture.symbols.named(q.name)) {
      if (q.time && (*q.time < s->from || *q.time > s->until)) continue;
      add(place_of(s, s->space, s->range.begin + q.offset, length));
    }
    return places;
  }
  const Addr a = q.address + q.offset;
  const size_t spaces = is_kernel_address(a) ? 1 : capture.text->space_count();
  for (Space space = 0; space < spaces; ++space) {
    if (capture.text->cell(space, a).versions.empty()) continue;
    const auto at =
        capture.symbols.find(space, a, q.time.value_or(capture.text->cell(space, a).versions[0].from));
    add(place_of(at ? at->symbol : nullptr, space, a, length));
  }
  return places;
}

class Lister {
 public:
  Lister(const TextStore& store, Syntax syntax, Output& out)
      : store_(store), disassembler_(syntax), out_(out) {}

  void show(const Place& place, const std::optional<Time>& time, bool diff) {
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
    header(place, time            ? fmt::format("at {}", format_time(*time))
                  : times.empty() ? "never changes"
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

 private:
  void header(const Place& place, const std::string& what) {
    std::string name = fmt::format("{:x}", place.range.begin);
    if (place.symbol != nullptr) {
      name += fmt::format(" {}+{:#x} ({})", place.symbol->name, place.range.begin - place.symbol->range.begin,
                          place.symbol->dso);
    }
    out_.write(fmt::format("{}, {}{}, {}\n", name, format_plural(place.range.size(), "byte", "bytes"),
                           place.space == kKernelSpace ? "" : fmt::format(", space {}", place.space), what));
  }

  void print(std::string_view mark, const Line& line) {
    out_.write(
        fmt::format("{} {:16x} {:<52} <{}>\n", mark, line.ip, line.text, format_origin(store_, line.origin)));
  }

  Line line_at(const TextImage& image, size_t i) {
    Line line{image.begin + i, 1, {}, image.origins[i]};
    const auto rest = std::span(image.bytes).subspan(i);
    if (!image.known(i, 1)) {
      while (line.size < rest.size() && !image.known(i + line.size, 1)) ++line.size;
      line.text = fmt::format("{} not known", format_plural(line.size, "byte", "bytes"));
      return line;
    }
    const unsigned n = disassembler_.length(rest.first(std::min(rest.size(), kLongestInstruction)), 64);
    if (n == 0 || !image.known(i, n)) {
      line.text = fmt::format("{:<24} .byte {:#04x}", format_bytes(rest.first(1)), rest[0]);
      return line;
    }
    line.size = n;
    line.text =
        fmt::format("{:<24} {}", format_bytes(rest.first(n)), disassembler_.text(rest.first(n), line.ip, 64));
    // A poke in any of its bytes explains it better than what is around.
    const auto origins = std::span(image.origins).subspan(i, n);
    const auto poke = std::find_if(origins.begin(), origins.end(), is_poke);
    if (poke != origins.end()) line.origin = *poke;
    return line;
  }

  // Lines that touch `part`.
  std::vector<Line> lines(const TextImage& image, AddrRange part) {
    std::vector<Line> out;
    for (size_t i = 0; i < image.bytes.size();) {
      Line line = line_at(image, i);
      i += line.size;
      if (part.overlaps(range_of(line.ip, line.size))) out.push_back(std::move(line));
    }
    return out;
  }

  void print_image(const TextImage& image, const std::vector<Cell>& marked) {
    for (const Line& line : lines(image, shown_)) {
      const bool changes = std::any_of(marked.begin(), marked.end(), [&](const Cell& c) {
        return c.range.overlaps(range_of(line.ip, line.size));
      });
      print(changes ? "*" : " ", line);
    }
  }

  void show_versions(const Cell& cell) {
    out_.write(fmt::format("versions of {:x}, {}:\n", cell.range.begin,
                           format_plural(cell.range.size(), "byte", "bytes")));
    for (size_t i = 0; i < cell.versions.size(); ++i) {
      const Version& v = cell.versions[i];
      out_.write(fmt::format("  v{} {}: {}\n", i + 1, format_interval(v.from, v.until),
                             format_origin(store_, v.origin)));
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

  void show_diff(const std::vector<Time>& times) {
    for (const Time t : times) {
      const std::vector<Line> before = lines(image_at(cells_, walk_, t - 1), shown_);
      const std::vector<Line> after = lines(image_at(cells_, walk_, t), shown_);
      out_.write(fmt::format("@ {}\n", format_time(t)));
      const auto print_missing = [&](std::string_view mark, const std::vector<Line>& from,
                                     const std::vector<Line>& in) {
        for (const Line& line : from) {
          const bool same = std::any_of(
              in.begin(), in.end(), [&](const Line& o) { return o.ip == line.ip && o.text == line.text; });
          if (!same) print(mark, line);
        }
      };
      print_missing("-", before, after);
      print_missing("+", after, before);
    }
  }

  const TextStore& store_;
  Disassembler disassembler_;
  Output& out_;
  std::vector<Cell> cells_;
  AddrRange shown_, walk_;
};

ExitCode run_text(const TextOptions& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  const auto query = parse_query(o.where);
  if (!query || o.length > kMaxLength) {
    diagnostics.error(
        {"E-FILE-091", "", Error::kNoOffset,
         fmt::format("'{}' is not ADDR|SYM[+OFF][@TIME], or --length is above {}", o.where, kMaxLength), ""});
    return kExitUsage;
  }
  const auto capture = open_for_verb(o.input, diagnostics, o.input.verbose > 0);
  if (!capture) return kExitInput;
  const std::vector<Place> places = find_places(*capture, *query, o.length);
  if (places.empty()) {
    diagnostics.error({"E-TEXT-090", o.where, Error::kNoOffset,
                       query->name.empty() ? "no text is known at this address" : "no symbol of this name",
                       "'asof events' lists mappings, 'asof report' what was read"});
    return kExitInput;
  }
  auto out = Output::open("-");
  if (!out) return kExitInput;
  Lister lister(*capture->text, o.syntax == "att" ? Syntax::kAtt : Syntax::kIntel, *out);
  for (const Place& p : places) lister.show(p, query->time, o.diff);
  return kExitOk;
}

}  // namespace

RunVerb add_text(CLI::App& app) {
  auto o = std::make_shared<TextOptions>();
  CLI::App* verb = app.add_subcommand("text", "what was at an address: every version, or the one at a time");
  verb->add_option("WHERE", o->where, "ADDR|SYM[+OFF][@TIME]: offset hexadecimal, time in seconds")
      ->required();
  add_input_options(*verb, o->input, false);
  verb->add_option("--length", o->length, "bytes (default: the function, or 64)");
  verb->add_flag("--diff", o->diff, "changes only: old against new disassembly");
  verb->add_option("--syntax", o->syntax, "of disassembly: intel or att")
      ->check(CLI::IsMember({"intel", "att"}));
  return [o] { return run_text(*o); };
}

}  // namespace asof
