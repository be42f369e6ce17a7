// One decoder in a benchmark: what it decoded and what that cost. All rows of a table are run alternately, so
// a busy machine slows all of them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace asof::bench {

struct Outcome {
  uint64_t instructions = 0;
  uint64_t hash = 0;    // over all addresses; 0: not computed
  uint64_t errors = 0;  // losses of the flow
  double seconds = 0;   // CPU time of user and system
};

struct Row {
  std::string name;
  std::function<Outcome()> run;
};

// Runs all rows alternately, `rounds` times each, and prints medians, with the first row's speed as the unit.
void print_table(const std::string& title, const std::vector<Row>& rows, int rounds);

// CPU time of what `work` does in this process.
double cpu_seconds_of(const std::function<void()>& work);
double wall_seconds_of(const std::function<void()>& work);
double median(std::vector<double> values);

// libipt's block decoder on the first stream of a raw bundle.
Outcome decode_with_libipt(const std::string& bundle);
std::string libipt_version();

// Runs a program without input and with its messages discarded. Returns its CPU time and, if requested, the
// number of lines it wrote (otherwise they go to /dev/null). Throws std::runtime_error unless its exit status
// is 0.
struct ProcessResult {
  double seconds = 0;
  uint64_t lines = 0;
};
ProcessResult run_process(const std::vector<std::string>& words, bool count_lines);
// The output of a program without the trailing newline; empty when it cannot be run.
std::string output_of(const std::vector<std::string>& words);

// Processor, cores and kernel of this machine, in one line.
std::string machine_name();

}  // namespace asof::bench
