#include "tools/text/text_changes.h"

#include <fmt/format.h>

#include <algorithm>

#include "textstore/text_image.h"
#include "tools/output/format.h"

namespace asof {
namespace {

bool known(const Version* v) { return v != nullptr && v->bytes != nullptr; }

bool is_poke_version(const Version& v) { return is_poke(v.origin) && v.bytes != nullptr; }

// Content that came or went at the edges of a cell's versions, as far as no poke explains it.
class CellEdges {
 public:
  CellEdges(const Recognizer& recognizer, Space space, AddrRange range, std::vector<TextChange>& out)
      : recognizer_(recognizer), space_(space), range_(range), out_(out) {}

  void add(const Cell& cell) {
    const auto versions = cell.versions;
    for (size_t i = 0; i < versions.size(); ++i) {
      const Version& v = versions[i];
      const Version* before = i == 0 ? nullptr : &versions[i - 1];
      if (before != nullptr && before->until != kTimeMax && before->until + 1 < v.from) {
        edge(cell, before->until + 1, before, nullptr);
        before = nullptr;
      }
      // The version after a poke, in the same lifetime, begins with that poke.
      if (v.from == kTimeMin || is_poke_version(v)) continue;
      if (!same_bytes(before, &v, cell.range.size()) || (before != nullptr && before->origin != v.origin))
        edge(cell, v.from, before, &v);
    }
    if (!versions.empty() && versions.back().until != kTimeMax)
      edge(cell, versions.back().until + 1, &versions.back(), nullptr);
  }

 private:
  // Neighbouring cells are cut by what happens later: one program is one change.
  void edge(const Cell& cell, Time t, const Version* before, const Version* after) {
    const AddrRange part = cell.range.intersect(range_);
    if (!known(before) && !known(after) && before != nullptr && after != nullptr) return;
    const OriginRef origin = after != nullptr ? after->origin : before->origin;
    for (auto it = out_.rbegin(); it != out_.rend() && it->range.end == part.begin; ++it) {
      const OriginRef other = it->after != nullptr ? it->after->origin : it->before->origin;
      if (it->poke != nullptr || it->time != t || other != origin || known(it->after) != known(after))
        continue;
      it->range.end = part.end;
      return;
    }
    TextChange c{.time = t, .not_before = t, .range = part, .who = {}, .before = before, .after = after};
    c.who = recognizer_.content(space_, cell.range.begin, t, before, after);
    out_.push_back(c);
  }

  const Recognizer& recognizer_;
  Space space_;
  AddrRange range_;
  std::vector<TextChange>& out_;
};

void add_pokes(const Capture& capture, const Recognizer& recognizer, AddrRange range,
               std::vector<TextChange>& out) {
  const auto pokes = capture.text->pokes();
  for (uint32_t i = 0; i < pokes.size(); ++i) {
    const PokeRecord& p = pokes[i];
    const AddrRange at = range_of(p.addr, std::max(p.old_len, p.new_len));
    if (!at.overlaps(range)) continue;
    out.push_back({.time = p.time,
                   .not_before = p.time,
                   .range = at,
                   .who = recognizer.poke(p),
                   .poke = &p,
                   .poke_number = i});
  }
}

// The unregister of a program; its code may run for a while after it, so the store has no edge there.
void add_program_ends(const Capture& capture, AddrRange range, std::vector<TextChange>& out) {
  for (const BpfProgram& p : capture.bpf_programs) {
    if (p.unloaded == kTimeMax) continue;
    for (const AddrRange& function : p.functions) {
      if (function.overlaps(range))
        out.push_back({.time = p.unloaded,
                       .not_before = p.unloaded,
                       .range = function.intersect(range),
                       .who = {Mechanism::kBpf, "program unregistered"}});
    }
  }
}

// Records that do not fit together: something changed that no record shows.
void add_missing(const Capture& capture, AddrRange range, std::vector<TextChange>& out) {
  for (const TextNotice& n : capture.text->notices()) {
    if (!range.contains(n.addr)) continue;
    std::string_view action;
    if (n.kind == TextNotice::Kind::kChainBreak) action = "change without a record";
    if (n.kind == TextNotice::Kind::kBaselineMismatch) action = "copy and records disagree";
    if (action.empty()) continue;
    out.push_back({.time = n.until == kTimeMax ? n.from : n.until,
                   .not_before = n.from,
                   .range = {n.addr, n.addr + 1},
                   .who = {Mechanism::kUnknown, action}});
  }
}

}  // namespace

std::vector<TextChange> changes_of(const Capture& capture, const Recognizer& recognizer, Space space,
                                   AddrRange range, std::span<const Cell> cells) {
  std::vector<TextChange> out;
  CellEdges edges(recognizer, space, range, out);
  for (const Cell& cell : cells) {
    if (cell.range.overlaps(range)) edges.add(cell);
  }
  if (space == kKernelSpace) {
    add_missing(capture, range, out);  // found by the poke of that time: is before it
    add_pokes(capture, recognizer, range, out);
    add_program_ends(capture, range, out);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const TextChange& a, const TextChange& b) { return a.time < b.time; });
  return out;
}

