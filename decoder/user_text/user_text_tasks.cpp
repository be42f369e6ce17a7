// Tasks: contexts of streams, and the symbols of the spaces they use.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/user_text/perf_map.h"
#include "decoder/user_text/user_text.h"

namespace asof {
namespace {

// A recording of a whole machine maps the same libraries into every process; names beyond this many are left
// out.
constexpr size_t kMostSymbols = 8U << 20U;
constexpr size_t kMostPlaces = 1U << 20U;  // of files in memory, for source lines

}  // namespace

// Fills in spaces; an exec while a task runs is a change of context too.
void UserText::with_spaces(std::vector<ContextChange>& contexts) const {
  std::vector<ContextChange> out;
  out.reserve(contexts.size());
  for (size_t i = 0; i < contexts.size(); ++i) {
    ContextChange change = contexts[i];
    const auto spaces = change.pid <= 0 ? spaces_of_.end() : spaces_of_.find(change.pid);
    if (spaces == spaces_of_.end()) {
      change.space = kNoSpace;
      out.push_back(change);
      continue;
    }
    const Time end = i + 1 < contexts.size() ? contexts[i + 1].time : kTimeMax;
    const auto& list = spaces->second;
    auto next = std::upper_bound(list.begin(), list.end(), change.time,
                                 [](Time at, const Change& c) { return at < c.time; });
    change.space = next == list.begin() ? kNoSpace : std::prev(next)->space;
    out.push_back(change);
    for (; next != list.end() && next->time < end; ++next) {
      change.time = next->time;
      change.space = next->space;
      change.preempts = false;
      out.push_back(change);
    }
  }
  contexts = std::move(out);
}

// Which task runs where switches may be among lost records is not known, up to the next one.
void UserText::forget_lost_switches(int32_t cpu, std::vector<ContextChange>& contexts) const {
  for (const LostRecords& lost : side_.lost) {
    const auto ring = static_cast<int32_t>(lost.source);
    if (ring != cpu && ring != -1) continue;
    const bool from_start = lost.after == kTimeMin;
    ContextChange unknown;
    if (!from_start) unknown.time = saturating_add(lost.after, 1);
    // The task that the first switch takes away ran since the loss.
    if (from_start && contexts.front().time == kTimeMin) contexts.front().time = lost.until;
    const auto next = std::upper_bound(contexts.begin(), contexts.end(), unknown.time,
                                       [](Time t, const ContextChange& c) { return t < c.time; });
    if (from_start || next != contexts.begin()) contexts.insert(next, unknown);
  }
}

namespace {

// Another task leaves than the one that came: records in between are missing, whether or not a record says so.
bool is_broken(const std::vector<ContextChange>& contexts, const SwitchFact& fact) {
  if (contexts.empty() || fact.trace_start || fact.before_tid < 0) return false;
  const ContextChange& last = contexts.back();
  return last.tid >= 0 && last.tid != fact.before_tid && last.tid != fact.tid && last.time < fact.time;
}

}  // namespace

// Switch records say which task leaves and which one starts. ITRACE_START only counts until the first of
// them: tools that synthesise it put 0 into it.
std::vector<ContextChange> UserText::cpu_contexts(int32_t cpu) const {
  std::vector<ContextChange> out;
  auto pid_of = [&](int32_t pid, int32_t tid) {
    if (pid >= 0) return pid;
    auto known = side_.pid_of_tid.find(tid);
    return known == side_.pid_of_tid.end() ? pid : known->second;
  };
  bool switched = false;
  const auto records = side_.switches.find(cpu);
  if (records == side_.switches.end()) return out;
  out.reserve(records->second.size());
  for (const SwitchFact& fact : records->second) {
    if (fact.trace_start && switched) continue;
    if (!fact.trace_start && !switched && fact.before_tid >= 0) {
      out = {{kTimeMin, pid_of(fact.before_pid, fact.before_tid), fact.before_tid, kNoSpace}};
    } else if (switched && is_broken(out, fact)) {
      ContextChange unknown;
      unknown.time = saturating_add(out.back().time, 1);
      out.push_back(unknown);
    }
    switched = switched || !fact.trace_start;
    ContextChange change{fact.time, pid_of(fact.pid, fact.tid), fact.tid, kNoSpace, fact.preempted};
    if (!out.empty() && out.back().time == change.time) {
      change.preempts = change.preempts || out.back().preempts;
      out.back() = change;
    } else {
      out.push_back(change);
    }
  }
  if (switched && !out.empty()) forget_lost_switches(cpu, out);
  const auto same = [](const ContextChange& a, const ContextChange& b) {
    return a.tid == b.tid && a.pid == b.pid;
  };
  out.erase(std::unique(out.begin(), out.end(), same), out.end());
  with_spaces(out);
  return out;
}

std::vector<ContextChange> UserText::thread_contexts(int32_t tid) const {
  auto pid = side_.pid_of_tid.find(tid);
  std::vector<ContextChange> out = {
      {kTimeMin, pid == side_.pid_of_tid.end() ? tid : pid->second, tid, kNoSpace}};
  with_spaces(out);
  return out;
}

// Own mappings (rank 1), and what was inherited at each fork up the line (rank 0).
void UserText::each_mapping(size_t process,
                            const std::function<void(const Mapping&, int rank)>& visit) const {
  for (const Mapping& mapping : processes_[process].mappings) visit(mapping, 1);
  Time forked = processes_[process].forked;
  for (size_t at = processes_[process].parent; at != SIZE_MAX; at = processes_[at].parent) {
    for (const Mapping& mapping : processes_[at].mappings) {
      if (mapping.from <= forked && mapping.until >= forked) visit(mapping, 0);
    }
    forked = processes_[at].forked;
  }
}

void UserText::add_file_symbols(SymbolTable& symbols, Space space, const Mapping& mapping, int rank) {
  const TextFile* file = file_of(mapping);
  if (file == nullptr || !file->elf) return;
  const std::string& name = side_.names[mapping.name];
  const uint64_t pgoff = name == "[vdso]" ? 0 : mapping.pgoff;
  auto [cached, fresh] = elf_symbols_.try_emplace(file);
  if (fresh) cached->second = file->elf->symbols();
  for (const ElfSegment& segment : file->elf->segments()) {
    if (!segment.executable) continue;
    const AddrRange in_file = range_of(segment.file_offset, segment.bytes.size());
    if (!in_file.overlaps(range_of(pgoff, mapping.range.size()))) continue;
    const Addr slide = mapping.range.begin - pgoff + segment.file_offset - segment.address;
    const AddrRange linked = range_of(segment.address, segment.mem_size);
    for (const ElfSymbol& symbol : cached->second) {
      const Addr at = symbol.value + slide;
      if (!linked.contains(symbol.value) || !mapping.range.contains(at)) continue;
      if (++symbols_added_ > kMostSymbols) return;
      symbols.add({.space = space,
                   .range = range_of(at, symbol.size),
                   .from = mapping.from,
                   .until = mapping.until,
                   .name = symbol.name,
                   .dso = name,
                   .rank = rank});
    }
  }
}

void UserText::add_code(CodeFileMap& code, const std::set<Space>& used) {
  std::map<const TextFile*, uint32_t> files;
  const auto add = [&](Space space, const Mapping& mapping, int rank) {
    if (mapping.name == 0 || mapping.range.empty()) return;
    const TextFile* file = file_of(mapping);
    if (file == nullptr || !file->elf || code.mappings.size() >= kMostPlaces) return;
    const std::string& name = side_.names[mapping.name];
    const uint64_t pgoff = name == "[vdso]" ? 0 : mapping.pgoff;
    const auto [index, fresh] = files.try_emplace(file, static_cast<uint32_t>(code.files.size()));
    if (fresh) code.files.push_back({file->path, name, file->build_id});
    for (const ElfSegment& segment : file->elf->segments()) {
      const AddrRange in_file = range_of(segment.file_offset, segment.bytes.size())
                                    .intersect(range_of(pgoff, mapping.range.size()));
      if (!segment.executable || in_file.empty()) continue;
      // What a child inherited stays when its parent unmaps it.
      code.mappings.push_back(
          {.space = space,
           .range = range_of(mapping.range.begin + (in_file.begin - pgoff), in_file.size()),
           .from = mapping.from,
           .until = rank == 0 ? kTimeMax : mapping.until,
           .file = index->second,
           .slide = mapping.range.begin - pgoff + segment.file_offset - segment.address,
           .rank = rank});
    }
  };
  for (size_t i = 0; i < processes_.size(); ++i) {
    const Space space = processes_[i].space;
    if (used.contains(space)) each_mapping(i, [&](const Mapping& m, int rank) { add(space, m, rank); });
  }
}

void UserText::add_map_file(SymbolTable& symbols, const Process& process, const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file) return;
  const std::string_view text(reinterpret_cast<const char*>((*file)->bytes().data()),
                              (*file)->bytes().size());
  read_perf_map(text, [&](AddrRange range, std::string_view name) {
    if (++symbols_added_ > kMostSymbols) return false;
    symbols.add({.space = process.space, .range = range, .name = std::string(name), .dso = path, .rank = 2});
    return true;
  });
}

void UserText::add_symbols(SymbolTable& symbols, const std::set<Space>& used,
                           std::span<const std::string> map_dirs) {
  for (size_t i = 0; i < processes_.size(); ++i) {
    const Process& process = processes_[i];
    if (!used.contains(process.space)) continue;
    each_mapping(i, [&](const Mapping& mapping, int rank) {
      if (mapping.name != 0 && !mapping.range.empty())
        add_file_symbols(symbols, process.space, mapping, rank);
    });
    for (const JitSymbol& symbol : process.jit) {
      if (symbol.name.empty() || symbol.from > symbol.until || ++symbols_added_ > kMostSymbols) continue;
      symbols.add({.space = process.space,
                   .range = symbol.range,
                   .from = symbol.from,
                   .until = symbol.until,
                   .name = std::string(symbol.name),
                   .dso = symbol.dump->path(),
                   .rank = 3});
    }
    for (const std::string& dir : map_dirs)
      add_map_file(symbols, process, fmt::format("{}/perf-{}.map", dir, process.pid));
  }
  if (symbols_added_ > kMostSymbols) {
    notices_.info(Code::kTooManyNames, "symbols",
                  fmt::format("more than {} names of user code: the rest is left out", kMostSymbols));
  }
}

}  // namespace asof
