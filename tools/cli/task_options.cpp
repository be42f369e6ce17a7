#include "tools/cli/task_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "tools/cli/matches.h"
#include "tools/cli/near_names.h"

namespace asof {

void add_task_options(CLI::App& verb, TaskText& tasks, const std::string& comms) {
  const std::string filter = "Filters";
  verb.add_option("--pid", tasks.pids, "only these processes")->group(filter);
  verb.add_option("--tid", tasks.tids, "only these threads")->group(filter);
  verb.add_option(comms, tasks.comms, "only threads of these names; patterns as in a shell: 'kworker*'")
      ->type_name("LIST")
      ->group(filter);
}

Result<TaskChoice> read_tasks(const TaskText& text) {
  TaskChoice choice;
  for (const auto& [from, list, name] :
       {std::tuple{&text.pids, &choice.pids, "--pid"}, {&text.tids, &choice.tids, "--tid"}}) {
    if (from->empty()) continue;
    auto numbers = parse_number_list(*from, name);
    if (!numbers) return std::unexpected(numbers.error());
    *list = std::move(*numbers);
  }
  choice.comms = split_list(text.comms);
  if (!text.comms.empty() && choice.comms.empty()) {
    return fail(Code::kBadOption, "", Error::kNoOffset, "--comm: empty list");
  }
  return choice;
}

Result<TaskChoice> read_tasks(const TaskText& text, PipelineOptions& pipeline) {
  auto choice = read_tasks(text);
  if (choice && !choice->tids.empty()) pipeline.tids = choice->tids;
  return choice;
}

std::set<std::string> names_of_threads(const Capture& capture) {
  std::set<std::string> out{task_name({}, 0)};
  capture.tasks.for_each([&](int32_t, const TaskTable::Comm& c) { out.insert(c.comm); });
  return out;
}

void warn_of_comms(const std::set<std::string>& there, const std::vector<std::string>& patterns,
                   std::string_view whose, Diagnostics& diagnostics) {
  const std::vector<std::string_view> names(there.begin(), there.end());
  for (const std::string& pattern : patterns) {
    if (std::ranges::any_of(names, [&](std::string_view n) { return matches_name(pattern, n); })) continue;
    constexpr size_t kMostShown = 20;
    std::string hint = did_you_mean(pattern, names);
    if (hint.empty() && !names.empty())
      hint = fmt::format("there is {}{}",
                         fmt::join(std::span(names).first(std::min(names.size(), kMostShown)), ", "),
                         names.size() > kMostShown ? ", ..." : "");
    diagnostics.warn({Code::kBadOption, "", Error::kNoOffset,
                      fmt::format("--comm: no {} is named '{}'", whose, pattern), hint});
  }
}

void warn_of_tasks(const Capture& capture, const TaskChoice& tasks, Diagnostics& diagnostics) {
  warn_of_tasks(capture, tasks.pids, tasks.tids, diagnostics);
  if (tasks.comms.empty()) return;
  std::set<int32_t> unnamed;  // threads that were traced
  for (const Stream& s : capture.streams) {
    if (s.tid >= 0 || s.contexts.empty()) unnamed.insert(s.tid);
    for (const ContextChange& c : s.contexts) unnamed.insert(c.tid);
  }
  const std::set<int32_t> traced = unnamed;
  std::set<std::string> there;
  capture.tasks.for_each([&](int32_t tid, const TaskTable::Comm& c) {
    if (!traced.contains(tid)) return;
    there.insert(c.comm);
    unnamed.erase(tid);
  });
  for (const int32_t tid : unnamed) there.insert(task_name({}, tid));
  warn_of_comms(there, tasks.comms, "thread that was traced", diagnostics);
}

void warn_of_idle_tasks(const TaskChoice& tasks, Diagnostics& diagnostics) {
  std::string options;
  for (const auto& [given, name] : {std::pair{!tasks.pids.empty(), "--pid"},
                                    {!tasks.tids.empty(), "--tid"},
                                    {!tasks.comms.empty(), "--comm"}}) {
    if (given) options += (options.empty() ? "" : " and ") + std::string(name);
  }
  diagnostics.warn({Code::kBadOption, "", Error::kNoOffset,
                    fmt::format("of what {} selects, nothing ran", options), "'asof report' shows what ran"});
}

}  // namespace asof
