// --pid, --tid and --comm of verbs that decode.
#pragma once
#include <string>

#include "tools/cli/options.h"
#include "tools/output/task_choice.h"

namespace asof {

struct TaskText {
  std::string pids, tids, comms;
};
void add_task_options(CLI::App& verb, TaskText& tasks);
// Also leaves out streams of other threads.
Result<TaskChoice> read_tasks(const TaskText& text, PipelineOptions& pipeline);

// Each option warns of values that nothing in the capture has.
void warn_of_tasks(const Capture& capture, const TaskChoice& tasks, Diagnostics& diagnostics);
// Each of `tasks` is there, and nothing of them ran.
void warn_of_idle_tasks(const TaskChoice& tasks, Diagnostics& diagnostics);

}  // namespace asof
