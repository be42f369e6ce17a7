// asof events: the side-band records in time order, one line each. Records without a time come first. Memory:
// a time and a number for each record, and a window of records; a large file is walked once for each window.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tools/cli/matches.h"
#include "tools/cli/near_names.h"
#include "tools/cli/options.h"
#include "tools/cli/task_options.h"
#include "tools/cli/verbs.h"
#include "tools/output/format.h"
#include "tools/output/output.h"

namespace asof {
namespace {

constexpr size_t kWindow = 1 << 20;  // records held at once

struct EventsOptions {
  InputOptions input;
  std::string types, cpus, time;
  TaskText tasks;
};

struct EventsFilter {
  std::vector<std::string> types;
  std::vector<int> cpus;
  TaskChoice tasks;
  TimeBounds time;

  bool passes(const Record& r, const TaskTable& names) const {
    const auto in = [](const auto& list, const auto& value) {
      return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
    };
    const Time t = r.time();
    if (!in(cpus, r.id.cpu)) return false;
    if (tasks.any() && !tasks.has(names, r.id.pid, r.id.tid, t)) return false;
    const bool all_time = time == TimeBounds{};
    if (!all_time && (t == kTimeMin || t < time.lo || t > time.hi)) return false;
    return types.empty() || in(types, record_type_name(r.type));
  }
};

// Upper-case without "PERF_RECORD_", so that both spellings are known.
std::string type_name(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  const std::string prefix = "PERF_RECORD_";
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

Result<EventsFilter> read_filter(const EventsOptions& o) {
  EventsFilter f;
  for (const std::string& t : split_list(o.types)) f.types.push_back(type_name(t));
  if (!o.cpus.empty()) {
    auto numbers = parse_number_list(o.cpus, "--cpu");
    if (!numbers) return std::unexpected(numbers.error());
    f.cpus = std::move(*numbers);
  }
  auto tasks = read_tasks(o.tasks);
  if (!tasks) return std::unexpected(tasks.error());
  f.tasks = std::move(*tasks);
  if (!o.time.empty() && o.time.find('%') == std::string::npos) {
    const auto time = parse_time_range(o.time, {});
    if (!time) return std::unexpected(time.error());
    f.time = *time;
  }
  return f;
}

void print_record(const Record& r, Output& out) {
  std::string line = fmt::format("{:>16}", format_time(r.time()));
  if (r.id.cpu >= 0) line += fmt::format(" [{:03}]", r.id.cpu);
  if (r.id.tid >= 0) line += fmt::format(" {}/{}", r.id.pid, r.id.tid);
  out.write(
      fmt::format("{} {:#x} {} {}\n", line, r.file_offset, record_type_name(r.type), describe_record(r)));
}

// Warns of what no record has.
void warn_of_nothing(const Capture& capture, const EventsFilter& f, Diagnostics& diagnostics) {
  std::set<std::string> types;
  for (const auto& [type, count] : capture.record_counts) types.insert(record_type_name(type));
  const std::vector<std::string_view> names(types.begin(), types.end());
  for (const std::string& type : f.types) {
    if (types.contains(type)) continue;
    const std::string near = did_you_mean(type, names);
    diagnostics.warn(
        {Code::kBadOption, "", Error::kNoOffset, fmt::format("no record is a {}", type),
         fmt::format("{}{}there are {}", near, near.empty() ? "" : " ", fmt::join(names, ", "))});
  }
  warn_of_comms(names_of_threads(capture), f.tasks.comms, "thread", diagnostics);
  if (f.cpus.empty() && f.tasks.pids.empty() && f.tasks.tids.empty()) return;
  std::set<int> cpus, pids, tids;
  capture.perf->for_each([&](const Record& r) {
    cpus.insert(r.id.cpu);
    pids.insert(r.id.pid);
    tids.insert(r.id.tid);
    return !interrupted();
  });
  warn_of_ids("--cpu", f.cpus, cpus, diagnostics);
  warn_of_ids("--pid", f.tasks.pids, pids, diagnostics);
  warn_of_ids("--tid", f.tasks.tids, tids, diagnostics);
}

// Walks the records that pass, with their number among all.
void visit(const Capture& capture, const EventsFilter& filter,
           const std::function<void(uint64_t, const Record&)>& take) {
  uint64_t number = 0;
  capture.perf->for_each([&](const Record& r) {
    if (filter.passes(r, capture.tasks)) take(number, r);
    ++number;
    return !interrupted();
  });
}

void print_sorted(const Capture& capture, const EventsFilter& filter, Output& out) {
  std::vector<std::pair<Time, uint64_t>> order;
  visit(capture, filter, [&](uint64_t number, const Record& r) { order.emplace_back(r.time(), number); });
  std::sort(order.begin(), order.end());
  for (size_t begin = 0; begin < order.size() && !out.closed() && !interrupted(); begin += kWindow) {
    const size_t size = std::min(kWindow, order.size() - begin);
    // Where each record of this window stands in it, by its number.
    std::vector<std::pair<uint64_t, size_t>> slots(size);
    for (size_t i = 0; i < size; ++i) slots[i] = {order[begin + i].second, i};
    std::sort(slots.begin(), slots.end());
    std::vector<Record> window(size);
    size_t next = 0;
    visit(capture, filter, [&](uint64_t number, const Record& r) {
      if (next < size && slots[next].first == number) window[slots[next++].second] = r;
    });
    for (size_t i = 0; i < size && !out.closed(); ++i) print_record(window[i], out);
  }
}

ExitCode run_events(const EventsOptions& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  auto filter = read_filter(o);
  if (!filter) {
    diagnostics.error(filter.error());
    return kExitUsage;
  }
  const auto capture = open_for_verb(o.input, diagnostics, shown_or_all(ShownNotices::kRecording, o.input));
  if (!capture) return kExitInput;
  if (!is_recording(*capture, diagnostics)) return kExitUsage;
  if (!capture->perf) {
    diagnostics.note(fmt::format("{}: a {} has no side-band records", capture->path,
                                 capture->blocks ? "block stream" : capture->kind));
    return kExitOk;
  }
  if (!take_time(o.time, *capture, diagnostics, filter->time)) return kExitUsage;
  warn_of_nothing(*capture, *filter, diagnostics);
  auto out = Output::open("-");
  if (!out) return kExitInput;
  print_sorted(*capture, *filter, *out);
  out->flush();
  return interrupted() ? kExitInterrupted : kExitOk;
}

}  // namespace

RunVerb add_events(CLI::App& app) {
  auto o = std::make_shared<EventsOptions>();
  CLI::App* verb = app.add_subcommand("events", "side-band records in time order");
  add_input_options(*verb, o->input);
  const std::string filter = "Filters";
  verb->add_option("--type", o->types, "only these: TEXT_POKE,KSYMBOL,BPF_EVENT,MMAP2,...")
      ->type_name("LIST")
      ->group(filter);
  verb->add_option("-C,--cpu", o->cpus, "only these CPUs")->type_name("LIST")->group(filter);
  add_task_options(*verb, o->tasks);
  add_time_option(*verb, o->time);
  add_strict_option(*verb);
  return [o] { return run_events(*o); };
}

}  // namespace asof
