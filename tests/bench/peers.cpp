// peers [--rounds N] [--asof PROGRAM] [--perf PROGRAM]... [--alone | --threads] BUNDLE...: decodes raw PT bundles with asof,
// libipt's block decoder and perf alternately and prints medians of CPU time; then compares two threads with
// one (--threads: only that; --alone: only asof, on one thread). The machines we measure on are shared:
// ratios within one run are meaningful, figures of different runs are not comparable. perf is left out where
// it is not installed, --perf adds other versions; perf and the text of every instruction need asof's PROGRAM, and
// perf_bundle in the same directory as this program.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"
#include "tests/bench/chunk_count.h"
#include "tests/bench/cores.h"
#include "tests/support/temp_dir.h"

namespace asof::bench {
namespace {

// At text, perf is a hundred times slower than asof: only a part of the trace is used.
constexpr size_t kTextBytes = 1'000'000;

class Count : public ChunkConsumer {
 public:
  explicit Count(bool hash) : count(hash) {}
  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream&) override { return count.count(chunk); }
  void deliver(Chunk& chunk, const Stream&, Prepared* part) override {
    count.add(chunk, static_cast<const Tally&>(*part));
  }
  bool delivers_steps() const override { return false; }
  ChunkCount count;
};

Outcome decode_with_asof(const std::string& path, bool hash, unsigned jobs = 1) {
  Count count(hash);
  const double seconds = cpu_seconds_of([&] {
    const auto capture = open_capture(path, {});
    if (!capture) throw std::runtime_error(capture.error().reason);
    PipelineOptions options;
    options.jobs = jobs;
    options.decode.sum_runs = hash;
    if (const auto ok = run_pipeline(*capture, options, ChunkOrder::kByStream, count); !ok)
      throw std::runtime_error(ok.error().reason);
  });
  Outcome outcome = count.count.outcome;
  outcome.seconds = seconds;
  return outcome;
}

double seconds_of_two(const std::function<void()>& work) {
  return wall_seconds_of([&] {
    std::thread other(work);
    work();
    other.join();
  });
}

// One measurement of two threads, with the cores measured four times around it.
struct ScalingRound {
  std::array<double, 2> one{};  // seconds of one thread on each processor
  double two = 0, apart = 0;    // of two threads, and of two independent decodes
  std::array<CoreRates, 4> rates;

