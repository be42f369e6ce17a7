// Code of JITs as versions of a process's text. What a load or a move puts at an address replaces what was
// there, and a move leaves no code at the old address; both hold from the record's time on, because JITs
// write their record before the code can run (tools/perf/Documentation/jitdump-specification.txt). No record
// shows that a JIT patches its code afterwards, as JITs do to link calls: code is certain only where the
// process cannot have written it since, as its mappings show (mm/mprotect.c mprotect_fixup() leaves a record
// of what becomes executable).
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
// The first of `code` that ends above `begin`.
std::map<Addr, size_t>::iterator UserText::first_above(const Process& process, std::map<Addr, size_t>& code,
                                                       Addr begin) {
  auto it = code.upper_bound(begin);
  if (it != code.begin() && process.jit[std::prev(it)->second].range.end > begin) --it;
  return it;
}

void UserText::end_jit(Process& process, AddrRange range, Time t) {
  auto it = first_above(process, process.live_jit, range.begin);
  while (it != process.live_jit.end() && it->first < range.end) {
    JitSymbol& old = process.jit[it->second];
    old.until = just_before(t);
    builder_.add_layer(
        {.space = process.space, .range = old.range, .bytes = {}, .from = t, .rank = next_rank_++});
    process.intact_jit.erase(it->first);
    it = process.live_jit.erase(it);
  }
}

void UserText::add_jit(const JitFact& fact) {
  Process& process = processes_[process_of(fact.pid)];
  const JitCode& code = *fact.code;
  if (code.kind == JitCode::Kind::kMove)
    end_jit(process, range_of(code.moved_from, code.range.size()), fact.time);
  end_jit(process, code.range, fact.time);
  bool executable = false, writable = false;
  each_alive(process, code.range, [&](const Mapping& m, AddrRange) {
    executable = executable || m.name != 0;
    writable = writable || (m.name != 0 && m.writable);
  });
  const OriginRef origin = jit_origin(fact);
  builder_.add_layer({.space = process.space,
                      .range = code.range,
                      .bytes = code.bytes,
                      .from = fact.time,
                      .rank = next_rank_++,
                      .origin = origin,
                      .unsure = writable});
  process.live_jit[code.range.begin] = process.jit.size();
  if (writable)
    note_written_jit(*fact.dump);
  else
    process.intact_jit[code.range.begin] = process.jit.size();
  process.jit.push_back({.range = code.range,
                         .from = fact.time,
                         .name = code.name,
                         .dump = fact.dump,
                         .bytes = code.bytes,
                         .origin = origin,
                         .executable = executable});
}

// A mapping over code: its first one, which lets it run, or the pages were writable in between, or are now. What
// was written may run a moment before the record's time, but not before any other record of a mapping (`before`).
// A file's mapping is no such sign: it replaces the code, unless the code is in the pages of that file.
void UserText::remap_jit(Process& process, const TaskFact& fact, Time before) {
  bool same_file = has_no_file(side_.names[fact.name]);
  if (!same_file && !process.intact_jit.empty())
    each_alive(process, fact.range, [&](const Mapping& m, AddrRange) { same_file |= m.file == fact.file; });
  if (!same_file) return;
  auto it = first_above(process, process.intact_jit, fact.range.begin);
  while (it != process.intact_jit.end() && it->first < fact.range.end) {
    JitSymbol& code = process.jit[it->second];
    const bool written = std::exchange(code.executable, true) || fact.writable;
    builder_.add_layer({.space = process.space,
                        .range = code.range,
                        .bytes = code.bytes,
                        .from = std::max(code.from, before),
                        .rank = next_rank_++,
                        .origin = code.origin,
                        .unsure = written});
    if (!written) {
      ++it;
      continue;
    }
    note_written_jit(*code.dump);
    it = process.intact_jit.erase(it);
  }
}

void UserText::note_written_jit(const JitDump& dump) {
  if (!written_jits_.insert(&dump).second) return;
  notices_.info(
      Code::kSelfModifyingProcess, dump.path(),
      "code of this JIT is in memory that was writable since: the JIT may have patched it, and it is "
      "not certain from then on",
      "a JIT that maps each piece of code without write access, and only once, keeps it certain");
}

// Without a common clock it is unknown which of several codes an address had at a time: only code that never
// shared its address with another is used, and it is not certain: it may not have been there yet, or have been
// patched. Candidates would not do: a path could take its bytes from several of them.
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
        layer.unsure = true;
        process.jit.push_back({.range = place, .name = facts[i]->code->name, .dump = facts[i]->dump});
      }
      builder_.add_layer(layer);
      i = end;
    }
  }
}

}  // namespace asof
