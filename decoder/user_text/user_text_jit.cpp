// Code of JITs as versions of a process's text. What a load or a move puts at an address replaces what was
// there, and a move leaves no code at the old address; both hold from the record's time on, because JITs
// write their record before the code can run (tools/perf/Documentation/jitdump-specification.txt).
#include <algorithm>

#include "decoder/user_text/user_text.h"

namespace asof {
namespace {

Time just_before(Time t) { return t == kTimeMin ? kTimeMin : t - 1; }

}  // namespace

void UserText::open_jits() {
  for (const TaskFact& fact : side_.tasks) {
    if (fact.kind != TaskFact::Kind::kMap || jitdump_pid(side_.names[fact.name]) < 0) continue;
    use_jit(jits_.open(side_.names[fact.name]), fact.pid);
  }
  for (const std::string& path : jits_.given()) {
    const JitDump* dump = jits_.open(path, true);
    if (dump != nullptr) use_jit(dump, static_cast<int32_t>(dump->pid()));
  }
  std::stable_sort(jit_facts_.begin(), jit_facts_.end(),
                   [](const JitFact& a, const JitFact& b) { return a.time < b.time; });
}

void UserText::use_jit(const JitDump* dump, int32_t pid) {
  if (dump == nullptr || !used_jits_.insert({dump, pid}).second) return;
  const bool dated = jits_.dated(*dump);
  for (const JitCode& code : dump->code()) {
    JitFact fact{.time = dated ? jits_.time(*dump, code) : kTimeMin, .pid = pid, .dump = dump, .code = &code};
    (dated ? jit_facts_ : undated_jits_).push_back(fact);
  }
  builder_.keep(dump->owner());
}

void UserText::jits_until(Time t) {
  for (; next_jit_ < jit_facts_.size() && jit_facts_[next_jit_].time <= t; ++next_jit_)
    add_jit(jit_facts_[next_jit_]);
}

OriginRef UserText::jit_origin(const JitFact& fact) {
  auto [origin, fresh] = jit_origins_.try_emplace({fact.dump, fact.code->name}, kNoOrigin);
  if (fresh) {
    origin->second = builder_.add_origin({.kind = OriginKind::kJit,
                                          .name = std::string(fact.code->name),
                                          .id = fact.code->index,
                                          .build_id = {}});
  }
  return origin->second;
}

// Older code that overlaps is freed memory from now on, including its parts outside of the overlap.
void UserText::end_jit(Process& process, AddrRange range, Time t) {
  auto it = process.live_jit.upper_bound(range.begin);
  if (it != process.live_jit.begin() && process.jit[std::prev(it)->second].range.end > range.begin) --it;
  while (it != process.live_jit.end() && it->first < range.end) {
    JitSymbol& old = process.jit[it->second];
    old.until = just_before(t);
    builder_.add_layer(
        {.space = process.space, .range = old.range, .bytes = {}, .from = t, .rank = next_rank_++});
    it = process.live_jit.erase(it);
  }
}

void UserText::add_jit(const JitFact& fact) {
  Process& process = processes_[process_of(fact.pid)];
  const JitCode& code = *fact.code;
  if (code.kind == JitCode::Kind::kMove)
    end_jit(process, range_of(code.moved_from, code.range.size()), fact.time);
  end_jit(process, code.range, fact.time);
  builder_.add_layer({.space = process.space,
                      .range = code.range,
                      .bytes = code.bytes,
                      .from = fact.time,
                      .rank = next_rank_++,
                      .origin = jit_origin(fact)});
  process.live_jit[code.range.begin] = process.jit.size();
  process.jit.push_back({.range = code.range, .from = fact.time, .name = code.name, .dump = fact.dump});
}

// Without a common clock it is unknown which of several codes an address had at a time: only code that never
// shared its address with another is used. Candidates would not do: a path could take its bytes from several
// of them.
void UserText::add_undated_jits() {
  const int rank = next_rank_++;
  std::map<int32_t, std::vector<const JitFact*>> by_pid;
  for (const JitFact& fact : undated_jits_) by_pid[fact.pid].push_back(&fact);
  for (auto& [pid, facts] : by_pid) {
    std::stable_sort(facts.begin(), facts.end(), [](const JitFact* a, const JitFact* b) {
      return a->code->range.begin < b->code->range.begin;
    });
    Process& process = processes_[process_of(pid)];
    for (size_t i = 0; i < facts.size();) {
      AddrRange place = facts[i]->code->range;
      size_t end = i + 1;
      for (; end < facts.size() && facts[end]->code->range.begin < place.end; ++end)
        place.end = std::max(place.end, facts[end]->code->range.end);
      Layer layer{.space = process.space, .range = place, .bytes = {}, .rank = rank};
      if (end == i + 1) {
        layer.bytes = facts[i]->code->bytes;
        layer.origin = jit_origin(*facts[i]);
        process.jit.push_back({.range = place, .name = facts[i]->code->name, .dump = facts[i]->dump});
      }
      builder_.add_layer(layer);
      i = end;
    }
  }
}

}  // namespace asof
