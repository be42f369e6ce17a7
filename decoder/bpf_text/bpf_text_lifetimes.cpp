// KSYMBOL records to lifetimes of ranges.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/bpf_text/bpf_text.h"

namespace asof {
namespace {

Time just_before(Time t) { return t == kTimeMin ? kTimeMin : t - 1; }

class LifetimeMaker {
 public:
  LifetimeMaker(const std::string& where, NoticeBook& notices) : where_(where), notices_(notices) {}

  void take(const KsymbolFact& fact) { fact.unregister ? unregister(fact) : begin(fact); }
  std::vector<CodeLifetime> finish() && { return std::move(lifetimes_); }

 private:
  static CodeLifetime make(const KsymbolFact& fact) {
    CodeLifetime lifetime{.range = fact.range, .from = fact.time, .type = fact.type, .name = fact.name};
    lifetime.exact = fact.type == KsymbolFact::kOutOfLine || fact.name.starts_with("bpf_prog_");
    return lifetime;
  }
  void begin(const KsymbolFact& fact);
  void unregister(const KsymbolFact& fact);
  bool settle(CodeLifetime& old, CodeLifetime& fresh, const KsymbolFact& fact);
  void end(CodeLifetime& lifetime, Time t);
  template <class F>
  void for_each_open(const AddrRange& range, F&& over);
  void unannounced(const KsymbolFact& fact);

  const std::string& where_;
  NoticeBook& notices_;
  std::vector<CodeLifetime> lifetimes_;
  std::map<Addr, size_t> open_;  // by begin
  struct Ended {
    Time until = kTimeMin;
    Addr end = 0;
  };
  std::map<Addr, Ended> ended_;  // closed lifetimes by begin: the latest end, and how far any of them reached
  uint64_t longest_ = 0;
};

// An open lifetime and a new one overlap. True: the old one must be over.
bool LifetimeMaker::settle(CodeLifetime& old, CodeLifetime& fresh, const KsymbolFact& fact) {
  if (!old.exact && fresh.range.begin > old.range.begin) {  // the old one did not have the whole page
    old.range.end = fresh.range.begin;
    return false;
  }
  if (!fresh.exact && old.range.begin > fresh.range.begin) {
    fresh.range.end = old.range.begin;
    return false;
  }
  end(old, just_before(fact.time));
  if (fact.time != kTimeMin && !(old.from == kTimeMin && old.name == fresh.name)) {
    notices_.error(Code::kSymbolReplaced, where_,
                   fmt::format("{} at {:#x} takes the place of {}, whose unregister record is missing",
                               fresh.name, fresh.range.begin, old.name),
                   {}, fact.file_offset, fact.time);
  }
  return true;
}

void LifetimeMaker::end(CodeLifetime& lifetime, Time t) {
  lifetime.until = t;
  Ended& e = ended_[lifetime.range.begin];
  e = {std::max(e.until, t), std::max(e.end, lifetime.range.end)};
}

// Open lifetimes that share bytes with `range`; those for which `over` returns true are closed.
template <class F>
void LifetimeMaker::for_each_open(const AddrRange& range, F&& over) {
  longest_ = std::max(longest_, range.size());
  const Addr lowest = range.begin >= longest_ ? range.begin - longest_ : 0;
  for (auto it = open_.lower_bound(lowest); it != open_.end() && it->first < range.end;) {
    CodeLifetime& old = lifetimes_[it->second];
    it = old.range.overlaps(range) && over(old) ? open_.erase(it) : std::next(it);
  }
}

void LifetimeMaker::begin(const KsymbolFact& fact) {
  CodeLifetime lifetime = make(fact);
  for_each_open(lifetime.range, [&](CodeLifetime& old) { return settle(old, lifetime, fact); });
  open_[lifetime.range.begin] = lifetimes_.size();
  lifetimes_.push_back(std::move(lifetime));
}

void LifetimeMaker::unregister(const KsymbolFact& fact) {
  auto it = open_.find(fact.range.begin);
  if (it == open_.end() || !same_code_name(lifetimes_[it->second].name, fact.name)) return unannounced(fact);
  CodeLifetime& lifetime = lifetimes_[it->second];
  end(lifetime, fact.time);
  lifetime.soft = true;
  open_.erase(it);
}

// An end without its beginning. What was announced at these addresses was over before it began; if that end
// is missing, too, its time is unknown.
void LifetimeMaker::unannounced(const KsymbolFact& fact) {
  CodeLifetime lifetime = make(fact);
  lifetime.from = kTimeMin;
  for_each_open(lifetime.range, [&](CodeLifetime& old) {
    if (!settle(old, lifetime, fact)) return false;
    old.doubt = old.from == kTimeMax ? kTimeMax : old.from + 1;
    return true;
  });
  const Addr lowest = lifetime.range.begin >= longest_ ? lifetime.range.begin - longest_ : 0;
  for (auto e = ended_.lower_bound(lowest); e != ended_.end() && e->first < lifetime.range.end; ++e) {
    if (e->second.end > lifetime.range.begin)
      lifetime.from = std::max(lifetime.from, saturating_add(e->second.until, 1));
  }
  notices_.info(
      Code::kSymbolEndWithoutBegin, where_,
      fmt::format("{} at {:#x} ends without having begun in this recording", fact.name, fact.range.begin));
  lifetime.soft = true;
  end(lifetime, fact.time);
  lifetimes_.push_back(std::move(lifetime));
}

}  // namespace

std::vector<CodeLifetime> code_lifetimes(std::span<const KsymbolFact> symbols, const std::string& where,
                                         NoticeBook& notices) {
  LifetimeMaker maker(where, notices);
  for (const KsymbolFact& fact : symbols) maker.take(fact);
  return std::move(maker).finish();
}

}  // namespace asof
