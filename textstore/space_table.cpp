#include "textstore/space_table.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "textstore/layer_atoms.h"
#include "textstore/version_list.h"

namespace asof {
namespace {

// No instruction is longer. Differing bytes nearer to each other than this stay in one cell, so that an
// instruction never touches two cells that differ on their own.
constexpr size_t kMaxInstruction = 15;
// A site over more pieces of different layers than this is no site of a real kernel.
constexpr size_t kMaxParts = 64;

class TableMaker {
 public:
  TableMaker(std::span<const LayerView> layers, bool own_times, TableContext& context)
      : layers_(layers), own_times_(own_times), context_(context), table_(std::make_shared<SpaceTable>()) {
    cut_ = cut_layers(layers, context.limits.overlaps);
    for (const LayerAtom& atom : cut_.atoms) {
      if (atom.over_limit) context_.log.count(TextNotice::Kind::kTooComplex, atom.range.begin, kTimeMin);
    }
  }

  std::shared_ptr<SpaceTable> run(const PokeSites* sites, SiteVersions* versions);

 private:
  void plain(AddrRange range);
  void plain_in_atom(AddrRange range);
  void split_where_different(AddrRange range);
  void add_layers(AddrRange range);
  void poked(const PokeSite& site, const PokeSites& sites, SiteVersions& versions);
  void add_cell(AddrRange range, bool own);
  void add_unknown(AddrRange range);

  const std::vector<Visible>& resolved(size_t atom);
  void resolve(size_t atom, std::vector<Visible>& out);
  void find_differences(AddrRange range, std::vector<AddrRange>& out);
  bool continues_last(AddrRange range) const;

