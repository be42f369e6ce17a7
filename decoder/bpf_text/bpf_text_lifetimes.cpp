// KSYMBOL records to lives of ranges.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/bpf_text/bpf_text.h"

namespace asof {
namespace {

Time just_before(Time t) { return t == kTimeMin ? kTimeMin : t - 1; }

class LifeMaker {
 public:
  LifeMaker(const std::string& where, NoticeBook& notices) : where_(where), notices_(notices) {}

  void take(const KsymbolFact& fact) { fact.unregister ? unregister(fact) : begin(fact); }
  std::vector<CodeLife> finish() && { return std::move(lives_); }

 private:
  static CodeLife make(const KsymbolFact& fact) {
    CodeLife life{.range = fact.range, .from = fact.time, .type = fact.type, .name = fact.name};
    life.exact = fact.type == KsymbolFact::kOutOfLine || fact.name.starts_with("bpf_prog_");
    return life;
  }
  void begin(const KsymbolFact& fact);
  void unregister(const KsymbolFact& fact);
  bool settle(CodeLife& old, CodeLife& fresh, const KsymbolFact& fact);
  void end(CodeLife& life, Time t);
  template <class F>
  void for_each_open(const AddrRange& range, F&& over);
  void unannounced(const KsymbolFact& fact);

  const std::string& where_;
  NoticeBook& notices_;
  std::vector<CodeLife> lives_;
  std::map<Addr, size_t> open_;  // by begin
  struct Ended {
    Time until = kTimeMin;
    Addr end = 0;
  };
  std::map<Addr, Ended> ended_;  // closed lives by begin: the latest end, and how far any of them reached
  uint64_t longest_ = 0;
};

// An open life and a new one overlap. True: the old one must be over.
bool LifeMaker::settle(CodeLife& old, CodeLife& fresh, const KsymbolFact& fact) {
  if (!old.exact && fresh.range.begin > old.range.begin) {  // the page was not all its
    old.range.end = fresh.range.begin;
    return false;
  }
  if (!fresh.exact && old.range.begin > fresh.range.begin) {
    fresh.range.end = old.range.begin;
    return false;
  }
  end(old, just_before(fact.time));
  if (fact.time != kTimeMin && !(old.from == kTimeMin && old.name == fresh.name)) {
    notices_.error("E-SIDE-401", where_,
                   fmt::format("{} at {:#x} takes the place of {}, whose unregister record is missing",
                               fresh.name, fresh.range.begin, old.name),
                   {}, fact.file_offset, fact.time);
  }
  return true;
}

void LifeMaker::end(CodeLife& life, Time t) {
  life.until = t;
  Ended& e = ended_[life.range.begin];
  e = {std::max(e.until, t), std::max(e.end, life.range.end)};
}

// Open lives that share bytes with `range`; those that `over` says yes to are closed.
template <class F>
void LifeMaker::for_each_open(const AddrRange& range, F&& over) {
  longest_ = std::max(longest_, range.size());
  const Addr lowest = range.begin >= longest_ ? range.begin - longest_ : 0;
  for (auto it = open_.lower_bound(lowest); it != open_.end() && it->first < range.end;) {
    CodeLife& old = lives_[it->second];
    it = old.range.overlaps(range) && over(old) ? open_.erase(it) : std::next(it);
  }
}

void LifeMaker::begin(const KsymbolFact& fact) {
  CodeLife life = make(fact);
  for_each_open(life.range, [&](CodeLife& old) { return settle(old, life, fact); });
  open_[life.range.begin] = lives_.size();
  lives_.push_back(std::move(life));
}

void LifeMaker::unregister(const KsymbolFact& fact) {
  auto it = open_.find(fact.range.begin);
  if (it == open_.end() || !same_code_name(lives_[it->second].name, fact.name)) return unannounced(fact);
  CodeLife& life = lives_[it->second];
  end(life, fact.time);
  life.soft = true;
  open_.erase(it);
}

// An end without its beginning. What was announced at these addresses was over before it began; nobody knows
// when, if that end is missing, too.
void LifeMaker::unannounced(const KsymbolFact& fact) {
  CodeLife life = make(fact);
  life.from = kTimeMin;
  for_each_open(life.range, [&](CodeLife& old) {
    if (!settle(old, life, fact)) return false;
    old.doubt = old.from == kTimeMax ? kTimeMax : old.from + 1;
    return true;
  });
  const Addr lowest = life.range.begin >= longest_ ? life.range.begin - longest_ : 0;
  for (auto e = ended_.lower_bound(lowest); e != ended_.end() && e->first < life.range.end; ++e) {
    if (e->second.end > life.range.begin) life.from = std::max(life.from, saturating_add(e->second.until, 1));
  }
  notices_.info(
      "I-SIDE-402", where_,
      fmt::format("{} at {:#x} ends without having begun in this recording", fact.name, fact.range.begin));
  life.soft = true;
  end(life, fact.time);
  lives_.push_back(std::move(life));
}

}  // namespace

std::vector<CodeLife> code_lives(std::span<const KsymbolFact> symbols, const std::string& where,
                                 NoticeBook& notices) {
  LifeMaker maker(where, notices);
  for (const KsymbolFact& fact : symbols) maker.take(fact);
  return std::move(maker).finish();
}

}  // namespace asof
