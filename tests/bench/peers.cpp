// peers [--rounds N] [--asof PROGRAM] [--alone] BUNDLE...: decodes raw PT bundles with asof, with libipt's
// block decoder and with perf by turns and prints medians of CPU time. The machines we measure on are shared:
// ratios of one run mean something, figures of different runs do not. perf is left out where it is not
// installed; it and the text of every instruction need PROGRAM, and perf_bundle beside this program.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "decoder/capture.h"
#include "decoder/pipeline.h"
#include "tests/bench/chunk_count.h"
#include "tests/support/temp_dir.h"

namespace asof::bench {
namespace {

// perf is a hundred times slower than asof at text: a part of the trace must do.
constexpr size_t kTextBytes = 1'000'000;

class Count : public ChunkConsumer {
 public:
  explicit Count(bool hash) : count(hash) {}
  void deliver(Chunk& chunk, const Stream&, Prepared*) override { count.add(chunk); }
  ChunkCount count;
};

Outcome decode_with_asof(const std::string& path, bool hash, unsigned jobs = 1) {
  Count count(hash);
  const double seconds = cpu_seconds_of([&] {
    const auto capture = open_capture(path, {});
    if (!capture) throw std::runtime_error(capture.error().reason);
    PipelineOptions options;
    options.jobs = jobs;
    if (const auto ok = run_pipeline(*capture, options, ChunkOrder::kByStream, count); !ok)
      throw std::runtime_error(ok.error().reason);
  });
  Outcome outcome = count.count.outcome;
  outcome.seconds = seconds;
  return outcome;
}

// Work that needs nothing but a core.
void spin() {
  uint64_t x = 1;
  for (uint32_t i = 0; i < 300'000'000; ++i) x = x * 6364136223846793005ULL + 1;
  static std::atomic<uint64_t> sink;
  sink = x;
}

double seconds_of_two(const std::function<void()>& work) {
  return wall_seconds_of([&] {
    std::thread other(work);
    work();
    other.join();
  });
}

// How much faster two threads are than one, beside what the machine gives at that time: to two threads that
// only count, and to two decodes that share nothing, which compete for caches and memory, too. Cores of
// shared machines change their speed from one second to the next, so this is done often.
void print_scaling(const std::string& path, int rounds) {
  std::vector<double> one, two, apart, control;
  for (int round = 0; round < 4 * rounds; ++round) {
    one.push_back(wall_seconds_of([&] { decode_with_asof(path, false, 1); }));
    two.push_back(wall_seconds_of([&] { decode_with_asof(path, false, 2); }));
    apart.push_back(seconds_of_two([&] { decode_with_asof(path, false, 1); }) / 2);
    const double spin_one = wall_seconds_of(spin);
    control.push_back(2 * spin_one / seconds_of_two(spin));
  }
  const auto best = [](const std::vector<double>& v) { return *std::ranges::min_element(v); };
  fmt::print("{}: two threads, wall time, {} rounds\n", path, one.size());
  fmt::print("  {:.2f} times as fast as one (medians; best of both {:.2f})\n", median(one) / median(two),
             best(one) / best(two));
  fmt::print("  two decodes that share nothing: {:.2f} ({:.2f}); two spinning threads: {:.2f}\n",
             median(one) / median(apart), best(one) / best(apart), median(control));
  std::fflush(stdout);
}

struct Programs {
  std::string asof, perf_bundle;
  bool perf = false;
};

std::vector<std::string> perf_script(const std::string& data, const char* itrace,
                                     const char* fields = nullptr) {
  std::vector<std::string> words = {"perf", "script", "--ns", "-i", data, std::string("--itrace=") + itrace};
  if (fields != nullptr) words.insert(words.end(), {"-F", fields});
  return words;
}

// perf takes a sample every million instructions: what it decodes is known to the million. Errors would be
// lines, too.
Row perf_decode_only(const std::string& data) {
  return {"perf, --itrace=i1000000i", [data] {
            const ProcessResult r = run_process(perf_script(data, "i1000000i"), true);
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
    if (programs.perf) rows.push_back(text_row("perf script", perf_script(data, "i0ns", fields), n));
    print_table(fmt::format("{}: every instruction of the first {} bytes as text, -F {}, to /dev/null",
                            bundle, kTextBytes, fields),
                rows, rounds);
  }
}

void compare(const std::string& bundle, const Programs& programs, int rounds, bool alone) {
  const test::TempDir work;
  std::vector<Row> rows = {
      {"asof, blocks", [&] { return decode_with_asof(bundle, false); }},
      {"asof, blocks, hash of all addresses", [&] { return decode_with_asof(bundle, true); }}};
  if (!alone) {
    rows.push_back({"libipt, block decoder", [&] { return decode_with_libipt(bundle); }});
    if (programs.perf) {
      const std::string folder = (work.path() / "whole").string();
      run_process({programs.perf_bundle, bundle, folder}, false);
      rows.push_back(perf_decode_only(folder + "/perf.data"));
    }
  }
  print_table(fmt::format("{}: decoding, one thread", bundle), rows, rounds);
  if (alone) return;
  if (!programs.asof.empty()) compare_text(bundle, programs, work.path(), rounds);
  print_scaling(bundle, rounds);
}

}  // namespace
}  // namespace asof::bench

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  using namespace asof::bench;
  int rounds = 3;
  bool alone = false;
  Programs programs;
  programs.perf_bundle = (fs::absolute(argv[0]).parent_path() / "perf_bundle").string();
  const std::string perf = output_of({"perf", "version"});
  programs.perf = !perf.empty();
  fmt::print("machine: {}\npeers: libipt {}, {}\n", machine_name(), libipt_version(),
             programs.perf ? perf : "no perf");
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string_view word = argv[i];
      if (word == "--rounds" && i + 1 < argc)
        rounds = std::max(1, std::atoi(argv[++i]));
      else if (word == "--asof" && i + 1 < argc)
        programs.asof = argv[++i];
      else if (word == "--alone")
        alone = true;
      else
        compare(argv[i], programs, rounds, alone);
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  }
  return 0;
}