  // How much faster `seconds` is than one thread, if both processors ran at their mean speed.
  double speed_up(double seconds) const { return 2 / (seconds / one[0] + seconds / one[1]); }
};

ScalingRound scaling_round(const std::string& path) {
  ScalingRound r;
  const auto decode = [&](unsigned jobs) {
    return wall_seconds_of([&] { decode_with_asof(path, false, jobs); });
  };
  const auto on = [&](unsigned processor) {
    const Pinned here(processor);
    return decode(1);
  };
  r.rates[0] = measure_cores();
  r.one[0] = on(0);
  r.rates[1] = measure_cores();
  r.two = decode(2);
  r.rates[2] = measure_cores();
  r.one[1] = on(1);
  r.apart = seconds_of_two([&] { decode_with_asof(path, false, 1); }) / 2;
  r.rates[3] = measure_cores();
  return r;
}

void print_scaling_of(std::string_view name, std::span<const ScalingRound> rounds) {
  if (rounds.empty()) return;
  const auto median_of = [&](auto&& value) {
    std::vector<double> values;
    for (const ScalingRound& r : rounds) values.push_back(value(r));
    return median(values);
  };
  fmt::print("  {:<28}{:>4} rounds: {:.2f} times as fast; two decodes that share nothing {:.2f}\n", name,
             rounds.size(), median_of([](const ScalingRound& r) { return r.speed_up(r.two); }),
             median_of([](const ScalingRound& r) { return r.speed_up(r.apart); }));
}

// How much faster two threads are than one. What the machine delivers changes from one second to the next, so
// this is repeated often, and rounds are classified by what the cores delivered before, in between and after.
void print_scaling(const std::string& path, int rounds) {
  decode_with_asof(path, false, 2);  // starts the threads, while nothing is pinned
  std::vector<ScalingRound> all;
  double whole = 0;
  for (int i = 0; i < 4 * rounds; ++i) {
    all.push_back(scaling_round(path));
    for (const CoreRates& r : all.back().rates) whole = std::max({whole, r.alone[0], r.alone[1]});
  }
  fmt::print("{}: two threads against one, wall time, medians\n", path);
  print_scaling_of("all", all);
  for (const Cores kind : {Cores::kFree, Cores::kShared, Cores::kOne, Cores::kUnsteady}) {
    std::vector<ScalingRound> some;
    std::ranges::copy_if(all, std::back_inserter(some),
                         [&](const ScalingRound& r) { return classify(r.rates, whole) == kind; });
    print_scaling_of(name_of(kind), some);
  }
  std::fflush(stdout);
}

struct Perf {
  std::string program, version;  // "perf version 6.1.187"
};

struct Programs {
  std::string asof, perf_bundle;
  std::vector<Perf> perfs;
  // What cannot be run is left out.
  void add_perf(const std::string& program) {
    std::string version = output_of({program, "version"});
    while (version.ends_with('\n')) version.pop_back();
    if (!version.empty()) perfs.push_back({program, version});
  }
};

std::vector<std::string> perf_script(const Perf& perf, const std::string& data, const char* itrace,
                                     const char* fields = nullptr) {
  std::vector<std::string> words = {perf.program, "script", "--ns",
                                    "-i",         data,     std::string("--itrace=") + itrace};
  if (fields != nullptr) words.insert(words.end(), {"-F", fields});
  return words;
}

// perf takes a sample every million instructions, so what it decodes is known to the nearest million. Errors
// would also be lines.
Row perf_decode_only(const Perf& perf, const std::string& data) {
  return {perf.version + ", --itrace=i1000000i", [perf, data] {
            const ProcessResult r = run_process(perf_script(perf, data, "i1000000i"), true);
            return Outcome{.instructions = r.lines * 1'000'000, .seconds = r.seconds};
          }};
}

Row text_row(std::string name, std::vector<std::string> words, uint64_t instructions) {
  return {std::move(name), [words = std::move(words), instructions] {
            return Outcome{.instructions = instructions, .seconds = run_process(words, false).seconds};
          }};
}

void compare_text(const std::string& bundle, const Programs& programs, const std::filesystem::path& work,
                  int rounds) {
  const std::string folder = (work / "part").string(), data = folder + "/perf.data";
  run_process({programs.perf_bundle, bundle, folder, std::to_string(kTextBytes)}, false);
  const uint64_t n = decode_with_asof(data, false).instructions;
  for (const char* fields : {"ip,insn", "comm,tid,time,ip,sym,dso"}) {
    std::vector<Row> rows = {
        text_row("asof decode", {programs.asof, "decode", "-j1", "--ns", data, "-F", fields}, n),
        text_row("asof decode --format jsonl",
                 {programs.asof, "decode", "-j1", "--format", "jsonl", data, "-F", fields}, n)};
    for (const Perf& perf : programs.perfs)
      rows.push_back(text_row(perf.version + ", script", perf_script(perf, data, "i0ns", fields), n));
    print_table(fmt::format("{}: every instruction of the first {} bytes as text, -F {}, to /dev/null",
                            bundle, kTextBytes, fields),
                rows, rounds);
  }
}

enum class Part { kAll, kAlone, kThreads };

void compare(const std::string& bundle, const Programs& programs, int rounds, Part part) {
  if (part == Part::kThreads) return print_scaling(bundle, rounds);
  const test::TempDir work;
  std::vector<Row> rows = {
      {"asof, blocks", [&] { return decode_with_asof(bundle, false); }},
      {"asof, blocks, hash of all addresses", [&] { return decode_with_asof(bundle, true); }}};
  if (part == Part::kAll) {
    rows.push_back({"libipt, block decoder", [&] { return decode_with_libipt(bundle); }});
    const std::string folder = (work.path() / "whole").string();
    if (!programs.perfs.empty()) run_process({programs.perf_bundle, bundle, folder}, false);
    for (const Perf& perf : programs.perfs) rows.push_back(perf_decode_only(perf, folder + "/perf.data"));
  }
  print_table(fmt::format("{}: decoding, one thread", bundle), rows, rounds);
  if (part == Part::kAlone) return;
  if (!programs.asof.empty()) compare_text(bundle, programs, work.path(), rounds);
  print_scaling(bundle, rounds);
}

}  // namespace
}  // namespace asof::bench

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  using namespace asof::bench;
  // Every decode would otherwise give its heap back to the system, and the next one fault it in again: more
  // than a short trace takes, and by chance, as it depends on what lies at the heap's end.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
  int rounds = 3;
  Part part = Part::kAll;
  Programs programs;
  programs.perf_bundle = (fs::absolute(argv[0]).parent_path() / "perf_bundle").string();
  programs.add_perf("perf");
  fmt::print("machine: {}\npeers: libipt {}, {}\n", machine_name(), libipt_version(),
             programs.perfs.empty() ? "no perf" : programs.perfs[0].version);
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string_view word = argv[i];
      if (word == "--rounds" && i + 1 < argc)
        rounds = std::max(1, std::atoi(argv[++i]));
      else if (word == "--asof" && i + 1 < argc)
        programs.asof = argv[++i];
      else if (word == "--perf" && i + 1 < argc)
        programs.add_perf(argv[++i]);
      else if (word == "--alone")
        part = Part::kAlone;
      else if (word == "--threads")
        part = Part::kThreads;
      else
        compare(argv[i], programs, rounds, part);
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  }
  return 0;
}
