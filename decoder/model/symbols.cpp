// SymbolTable: per space, the address axis cut at every begin and end of a symbol; each piece knows the best
// symbol over time. Both look-ups are binary searches.
#include "decoder/model/symbols.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#include "decoder/model/demangle.h"
#include "textstore/build_state.h"
#include "textstore/check.h"
#include "textstore/plain_text.h"

namespace asof {
namespace {

// How far a symbol without a size extends. To the next symbol, because assembly and kallsyms give no sizes;
// but what follows the last symbol of one file (a gap between sections, guard pages, another module) is not
// this symbol: there only the page it begins in and the next are taken to belong to it.
constexpr uint64_t kMaxReach = uint64_t{1} << 20;
constexpr uint64_t kPage = 4096;
// (piece, symbol) pairs of a space. Where made-up symbols overlap without end, only the best of each piece
// are kept.
constexpr uint64_t kMaxPairs = uint64_t{1} << 22;
constexpr size_t kMaxOverlap = 64;

size_t leading_underscores(const std::string& name) {
  return std::min(name.find_first_not_of('_'), name.size());
}

// A valid symbol: which one, in the order of add().
struct Holder {
  const Symbol* symbol;
  size_t number;
};

// Better first: rank, then the inner of two ranges, then the plainer name, then the first added.
struct Better {
  bool operator()(const Holder& a, const Holder& b) const {
    if (a.symbol->rank != b.symbol->rank) return a.symbol->rank > b.symbol->rank;
    if (a.symbol->range.size() != b.symbol->range.size())
      return a.symbol->range.size() < b.symbol->range.size();
    const size_t ua = leading_underscores(a.symbol->name), ub = leading_underscores(b.symbol->name);
    if (ua != ub) return ua < ub;
    return a.number < b.number;
  }
};

struct Epoch {  // until the next one's `from`
  Time from;
  const Symbol* symbol;  // nullptr: none
};

struct Piece {  // until the next one's `begin`
  Addr begin;
  uint32_t first;  // of its epochs; they end where the next piece's begin
};

struct SpaceSymbols {
  std::vector<Piece> pieces;
  std::vector<Epoch> epochs;

  const Symbol* find(Addr a, Time t) const;
};

const Symbol* SpaceSymbols::find(Addr a, Time t) const {
  const auto after = std::ranges::upper_bound(pieces, a, {}, &Piece::begin);
  if (after == pieces.begin()) return nullptr;
  const auto begin = epochs.begin() + std::prev(after)->first;
  const auto end = after == pieces.end() ? epochs.end() : epochs.begin() + after->first;
  const auto later = std::ranges::upper_bound(begin, end, t, {}, &Epoch::from);
  return later == begin ? nullptr : std::prev(later)->symbol;
}

// The epochs of one piece from the symbols over it.
class EpochMaker {
 public:
  void run(const std::vector<Holder>& holders, std::vector<Epoch>& out) {
    if (holders.size() == 1) {  // nearly always
      const Symbol& s = *holders[0].symbol;
      if (s.until < s.from) return;
      out.push_back({s.from, &s});
      if (s.until != kTimeMax) out.push_back({s.until + 1, nullptr});
      return;
    }
    edges_.clear();
    for (const Holder& h : holders) {
      if (h.symbol->until < h.symbol->from) continue;
      edges_.push_back({h.symbol->from, true, h});
      if (h.symbol->until != kTimeMax) edges_.push_back({h.symbol->until + 1, false, h});
    }
    std::ranges::sort(edges_, {}, &Edge::time);
    live_.clear();
    const size_t first = out.size();
    for (size_t i = 0; i < edges_.size();) {
      const Time t = edges_[i].time;
      for (; i < edges_.size() && edges_[i].time == t; ++i) {
        if (edges_[i].begin) {
          live_.insert(edges_[i].holder);
        } else {
          live_.erase(edges_[i].holder);
        }
      }
      // Of two lifetimes of one rank the later one counts, if the end of the first was lost.
      const Symbol* best = latest_of_best();
      if (out.size() == first || out.back().symbol != best) out.push_back({t, best});
    }
  }

 private:
  struct Edge {
    Time time;
    bool begin;
    Holder holder;
  };

  const Symbol* latest_of_best() const {
    if (live_.empty()) return nullptr;
    const Holder* best = &*live_.begin();
    size_t looked = 0;
    for (const Holder& h : live_) {
      if (h.symbol->rank != best->symbol->rank || ++looked > kMaxOverlap) break;
      if (h.symbol->from > best->symbol->from) best = &h;
    }
    return best->symbol;
  }

