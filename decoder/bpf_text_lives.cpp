// KSYMBOL records to lives of ranges.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/bpf_text.h"

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

  const std::string& where_;
  NoticeBook& notices_;
  std::vector<CodeLife> lives_;
  std::map<Addr, size_t> open_;    // by begin
  std::map<Addr, Time> last_end_;  // of closed lives, by begin
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
  old.until = just_before(fact.time);
  last_end_[old.range.begin] = old.until;
  if (fact.time != kTimeMin && !(old.from == kTimeMin && old.name == fresh.name)) {
    notices_.error("E-SIDE-401", where_,
                   fmt::format("{} at {:#x} takes the place of {}, whose unregister record is missing",
                               fresh.name, fresh.range.begin, old.name),
                   {}, fact.file_offset, fact.time);
  }
  return true;
}

void LifeMaker::begin(const KsymbolFact& fact) {
  CodeLife life = make(fact);
  longest_ = std::max(longest_, life.range.size());
  const Addr lowest = life.range.begin >= longest_ ? life.range.begin - longest_ : 0;
  for (auto it = open_.lower_bound(lowest); it != open_.end() && it->first < life.range.end;) {
    CodeLife& old = lives_[it->second];
    const bool over = old.range.overlaps(life.range) && settle(old, life, fact);
    it = over ? open_.erase(it) : std::next(it);
  }
  open_[life.range.begin] = lives_.size();
  lives_.push_back(std::move(life));
}

void LifeMaker::unregister(const KsymbolFact& fact) {
  auto it = open_.find(fact.range.begin);
  if (it == open_.end()) {
    CodeLife life = make(fact);
    life.from = kTimeMin;
    if (auto last = last_end_.find(fact.range.begin); last != last_end_.end())
      life.from = saturating_add(last->second, 1);
    life.until = fact.time;
    life.soft = true;
    notices_.info(
        "I-SIDE-402", where_,
        fmt::format("{} at {:#x} ends without having begun in this recording", fact.name, fact.range.begin));
    last_end_[fact.range.begin] = life.until;
    lives_.push_back(std::move(life));
    return;
  }
  CodeLife& life = lives_[it->second];
  life.until = fact.time;
  life.soft = true;
  last_end_[fact.range.begin] = fact.time;
  open_.erase(it);
}

}  // namespace

std::vector<CodeLife> code_lives(const SideBand& side, const std::string& where, NoticeBook& notices) {
  LifeMaker maker(where, notices);
  for (const KsymbolFact& fact : side.ksymbols) maker.take(fact);
  return std::move(maker).finish();
}

}  // namespace asof