namespace {

struct CellPokes {
  uint64_t count = 0;
  const PokeRecord* last = nullptr;
};

// Pokes between the two instants, by index of the cell they lie in.
std::vector<CellPokes> count_pokes(const Capture& capture, const Recognizer& recognizer,
                                   std::span<const Cell> cells, Time from, Time to, TextDifference& out) {
  std::vector<CellPokes> in(cells.size());
  const auto pokes = capture.text->pokes();
  auto it = std::upper_bound(pokes.begin(), pokes.end(), from,
                             [](Time t, const PokeRecord& p) { return t < p.time; });
  for (; it != pokes.end() && it->time <= to; ++it) {
    const AddrRange at = range_of(it->addr, std::max(it->old_len, it->new_len));
    if (cells.empty() || at.end <= cells.front().range.begin || at.begin >= cells.back().range.end) continue;
    ++out.pokes;
    ++out.pokes_by[static_cast<size_t>(recognizer.poke(*it).mechanism)];
    auto cell = std::upper_bound(cells.begin(), cells.end(), it->addr,
                                 [](Addr a, const Cell& c) { return a < c.range.end; });
    for (; cell != cells.end() && cell->range.begin < at.end; ++cell) {
      CellPokes& counted = in[static_cast<size_t>(cell - cells.begin())];
      ++counted.count;
      counted.last = &*it;
    }
  }
  return in;
}

bool changed_between(const Cell& cell, Time from, Time to) {
  return std::any_of(cell.versions.begin(), cell.versions.end(),
                     [&](const Version& v) { return v.from > from && v.from <= to; });
}

// The same content over cells that other times cut: one site.
bool continues(const SiteDifference& last, const SiteDifference& next) {
  const auto origin = [](const Version* v) { return known(v) ? v->origin : kNoOrigin; };
  return last.range.end == next.range.begin && last.pokes == 0 && next.pokes == 0 &&
         last.differs == next.differs && origin(last.before) == origin(next.before) &&
         origin(last.after) == origin(next.after) && known(last.after) == known(next.after) &&
         last.who.action == next.who.action;
}

}  // namespace

TextDifference difference(const Capture& capture, const Recognizer& recognizer, Space space,
                          std::span<const Cell> cells, Time from, Time to) {
  TextDifference out;
  std::vector<CellPokes> pokes(cells.size());
  if (space == kKernelSpace) pokes = count_pokes(capture, recognizer, cells, from, to, out);
  for (size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i];
    if (cell.stable() || cell.versions.empty()) continue;
    SiteDifference p;
    p.range = cell.range;
    p.bytes = cell.range.size();
    p.pokes = pokes[i].count;
    p.before = version_at(cell, from);
    p.after = version_at(cell, to);
    p.differs = !same_bytes(p.before, p.after, cell.range.size());
    const bool moved = p.pokes != 0 || changed_between(cell, from, to);
    if (!moved && !p.differs) continue;
    p.unsure = several_at(cell, from) || several_at(cell, to);
    const bool by_poke = pokes[i].last != nullptr && (p.after == nullptr || is_poke(p.after->origin));
    p.who = by_poke ? recognizer.poke(*pokes[i].last)
                    : recognizer.content(space, cell.range.begin,
                                         p.after != nullptr ? std::max(p.after->from, from) : to, p.before,
                                         known(p.after) || p.before == nullptr ? p.after : nullptr);
    if (!out.sites.empty() && continues(out.sites.back(), p)) {
      out.sites.back().range.end = p.range.end;
      continue;
    }
    out.sites.push_back(p);
  }
  for (const SiteDifference& p : out.sites)
    ++(p.differs ? out.differ_by : out.back_by)[static_cast<size_t>(p.who.mechanism)];
  return out;
}

std::string unchanged_text(std::span<const Cell> cells, AddrRange range) {
  uint64_t bytes = 0;
  for (const Cell& c : cells) {
    if (std::ranges::any_of(c.versions, &Version::unsure)) bytes += c.range.intersect(range).size();
  }
  if (bytes == 0) return "no change is recorded";
  return fmt::format("no change is recorded; {} may have changed without a record",
                     format_plural(bytes, "byte", "bytes"));
}

}  // namespace asof
