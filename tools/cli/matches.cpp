#include "tools/cli/matches.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "decoder/model/demangle.h"
#include "decoder/perf/record_types.h"
#include "tools/cli/near_names.h"
#include "tools/cli/verbs.h"
#include "tools/output/format.h"

namespace asof {
namespace {

void warn(std::string reason, std::string hint, Diagnostics& diagnostics) {
  diagnostics.warn({Code::kBadOption, "", Error::kNoOffset, std::move(reason), std::move(hint)});
}

// "0-3,8"
std::string ranges_text(const std::set<int>& numbers) {
  std::string out;
  for (auto it = numbers.begin(); it != numbers.end();) {
    const int first = *it;
    int last = first;
    for (++it; it != numbers.end() && *it == last + 1; ++it) last = *it;
    out += fmt::format("{}{}", out.empty() ? "" : ",", first);
    if (last != first) out += fmt::format("-{}", last);
  }
  return out;
}

bool is_pattern(std::string_view name) { return name.find_first_of("*?[") != std::string_view::npos; }

}  // namespace

void warn_of_ids(const char* option, const std::vector<int>& wanted, const std::set<int>& there,
                 Diagnostics& diagnostics) {
  constexpr size_t kMostShown = 20;
  for (const int id : wanted) {
    if (there.contains(id)) continue;
    std::set<int> some;
    for (const int n : there) {
      if (n >= 0 && some.size() < kMostShown) some.insert(n);
    }
    warn(fmt::format("{} {} matches nothing in the capture", option, id),
         some.empty()
             ? "the capture has none"
             : fmt::format("there is {}{}", ranges_text(some), some.size() < there.size() ? ",..." : ""),
         diagnostics);
  }
}

bool matches_name(std::string_view pattern, std::string_view name) {
  if (pattern == name) return true;
  return is_pattern(pattern) && ::fnmatch(std::string(pattern).c_str(), std::string(name).c_str(), 0) == 0;
}

bool matches_symbol(const std::string& pattern, const Symbol& symbol) {
  if (is_called(symbol, pattern)) return true;
  if (!is_pattern(pattern)) return false;
  const auto matches = [&](const std::string& name) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  };
  if (matches(symbol.name)) return true;
  const auto full = demangle(symbol.name, Parameters::kYes);
  if (!full) return false;
  return matches(*full) || matches(demangle(symbol.name, Parameters::kNo).value_or(*full));
}

void warn_of_cpus(const Capture& capture, const std::vector<int>& cpus, Diagnostics& diagnostics) {
  std::set<int> there;
  for (const Stream& s : capture.streams) {
    if (s.cpu >= 0) there.insert(s.cpu);
  }
  // Streams of threads are not chosen by CPU.
  if (there.empty() && !capture.streams.empty()) return;
  warn_of_ids("--cpu", cpus, there, diagnostics);
}

void warn_of_tasks(const Capture& capture, const std::vector<int>& pids, const std::vector<int>& tids,
                   Diagnostics& diagnostics) {
  if (pids.empty() && tids.empty()) return;
  std::set<int> processes, threads;
  for (const Stream& s : capture.streams) {
    if (s.tid >= 0) threads.insert(s.tid);
    for (const ContextChange& c : s.contexts) {
      if (c.pid >= 0) processes.insert(c.pid);
      if (c.tid >= 0) threads.insert(c.tid);
    }
  }
  warn_of_ids("--pid", pids, processes, diagnostics);
  warn_of_ids("--tid", tids, threads, diagnostics);
}

void warn_of_time(const Capture& capture, TimeBounds time, const std::string& text,
                  Diagnostics& diagnostics) {
  const TimeBounds whole = whole_time(capture);
  if (whole.lo == kTimeMin || whole.hi == kTimeMax) return;
  if (time.lo <= whole.hi && time.hi >= whole.lo) return;
  warn(fmt::format("--time {} is outside the capture", text),
       fmt::format("it goes from {} to {}", format_time(whole.lo), format_time(whole.hi)), diagnostics);
}

void note_recorded_samples(const Capture& capture, Diagnostics& diagnostics) {
  const auto samples = capture.record_counts.find(perf::kSample);
  if (samples == capture.record_counts.end()) return;
  diagnostics.note(format_plural(samples->second, "sample", "samples") +
                   " of the recording itself left out: 'asof script --no-itrace' prints those");
}

std::string near_symbols(const Capture& capture, std::string_view name) {
  std::vector<std::string_view> names;
  for (const Symbol* s : capture.symbols.all()) names.push_back(s->shown());
  return did_you_mean(name, names);
}

namespace {

// A source name without parameters can be that of several functions: all are taken, and named here.
void note_overloads(const std::string& name, const std::vector<const Symbol*>& called,
                    Diagnostics& diagnostics) {
  constexpr size_t kMostShown = 8;
  std::set<std::string> functions;
  for (const Symbol* s : called) {
    if (s->name == name) return;
    functions.insert(demangle(s->name, Parameters::kYes).value_or(s->name));
  }
  if (functions.size() < 2) return;
  std::string list;
  size_t shown = 0;
  for (const std::string& f : functions) {
    if (++shown <= kMostShown) list += (list.empty() ? "" : "; ") + f;
  }
  diagnostics.note(fmt::format("'{}' is {} functions: {}{}", name, functions.size(), list,
                               functions.size() > kMostShown ? "; ..." : ""));
}

}  // namespace

void warn_of_symbols(const Capture& capture, const std::vector<std::string>& patterns,
                     Diagnostics& diagnostics) {
  for (const std::string& p : patterns) {
    const std::vector<const Symbol*> called = capture.symbols.called(p);
    note_overloads(p, called, diagnostics);
    bool there = !called.empty();
    if (!there && is_pattern(p)) {
      const auto all = capture.symbols.all();
      there = std::any_of(all.begin(), all.end(), [&](const Symbol* s) { return matches_symbol(p, *s); });
    }
    if (!there) warn(fmt::format("no function is '{}'", p), near_symbols(capture, p), diagnostics);
  }
}

void warn_of_dsos(const Capture& capture, const std::vector<std::string>& dsos, Diagnostics& diagnostics) {
  if (dsos.empty()) return;
  std::set<std::string_view> there;
  for (const Symbol* s : capture.symbols.all()) there.insert(s->dso);
  for (const CodeFile& f : capture.code.files) there.insert(f.recorded);
  std::vector<std::string_view> names;
  for (const std::string_view dso : there) {
    names.push_back(dso);
    if (const size_t slash = dso.rfind('/'); slash != std::string_view::npos)
      names.push_back(dso.substr(slash + 1));
  }
  for (const std::string& dso : dsos) {
    if (std::find(names.begin(), names.end(), dso) != names.end()) continue;
    warn(fmt::format("no file of code is '{}'", dso), did_you_mean(dso, names), diagnostics);
  }
}

}  // namespace asof