  std::vector<Edge> edges_;
  std::set<Holder, Better> live_;
};

bool same_holders(const std::vector<Holder>& a, const std::vector<Holder>& b) {
  return std::ranges::equal(a, b, {}, &Holder::number, &Holder::number);
}

// `symbols`: sorted by where they begin.
SpaceSymbols make_space(const std::vector<Holder>& symbols) {
  struct Edge {
    Addr at;
    bool begin;
    Holder holder;
  };
  std::vector<Edge> edges;
  for (const Holder& h : symbols) {
    if (h.symbol->range.empty()) continue;
    edges.push_back({h.symbol->range.begin, true, h});
  }
  const auto begins = static_cast<std::ptrdiff_t>(edges.size());
  for (std::ptrdiff_t i = 0; i < begins; ++i) {
    const Holder h = edges[static_cast<size_t>(i)].holder;
    edges.push_back({h.symbol->range.end, false, h});
  }
  if (!std::ranges::is_sorted(edges.begin() + begins, edges.end(), {}, &Edge::at))
    std::ranges::sort(edges.begin() + begins, edges.end(), {}, &Edge::at);
  std::ranges::inplace_merge(edges, edges.begin() + begins, {}, &Edge::at);
  SpaceSymbols space;
  std::set<Holder, Better> live;
  std::vector<Holder> now, before;
  EpochMaker epochs;
  Budget pairs_left(kMaxPairs);
  for (size_t i = 0; i < edges.size();) {
    const Addr at = edges[i].at;
    for (; i < edges.size() && edges[i].at == at; ++i) {
      if (edges[i].begin) {
        live.insert(edges[i].holder);
      } else {
        live.erase(edges[i].holder);
      }
    }
    now.clear();
    const size_t wanted = pairs_left.take(live.size()) ? live.size() : kMaxOverlap;
    for (auto it = live.begin(); it != live.end() && now.size() < wanted; ++it) now.push_back(*it);
    if (!space.pieces.empty() && same_holders(now, before)) continue;
    space.pieces.push_back({at, static_cast<uint32_t>(space.epochs.size())});
    epochs.run(now, space.epochs);
    before.swap(now);
  }
  return space;
}

Symbol in_plain_text(Symbol symbol) {
  if (!is_plain_text(symbol.name)) symbol.name = plain_text(symbol.name);
  if (!is_plain_text(symbol.dso)) symbol.dso = plain_text(symbol.dso);
  return symbol;
}

}  // namespace

LazyName& LazyName::operator=(const LazyName& other) noexcept {
  style = other.style;
  delete made_.exchange(nullptr, std::memory_order_acq_rel);
  return *this;
}

const std::string& LazyName::of(const std::string& name) const {
  if (style == NameStyle::kRaw)
    return name;  // NOLINT(bugprone-return-const-ref-from-parameter): the symbol's own
  const std::string* made = made_.load(std::memory_order_acquire);
  if (made != nullptr) return *made;
  auto text = demangle(name, style == NameStyle::kWithParameters ? Parameters::kYes : Parameters::kNo);
  auto fresh = text ? std::make_unique<const std::string>(*std::move(text))
                    : std::make_unique<const std::string>(name);
  if (made_.compare_exchange_strong(made, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
  return *made;
}

bool is_called(const Symbol& symbol, std::string_view wanted) {
  if (symbol.name == wanted) return true;
  if (!looks_mangled(symbol.name) || !may_be_called(symbol.name, wanted)) return false;
  const auto is = [&](Parameters p) {
    const auto text = demangle(symbol.name, p);
    return text && *text == wanted;
  };
  return is(Parameters::kNo) || is(Parameters::kYes);
}

struct SymbolTable::Impl {
  std::deque<Symbol> symbols;
  struct Later {
    size_t at;  // in `symbols`, before this one
    std::function<void(const Add&)> make;
    std::deque<Symbol> made{};
  };
  std::vector<Later> later;
  bool finished = false;
  NameStyle style = NameStyle::kRaw;
  std::once_flag sorted_once;
  std::unordered_map<Space, SpaceSymbols> spaces;
  std::vector<const Symbol*> sorted;
  // By name: made when it is first asked for.
  std::once_flag named;
  std::vector<const Symbol*> by_name;

  struct Added {
    Symbol* symbol;
    size_t number;
  };
  void give_sizes(const std::vector<Added>& by_address);
  void set_style(Symbol& s) const { s.lazy.style = looks_mangled(s.name) ? style : NameStyle::kRaw; }
  void make_later();
  void sort();
  // Any thread may ask first.
  static Impl& sorted_of(Impl& table) {
    if (table.finished) std::call_once(table.sorted_once, [&] { table.sort(); });
    return table;
  }
};

// `by_address`: those of one space, sorted.
void SymbolTable::Impl::give_sizes(const std::vector<Added>& by_address) {
  const Symbol* next = nullptr;  // the first that begins after the current address
  for (size_t end = by_address.size(); end > 0;) {
    const Addr at = by_address[end - 1].symbol->range.begin;
    size_t begin = end - 1;
    while (begin > 0 && by_address[begin - 1].symbol->range.begin == at) --begin;
    for (size_t i = begin; i < end; ++i) {
      Symbol& s = *by_address[i].symbol;
      if (s.range.end > at) continue;
      const bool same_file = next != nullptr && next->dso == s.dso;
      const uint64_t reach = same_file ? kMaxReach : 2 * kPage - at % kPage;
      s.range = range_of(at, next == nullptr ? reach : std::min(reach, next->range.begin - at));
    }
    next = by_address[begin].symbol;
    end = begin;
  }
}

SymbolTable::SymbolTable() : impl_(std::make_unique<Impl>()) {}
SymbolTable::~SymbolTable() = default;
SymbolTable::SymbolTable(SymbolTable&&) noexcept = default;
SymbolTable& SymbolTable::operator=(SymbolTable&&) noexcept = default;

void SymbolTable::add(Symbol symbol) {
  ASOF_CHECK(!impl_->finished);
  impl_->symbols.push_back(in_plain_text(std::move(symbol)));
}

void SymbolTable::add_later(std::function<void(const Add&)> make) {
  ASOF_CHECK(!impl_->finished);
  impl_->later.push_back({.at = impl_->symbols.size(), .make = std::move(make)});
}

void SymbolTable::finish() {
  ASOF_CHECK(!impl_->finished);
  impl_->finished = true;
}

void SymbolTable::show(NameStyle style) {
  impl_->style = style;
  for (Symbol& s : impl_->symbols) impl_->set_style(s);
}

NameStyle SymbolTable::style() const { return impl_->style; }

void SymbolTable::Impl::make_later() {
  for (Later& l : later) {
    l.made.clear();
    l.make([&](Symbol s) { set_style(l.made.emplace_back(in_plain_text(std::move(s)))); });
  }
  for (Later& l : later) l.make = nullptr;  // with what it keeps
}

void SymbolTable::Impl::sort() {
  make_later();
  std::map<Space, std::vector<Added>> added;
  size_t number = 0, at = 0;
  const auto put = [&](Symbol& s) { added[s.space].push_back({&s, number++}); };
  for (Later& l : later) {
    for (; at < l.at; ++at) put(symbols[at]);
    std::ranges::for_each(l.made, put);
  }
  for (; at < symbols.size(); ++at) put(symbols[at]);
  sorted.reserve(number);
  for (auto& [space, list] : added) {
    // Of those that begin together the first added stays first: a copy made by all() and add() is the same.
    std::ranges::stable_sort(list, {}, [](const Added& a) { return a.symbol->range.begin; });
    give_sizes(list);
    std::vector<Holder> holders;
    holders.reserve(list.size());
    for (const Added& a : list) {
      holders.push_back({a.symbol, a.number});
      sorted.push_back(a.symbol);
      a.symbol->number = static_cast<uint32_t>(sorted.size());
    }
    spaces.emplace(space, make_space(holders));
  }
}

std::optional<SymbolAt> SymbolTable::find(Space space, Addr a, Time t) const {
  const Impl& table = Impl::sorted_of(*impl_);
  const auto it = table.spaces.find(space);
  if (it == table.spaces.end()) return std::nullopt;
  const Symbol* s = it->second.find(a, t);
  if (s == nullptr) return std::nullopt;
  return SymbolAt{s, a - s->range.begin};
}

std::vector<const Symbol*> SymbolTable::named(std::string_view name) const {
  const auto name_of = [](const Symbol* s) { return std::string_view(s->name); };
  std::call_once(impl_->named, [&] {
    impl_->by_name = Impl::sorted_of(*impl_).sorted;
    std::ranges::sort(impl_->by_name, {}, name_of);
  });
  const auto same = std::ranges::equal_range(impl_->by_name, name, {}, name_of);
  std::vector<const Symbol*> found(same.begin(), same.end());
  std::ranges::sort(found, [](const Symbol* a, const Symbol* b) {
    if (a->space != b->space) return a->space < b->space;
    return a->range.begin != b->range.begin ? a->range.begin < b->range.begin : a->from < b->from;
  });
  return found;
}

std::vector<const Symbol*> SymbolTable::called(std::string_view name) const {
  std::vector<const Symbol*> found = named(name);
  if (!found.empty()) return found;
  for (const Symbol* s : all()) {
    if (is_called(*s, name)) found.push_back(s);
  }
  return found;
}

std::vector<const Symbol*> SymbolTable::all() const { return Impl::sorted_of(*impl_).sorted; }

}  // namespace asof
