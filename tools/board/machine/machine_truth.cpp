// machine_truth LOG PERF_DATA TRUTH
//
// LOG: the folder that a validation machine's plugin wrote (log_format.h). PERF_DATA: a recording that was made in it.
// TRUTH: the folder for the truth of what this recording holds.
// Exit status 3: none of its trace was found in LOG. 4: it has no trace, as a file of --switch-output may, and no TRUTH
// is written.
#include "tools/board/machine/machine_truth.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <set>
#include <stdexcept>

#include "decoder/perf/record_types.h"
#include "tools/board/machine/known_bytes.h"

namespace asof::machine {

namespace {

constexpr int kNotFound = 3, kNoTrace = 4;  // exit statuses

std::string counts_text(const std::string& name, const CpuTruth& t) {
  return fmt::format(
      "\n    \"{}\": {{\"instructions\": {}, \"user_instructions\": {}, \"runs\": {}, \"ip_hash\": "
      "\"{:#018x}\",\n"
      "          \"outside\": {}, \"lost\": {}, \"late\": {}, \"windows\": {}}}",
      name, t.instructions, t.user_instructions, t.runs, t.hash, t.outside, t.lost, t.late, t.windows.size());
}

// `counts`: of each CPU, of each thread, or of each CPU's part of a thread.
void write_summary(const std::filesystem::path& file, const char* what,
                   const std::map<std::string, CpuTruth>& counts, size_t pokes) {
  std::string text;
  for (const auto& [id, t] : counts) text += (text.empty() ? "" : ",") + counts_text(id, t);
  std::FILE* out = std::fopen(file.c_str(), "we");
  if (out == nullptr) throw std::runtime_error(fmt::format("cannot write {}", file.string()));
  fmt::print(out, "{{\n  \"note\": \"machine_truth\",\n  \"pokes\": {},\n  \"{}\": {{{}\n  }}\n}}\n", pokes,
             what, text);
  std::fclose(out);
}

class Maker {
 public:
  Maker(std::filesystem::path log, const PerfData& data, std::filesystem::path to)
      : log_(std::move(log)),
        data_(data),
        to_(std::move(to)),
        cpus_(logged_cpus(log_)),
        code_(read_file(log_ / "code")),
        clock_(clock_of(data)),
        bytes_(data) {
    if (cpus_.empty()) throw std::runtime_error(fmt::format("{} has no log", log_.string()));
  }
  int make() {
    if (trace_pieces(data_).empty()) {
      fmt::print("the recording has no trace\n");
      return kNoTrace;
    }
    std::filesystem::create_directories(to_);
    const auto pokes = find_pokes(log_, cpus_, code_, clock_);
    write_pokes(to_ / "pokes.jsonl", pokes);
    const auto threads = thread_traces(data_);
    const auto& info = data_.auxtrace_info();
    pt_ = info && info->type == perf::kAuxtraceIntelPt;
    const bool placed = threads.empty() ? make_cpus(pokes.size())
                        : pt_           ? make_threads(threads, pokes.size())
                                        : make_parts(threads, pokes.size());
    fmt::print("{} changes of kernel text\n", pokes.size());
    return placed ? 0 : kNotFound;
  }

 private:
  WindowReport windows_of(std::span<const TracePiece> pieces) {
    if (marks_.empty()) marks_ = read_marks(log_, cpus_);
    for (const int cpu : cpus_) {
      const auto file = log_ / fmt::format("cpu{}.trace", cpu);
      if (kept_.contains(cpu) || !std::filesystem::exists(file)) continue;
      written_[cpu] = kept_[cpu] = read_file(file);
    }
    return find_windows(pieces, marks_, pt_, written_);
  }
  CpuTruth write_windows(int cpu, const std::vector<Window>& windows, const std::string& stem) {
    CpuTruth t = write_cpu_truth(log_, cpu, code_, windows, clock_, to_ / (stem + ".blocks.zst"), known_);
    fmt::print(
        "{}: {} instructions in {} runs, {} windows of trace, {} of them up to an end of tracing; {} more "
        "are not in this recording, {} lost\n",
        stem, t.instructions, t.runs, t.windows.size(), t.ends, t.outside, t.lost);
    return t;
  }
  // Whether anything of the recording's trace was found in the log.
  bool make_cpus(size_t pokes) {
    WindowReport report = windows_of(trace_pieces(data_));
    std::map<std::string, CpuTruth> truths;
    for (const int cpu : cpus_)
      truths[std::to_string(cpu)] = write_windows(cpu, report.windows[cpu], fmt::format("cpu{}", cpu));
    write_summary(to_ / "summary.json", "cpus", truths, pokes);
    fmt::print("{} of {} pieces of trace are placed\n", report.pieces - report.unplaced, report.pieces);
    return report.unplaced != report.pieces;
  }
  // ETE: the trace of a thread is a stream for each CPU that wrote some of it.
  bool make_parts(const std::vector<ThreadTrace>& threads, size_t pokes) {
    std::map<std::string, CpuTruth> truths;
    bool placed = false;
    for (const ThreadTrace& thread : threads) {
      std::vector<TracePiece> pieces = trace_pieces(data_);
      std::erase_if(pieces, [&](const TracePiece& p) { return p.tid != thread.tid; });
      std::set<int> cpus;
      for (const TracePiece& p : pieces) cpus.insert(p.cpu);
      WindowReport report = windows_of(pieces);
      for (const int cpu : cpus) {
        const std::string id =
            cpus.size() == 1 ? std::to_string(thread.tid) : fmt::format("{}-cpu{}", thread.tid, cpu);
        truths[id] = write_windows(cpu, report.windows[cpu], "tid" + id);
      }
      fmt::print("thread {}: {} of {} pieces of trace are placed\n", thread.tid,
                 report.pieces - report.unplaced, report.pieces);
      placed = placed || report.unplaced != report.pieces;
    }
    write_summary(to_ / "summary.json", "threads", truths, pokes);
    return placed;
  }
  bool make_threads(const std::vector<ThreadTrace>& threads, size_t pokes) {
    std::map<std::string, CpuTruth> truths;
    bool placed = false;
    for (const ThreadTrace& thread : threads) {
      ThreadTruth t = write_thread_truth(log_, cpus_, code_, thread, clock_, to_, known_);
      placed = placed || t.unplaced < thread.pieces.size();
      fmt::print(
          "thread {}: {} instructions in {} runs; on another CPU {} times; {} of {} pieces of trace are "
          "placed\n",
          thread.tid, t.truth.instructions, t.truth.runs, t.moves, thread.pieces.size() - t.unplaced,
          thread.pieces.size());
      truths[std::to_string(thread.tid)] = std::move(t.truth);
    }
    write_summary(to_ / "summary.json", "threads", truths, pokes);
    return placed;
  }

  std::filesystem::path log_;
  const PerfData& data_;
  std::filesystem::path to_;
  std::vector<int> cpus_;
  CodeTable code_;
  TimeConversion clock_;
  KnownBytes bytes_;
  bool pt_ = false;
  std::map<int, std::vector<SyncMark>> marks_;
  std::map<int, std::vector<uint8_t>> kept_;  // all that was written
  std::map<int, std::span<const uint8_t>> written_;
  std::function<bool(Addr, std::span<const uint8_t>)> known_ = [this](Addr a, std::span<const uint8_t> b) {
    return bytes_.has(a, b);
  };
};

int run(const std::filesystem::path& log, const std::string& recording, const std::filesystem::path& to) {
  const auto data = PerfData::open(recording);
  if (!data) throw std::runtime_error(fmt::format("{}: {}", recording, data.error().reason));
  return Maker(log, **data, to).make();
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
