// machine_truth LOG PERF_DATA TRUTH
//
// LOG: the folder that a validation machine's plugin wrote (log_format.h). PERF_DATA: a recording that was made in it.
// TRUTH: the folder for the truth of what this recording holds.
#include "tools/board/machine/machine_truth.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <stdexcept>

#include "decoder/perf/record_types.h"
#include "tools/board/machine/known_bytes.h"

namespace asof::machine {

namespace {

void write_summary(const std::filesystem::path& file, const std::map<int, CpuTruth>& cpus, size_t pokes) {
  std::string text;
  for (const auto& [cpu, t] : cpus) {
    text += fmt::format(
        "{}\n    \"{}\": {{\"instructions\": {}, \"user_instructions\": {}, \"runs\": {}, \"ip_hash\": "
        "\"{:#018x}\",\n"
        "          \"outside\": {}, \"lost\": {}, \"late\": {}, \"windows\": {}}}",
        text.empty() ? "" : ",", cpu, t.instructions, t.user_instructions, t.runs, t.hash, t.outside, t.lost,
        t.late, t.windows.size());
  }
  std::FILE* out = std::fopen(file.c_str(), "we");
  if (out == nullptr) throw std::runtime_error(fmt::format("cannot write {}", file.string()));
  fmt::print(out, "{{\n  \"note\": \"machine_truth\",\n  \"pokes\": {},\n  \"cpus\": {{{}\n  }}\n}}\n", pokes,
             text);
  std::fclose(out);
}

int run(const std::filesystem::path& log, const std::string& recording, const std::filesystem::path& to) {
  const auto data = PerfData::open(recording);
  if (!data) throw std::runtime_error(fmt::format("{}: {}", recording, data.error().reason));
  const std::vector<int> cpus = logged_cpus(log);
  if (cpus.empty()) throw std::runtime_error(fmt::format("{} has no log", log.string()));
  const CodeTable code(read_file(log / "code"));
  const auto pieces = trace_pieces(**data);
  const auto& info = (*data)->auxtrace_info();
  const bool pt = info && info->type == perf::kAuxtraceIntelPt;
  WindowReport report = find_windows(pieces, read_marks(log, cpus), pt);
  if (report.pieces == 0) throw std::runtime_error("the recording has no trace");
  const TimeConversion clock = clock_of(**data);

  const KnownBytes bytes(**data);
  const auto known = [&](Addr a, std::span<const uint8_t> b) { return bytes.has(a, b); };
  std::filesystem::create_directories(to);
  std::map<int, CpuTruth> truths;
  for (const int cpu : cpus)
    truths[cpu] = write_cpu_truth(log, cpu, code, report.windows[cpu], clock, to, known);
  const auto pokes = find_pokes(log, cpus, code, clock);
  write_pokes(to / "pokes.jsonl", pokes);
  write_summary(to / "summary.json", truths, pokes.size());
  for (const auto& [cpu, t] : truths) {
    fmt::print(
        "cpu {}: {} instructions in {} runs, {} windows of trace; {} more are not in this recording, {} "
        "lost\n",
        cpu, t.instructions, t.runs, t.windows.size(), t.outside, t.lost);
  }
  fmt::print("{} changes of kernel text; {} of {} pieces of trace are placed\n", pokes.size(),
             report.pieces - report.unplaced, report.pieces);
  return report.unplaced == report.pieces ? 3 : 0;
}

}  // namespace
}  // namespace asof::machine

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: machine_truth LOG PERF_DATA TRUTH\n", stderr);
    return 1;
  }
  try {
    return asof::machine::run(argv[1], argv[2], argv[3]);
  } catch (const std::exception& e) {
    fmt::print(stderr, "machine_truth: {}\n", e.what());
    return 2;
  }
}
