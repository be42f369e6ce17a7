#include "tools/text/text_change_printer.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/output/format.h"
#include "tools/output/json.h"

namespace asof {
namespace {

constexpr size_t kMostBytesShown = 16;

bool is_arm64(const Capture& c) { return c.machine == "aarch64" || c.machine == "arm64"; }

std::string space_text(Space space) {
  return space == kKernelSpace ? std::string("kernel text") : fmt::format("text of space {}", space);
}

// "2 sites differ, 5 changed and changed back, 10 pokes", without what there is none of.
std::string sites_text(uint64_t differ, uint64_t back, uint64_t pokes) {
  std::vector<std::string> parts;
  if (differ != 0) parts.push_back(format_plural(differ, "site differs", "sites differ"));
  if (back != 0)
    parts.push_back(fmt::format("{} changed and changed back",
                                differ != 0 ? format_count(back) : format_plural(back, "site", "sites")));
  if (parts.empty()) parts.emplace_back("nothing differs");
  if (pokes != 0) parts.push_back(format_plural(pokes, "poke", "pokes"));
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool bytes_known(const Version* v) { return v != nullptr && v->bytes != nullptr; }

}  // namespace

ChangePrinter::Named ChangePrinter::named(Space space, Addr a, Time t) const {
  const auto at = capture_.symbols.find(space, a, t);
  return at ? Named{at->symbol->shown(), at->symbol->dso, at->offset} : Named{};
}

// "jmp 0xffffffff81000231 <vfs_read+0x41>" for one instruction; the bytes where they are more or none.
std::string ChangePrinter::code(std::span<const uint8_t> bytes, Addr at, Space space, Time t) {
  const bool arm64 = is_arm64(capture_);
  std::string out;
  if (disassembler_.length(bytes, mode_) == bytes.size()) out = disassembler_.text(bytes, at, mode_);
  const auto target = direct_target(bytes, at, arm64);
  const Named to = target ? named(space, *target, t) : Named{};
  if (target && out.empty()) out = fmt::format("to {:#x}", *target);
  if (!to.name.empty()) out += fmt::format(" <{}+{:#x}>", to.name, to.offset);
  return out;
}

// `held` bytes of the version are at the start of `range`.
std::string ChangePrinter::content(const Version* v, uint64_t held, AddrRange range, Space space, Time t) {
  if (!bytes_known(v)) return v == nullptr ? "nothing" : "not known";
  if (held != range.size() || range.size() > kMostBytesShown)
    return format_plural(range.size(), "byte", "bytes");
  const std::span<const uint8_t> bytes(v->bytes, range.size());
  const std::string text = code(bytes, range.begin, space, t);
  return text.empty() ? format_bytes(bytes) : fmt::format("{} ({})", format_bytes(bytes), text);
}

// Of a poke, with the position of its record.
std::string ChangePrinter::origin(OriginRef ref) const {
  const auto pokes = capture_.text->pokes();
  if (!is_poke(ref) || poke_index(ref) >= pokes.size()) return format_origin(*capture_.text, ref);
  const PokeRecord& p = pokes[poke_index(ref)];
  return fmt::format("{}, cpu {}, offset {:#x}", format_origin(*capture_.text, ref),
                     static_cast<int32_t>(p.source), p.file_offset);
}

void ChangePrinter::history(const TextPlace& place, const std::vector<TextChange>& changes) {
  if (!json_) {
    const std::vector<Cell> cells = capture_.text->cells(place.space, place.range);
    out_.write(fmt::format("{}, {}{}: {}\n", name_of_place(place),
                           format_plural(place.range.size(), "byte", "bytes"),
                           place.space == kKernelSpace ? "" : fmt::format(", space {}", place.space),
                           changes.empty() ? unchanged_text(cells, place.range)
                                           : format_plural(changes.size(), "change", "changes")));
  }
  for (const TextChange& c : changes) {
    if (out_.closed() || interrupted()) return;
    if (json_) {
      change_json(place, c);
    } else {
      change_line(place, c);
    }
  }
}

void ChangePrinter::change_line(const TextPlace& place, const TextChange& c) {
  const Named at = named(place.space, c.range.begin, c.time);
  std::string what;
  if (c.poke != nullptr) {
    const auto side = [&](std::span<const uint8_t> bytes) {
      if (bytes.empty()) return std::string("nothing");
      if (bytes.size() > kMostBytesShown) return format_plural(bytes.size(), "byte", "bytes");
      const std::string text = code(bytes, c.range.begin, place.space, c.time);
      return text.empty() ? format_bytes(bytes) : fmt::format("{} ({})", format_bytes(bytes), text);
    };
    what = fmt::format("{} -> {} <{}>", side(c.poke->old_bytes()), side(c.poke->new_bytes()),
                       origin(c.poke_number | kPokeBit));
  } else if (c.before != nullptr || c.after != nullptr) {
    what = fmt::format("{} <{}>", format_plural(c.range.size(), "byte", "bytes"),
                       c.after == nullptr ? origin(c.before->origin) : origin(c.after->origin));
  } else if (c.not_before != c.time) {
    what = fmt::format("between {} and this time",
                       c.not_before == kTimeMin ? "the start" : format_time(c.not_before));
  }
  out_.write(fmt::format("{:>16} {:16x} {} {}: {}{}{}\n", format_time(c.time), c.range.begin,
                         at.name.empty() ? "-" : fmt::format("{}+{:#x}", at.name, at.offset),
                         mechanism_name(c.who.mechanism), c.who.action, what.empty() ? "" : ": ", what));
}

void ChangePrinter::change_json(const TextPlace& place, const TextChange& c) {
  const Named at = named(place.space, c.range.begin, c.time);
  JsonLine line("change");
  line.time("time", c.time).time("not_before", c.not_before).address("address", c.range.begin);
  line.number("bytes", c.range.size()).number("space", place.space);
  if (!at.name.empty()) line.text("sym", at.name).number("symoff", at.offset).text("dso", at.dso);
  line.text("mechanism", mechanism_name(c.who.mechanism)).text("action", c.who.action);
  if (c.poke != nullptr) {
    line.text("old", format_bytes(c.poke->old_bytes())).text("new", format_bytes(c.poke->new_bytes()));
    line.text("old_disasm", code(c.poke->old_bytes(), c.range.begin, place.space, c.time));
    line.text("new_disasm", code(c.poke->new_bytes(), c.range.begin, place.space, c.time));
    line.number("poke", c.poke_number + 1).number("file_offset", c.poke->file_offset);
    if (static_cast<int32_t>(c.poke->source) >= 0) line.number("cpu", c.poke->source);
  } else if (c.before != nullptr || c.after != nullptr) {
    line.text("old_origin", c.before == nullptr ? "" : origin(c.before->origin));
    line.text("new_origin", c.after == nullptr ? "" : origin(c.after->origin));
  }
  out_.write(line.end());
}

void ChangePrinter::difference_head(Space space, Time from, Time to, const TextDifference& d) {
  uint64_t differ = 0;
  for (const uint64_t n : d.differ_by) differ += n;
  const uint64_t back = d.sites.size() - differ;
  if (json_) {
    out_.write(JsonLine("diff")
                   .number("space", space)
                   .time("from", from)
                   .time("to", to)
                   .number("sites", differ)
                   .number("back", back)
                   .number("pokes", d.pokes)
                   .end());
  } else {
    out_.write(fmt::format("{} {}: {}\n", space_text(space), format_interval(from, to),
                           sites_text(differ, back, d.pokes)));
  }
  for (size_t m = 0; m < kMechanisms; ++m) {
    if (d.differ_by[m] == 0 && d.back_by[m] == 0 && d.pokes_by[m] == 0) continue;
    const std::string_view name = mechanism_name(static_cast<Mechanism>(m));
    if (json_) {
      out_.write(JsonLine("mechanism")
                     .text("mechanism", name)
                     .number("sites", d.differ_by[m])
                     .number("back", d.back_by[m])
                     .number("pokes", d.pokes_by[m])
                     .end());
    } else {
      out_.write(fmt::format("  {:<12} {}\n", name, sites_text(d.differ_by[m], d.back_by[m], d.pokes_by[m])));
    }
  }
}

void ChangePrinter::difference_symbol(const Named& symbol, Addr at, std::span<const SiteDifference> sites) {
  uint64_t differ = 0;
  uint64_t pokes = 0;
  for (const SiteDifference& p : sites) {
    differ += p.differs ? 1 : 0;
    pokes += p.pokes;
  }
  if (json_) {
    JsonLine line("symbol");
    line.text("sym", symbol.name).text("dso", symbol.dso).address("address", at);
    line.number("sites", differ).number("back", sites.size() - differ).number("pokes", pokes);
    out_.write(line.end());
    return;
  }
  out_.write(fmt::format(
      "{}: {}\n",
      symbol.name.empty() ? std::string("no symbol") : fmt::format("{} ({})", symbol.name, symbol.dso),
      sites_text(differ, sites.size() - differ, pokes)));
}

void ChangePrinter::difference_site(Space space, Time from, Time to, const SiteDifference& p) {
  const std::string before = content(p.before, p.bytes, p.range, space, from);
  const std::string after = content(p.after, p.bytes, p.range, space, to);
  if (json_) {
    const Named at = named(space, p.range.begin, to);
    JsonLine line("site");
    line.address("address", p.range.begin).number("bytes", p.range.size());
    if (!at.name.empty()) line.text("sym", at.name).number("symoff", at.offset).text("dso", at.dso);
    line.text("mechanism", mechanism_name(p.who.mechanism)).text("action", p.who.action);
    line.number("pokes", p.pokes).flag("differs", p.differs).flag("unsure", p.unsure);
    line.text("old", before).text("new", after);
    line.text("old_origin", p.before == nullptr ? "" : origin(p.before->origin));
    line.text("new_origin", p.after == nullptr ? "" : origin(p.after->origin));
    out_.write(line.end());
    return;
  }
  std::string line = fmt::format("  {:16x} {}: {}", p.range.begin, mechanism_name(p.who.mechanism), before);
  if (p.differs) line += " -> " + after;
  if (!p.differs) line += ", changed and changed back";
  if (p.pokes != 0) line += ", " + format_plural(p.pokes, "poke", "pokes");
  if (p.unsure) line += ", not sure: records are missing";
  if (p.after != nullptr) line += fmt::format(" <{}>", origin(p.after->origin));
  out_.write(line + "\n");
}

// Sites in order of address are grouped by symbol.
void ChangePrinter::difference(Space space, Time from, Time to, const TextDifference& d) {
  difference_head(space, from, to, d);
  const std::span<const SiteDifference> sites(d.sites);
  for (size_t begin = 0; begin < sites.size() && !out_.closed() && !interrupted();) {
    const Named symbol = named(space, sites[begin].range.begin, to);
    size_t end = begin + 1;
    while (end < sites.size()) {
      const Named next = named(space, sites[end].range.begin, to);
      if (next.name != symbol.name || next.dso != symbol.dso) break;
      ++end;
    }
    difference_symbol(symbol, sites[begin].range.begin, sites.subspan(begin, end - begin));
    for (; begin < end; ++begin) difference_site(space, from, to, sites[begin]);
  }
}

}  // namespace asof
