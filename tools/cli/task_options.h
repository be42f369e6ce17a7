// --pid, --tid and --comm of verbs that decode.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/options.h"
#include "tools/output/task_choice.h"

namespace asof {

struct TaskText {
  std::string pids, tids, comms;
};
// `comms`: what the verb calls the option of names.
void add_task_options(CLI::App& verb, TaskText& tasks, const std::string& comms = "--comms,--comm");
Result<TaskChoice> read_tasks(const TaskText& text);
// Also leaves out streams of other threads.
Result<TaskChoice> read_tasks(const TaskText& text, PipelineOptions& pipeline);

// Each option warns of values that nothing in the capture has.
void warn_of_tasks(const Capture& capture, const TaskChoice& tasks, Diagnostics& diagnostics);
// Warns of patterns that none of the names matches. `whose`: "thread that was traced".
void warn_of_comms(const std::set<std::string>& there, const std::vector<std::string>& patterns,
                   std::string_view whose, Diagnostics& diagnostics);
// All names that the records give to threads, and the idle threads'.
std::set<std::string> names_of_threads(const Capture& capture);
// Each of `tasks` is there, and nothing of them ran.
void warn_of_idle_tasks(const TaskChoice& tasks, Diagnostics& diagnostics);

}  // namespace asof