  std::span<const LayerView> layers_;
  bool own_times_;
  TableContext& context_;
  std::shared_ptr<SpaceTable> table_;
  LayerAtoms cut_;
  size_t atom_ = 0;  // the first that ends after the place reached
  size_t resolved_atom_ = SIZE_MAX;
  std::vector<Visible> visible_;
  std::vector<LayerView> views_;
  std::vector<Version> versions_;  // of the cell being made
  bool last_is_own_ = false;       // the last cell must not grow: it is a site
};

void TableMaker::resolve(size_t atom, std::vector<Visible>& out) {
  const LayerAtom& a = cut_.atoms[atom];
  views_.clear();
  for (uint32_t k = 0; k < a.count; ++k) views_.push_back(layers_[cut_.members[a.first + k]]);
  resolve_layers(views_, out);
}

const std::vector<Visible>& TableMaker::resolved(size_t atom) {
  if (resolved_atom_ != atom) {
    resolve(atom, visible_);
    resolved_atom_ = atom;
  }
  return visible_;
}

std::shared_ptr<SpaceTable> TableMaker::run(const PokeSites* sites, SiteVersions* versions) {
  Addr at = 0;
  if (sites != nullptr) {
    for (const PokeSite& site : sites->sites) {
      plain({at, site.range.begin});
      poked(site, *sites, *versions);
      at = site.range.end;
    }
  }
  plain({at, UINT64_MAX});
  if (table_->cells.empty()) table_->cells.push_back({0, 0});
  table_->cells.shrink_to_fit();
  table_->versions.shrink_to_fit();
  return std::move(table_);
}

void TableMaker::plain(AddrRange range) {
  while (!range.empty()) {
    while (atom_ < cut_.atoms.size() && cut_.atoms[atom_].range.end <= range.begin) ++atom_;
    AddrRange piece = range;
    if (atom_ == cut_.atoms.size() || cut_.atoms[atom_].range.begin >= range.end) {
      versions_.clear();
      add_cell(piece, false);
    } else if (cut_.atoms[atom_].range.begin > range.begin) {
      piece.end = cut_.atoms[atom_].range.begin;
      versions_.clear();
      add_cell(piece, false);
    } else {
      piece.end = std::min(range.end, cut_.atoms[atom_].range.end);
      plain_in_atom(piece);
    }
    range.begin = piece.end;
  }
}

void TableMaker::plain_in_atom(AddrRange range) {
  const size_t count = cut_.atoms[atom_].over_limit ? 0 : resolved(atom_).size();
  if (cut_.atoms[atom_].over_limit || !context_.limits.overlaps.take(count)) {
    add_unknown(range);
    return;
  }
  bool overlap = false;
  Time until = kTimeMin;
  for (size_t i = 0; i < visible_.size() && !overlap; ++i) {
    overlap = i != 0 && visible_[i].from <= until;
    until = std::max(until, visible_[i].until);
  }
  if (overlap) {
    split_where_different(range);
  } else {
    add_layers(range);
  }
}

// Candidates mostly differ in few places (two snapshots of one kernel): only those become ambiguous.
void TableMaker::split_where_different(AddrRange range) {
  std::vector<AddrRange> differences;
  find_differences(range, differences);
  for (const AddrRange& d : differences) {
    if (range.begin < d.begin) add_layers({range.begin, d.begin});
    add_layers(d);
    range.begin = d.end;
  }
  if (!range.empty()) add_layers(range);
}

// Adds the runs in which `a` and `b` differ. Equal bytes do not divide a run if an instruction can touch
// different bytes on both sides of them.
void differing_runs(const uint8_t* a, const uint8_t* b, AddrRange range, std::vector<AddrRange>& out) {
  constexpr size_t kStep = 64;
  const size_t first = out.size();
  for (size_t at = 0; at < range.size(); at += kStep) {
    const size_t n = std::min<size_t>(kStep, range.size() - at);
    if (std::memcmp(a + at, b + at, n) == 0) continue;
    for (size_t k = at; k < at + n; ++k) {
      if (a[k] == b[k]) continue;
      const Addr here = range.begin + k;
      if (out.size() > first && here - out.back().end <= kMaxInstruction - 2) {
        out.back().end = here + 1;
      } else {
        out.push_back({here, here + 1});
      }
    }
  }
}

void join_runs(std::vector<AddrRange>& runs) {
  std::ranges::sort(runs, {}, &AddrRange::begin);
  size_t kept = 0;
  for (const AddrRange& d : runs) {
    if (kept != 0 && (d.begin <= runs[kept - 1].end || d.begin - runs[kept - 1].end <= kMaxInstruction - 2)) {
      runs[kept - 1].end = std::max(runs[kept - 1].end, d.end);
    } else {
      runs[kept++] = d;
    }
  }
  runs.resize(kept);
}

// Where layers that are candidates at one instant have different bytes.
void TableMaker::find_differences(AddrRange range, std::vector<AddrRange>& out) {
  const auto bytes_of = [&](const Visible& v) -> const uint8_t* {
    if (v.layer == nullptr || v.layer->bytes.empty()) return nullptr;
    return v.layer->bytes.data() + (range.begin - v.layer->range.begin);
  };
  std::vector<const Visible*> open;
  for (const Visible& v : visible_) {
    std::erase_if(open, [&](const Visible* o) { return o->until < v.from; });
    const uint8_t* b = bytes_of(v);
    for (const Visible* o : open) {
      const uint8_t* a = bytes_of(*o);
      if (a == nullptr || b == nullptr || a == b) continue;
      if (!context_.limits.compared_bytes.take(range.size())) {
        out.assign(1, range);
        return;
      }
      differing_runs(a, b, range, out);
    }
    open.push_back(&v);
  }
  join_runs(out);
}

void TableMaker::add_layers(AddrRange range) {
  if (!context_.limits.overlaps.take(visible_.size())) {
    add_unknown(range);
    return;
  }
  versions_.clear();
  for (const Visible& v : visible_) {
    Version version{v.from, v.until, nullptr, kNoOrigin};
    if (v.layer != nullptr) {
      version.origin = v.layer->origin;
      version.unsure = v.layer->unsure;
      if (!v.layer->bytes.empty())
        version.bytes = v.layer->bytes.data() + (range.begin - v.layer->range.begin);
    }
    add_version(versions_, version, v.layer == nullptr ? kTimeMax : unsure_after(*v.layer, v.announced));
  }
  add_cell(range, false);
}

void TableMaker::add_unknown(AddrRange range) {
  context_.log.count(TextNotice::Kind::kTooComplex, range.begin, kTimeMin);
  versions_.assign(1, Version{});
  add_cell(range, false);
}

void TableMaker::poked(const PokeSite& site, const PokeSites& sites, SiteVersions& versions) {
  while (atom_ < cut_.atoms.size() && cut_.atoms[atom_].range.end <= site.range.begin) ++atom_;
  // The site's parts: pieces of atoms, and what is between them.
  std::vector<LifetimePart> parts;
  std::deque<std::vector<Visible>> resolutions;
  bool over_limit = site.over_limit;
  size_t lifetimes = 1;
  Addr at = site.range.begin;
  for (size_t a = atom_; at < site.range.end && !over_limit; ++a) {
    const bool gap = a == cut_.atoms.size() || cut_.atoms[a].range.begin > at;
    const Addr end =
        gap ? (a == cut_.atoms.size() ? site.range.end : cut_.atoms[a].range.begin) : cut_.atoms[a].range.end;
    LifetimePart part{{at, std::min(site.range.end, end)}, {}};
    if (gap) {
      --a;  // the same atom again, for what is in it
    } else if (part.range == site.range) {
      part.visible = resolved(a);
      over_limit = cut_.atoms[a].over_limit;
    } else {
      resolve(a, resolutions.emplace_back());
      part.visible = resolutions.back();
      over_limit = cut_.atoms[a].over_limit;
    }
    at = part.range.end;
    lifetimes += part.visible.size();
    // An edge of a layer that never shows there divides nothing.
    if (!parts.empty() && std::ranges::equal(parts.back().visible, part.visible)) {
      parts.back().range.end = part.range.end;
    } else {
      parts.push_back(part);
    }
    over_limit = over_limit || parts.size() > kMaxParts ||
                 !context_.limits.overlaps.take(cut_.atoms.empty() ? 1 : lifetimes);
  }
  if (over_limit || !context_.limits.copied_bytes.take(lifetimes * site.range.size())) {
    add_unknown(site.range);
    return;
  }
  versions_.clear();
  versions.make(site.range, std::span(sites.members).subspan(site.first, site.count),
                make_lifetimes(site.range, parts), versions_);
  add_cell(site.range, true);
}

// A cell with the versions of the one before it, and with bytes that follow its bytes, is part of it.
bool TableMaker::continues_last(AddrRange range) const {
  if (table_->cells.empty() || last_is_own_) return false;
  const SpaceTable::Start& last = table_->cells.back();
  const std::span<const Version> before(table_->versions.data() + last.first,
                                        table_->versions.size() - last.first);
  const auto follows = [&](const Version& a, const Version& b) {
    const uint8_t* expected = a.bytes == nullptr ? nullptr : a.bytes + (range.begin - last.begin);
    return a.from == b.from && a.until == b.until && a.origin == b.origin && a.unsure == b.unsure &&
           expected == b.bytes;
  };
  return std::ranges::equal(before, versions_, follows);
}

void TableMaker::add_cell(AddrRange range, bool own) {
  tidy_versions(versions_, range.size(), context_.limits.compared_bytes);
  if (!own_times_ && versions_.size() == 1) versions_[0].from = kTimeMin;
  if (own || !continues_last(range)) {
    table_->cells.push_back({range.begin, table_->versions.size()});
    table_->versions.insert(table_->versions.end(), versions_.begin(), versions_.end());
  }
  last_is_own_ = own;
}

}  // namespace

std::shared_ptr<const SpaceTable> make_table(std::span<const LayerView> layers, bool own_times,
                                             TableContext& context) {
  return TableMaker(layers, own_times, context).run(nullptr, nullptr);
}

std::shared_ptr<SpaceTable> make_poked_table(std::span<const LayerView> layers, const PokeSites& sites,
                                             SiteVersions& versions, TableContext& context) {
  return TableMaker(layers, true, context).run(&sites, &versions);
}

size_t SpaceTable::find(Addr a) const {
  const auto after = std::ranges::upper_bound(cells, a, {}, &Start::begin);
  return static_cast<size_t>(after - cells.begin()) - 1;
}

Cell SpaceTable::at(size_t index) const {
  const bool last = index + 1 == cells.size();
  const Addr end = last ? UINT64_MAX : cells[index + 1].begin;
  const uint64_t first = cells[index].first;
  const uint64_t past = last ? versions.size() : cells[index + 1].first;
  return {{cells[index].begin, end}, std::span(versions).subspan(first, past - first)};
}

}  // namespace asof
