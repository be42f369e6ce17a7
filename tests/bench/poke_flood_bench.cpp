// A recording with ten million pokes of a hundred thousand sites, from file to decoded flow: what opening it
// costs in time and memory (memory_MiB: of the whole process, which does nothing before), and whether
// decoding away from the sites is slower than in the same recording without pokes. Writing the files takes
// longer than reading them; a separate process does it.
#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"
#include "tests/support/elf_writer.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/pt_writer.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

constexpr Addr kText = 0xffffffff81000000;
constexpr uint64_t kPage = 4096, kSpacing = 160;  // code in the first page, then the sites
constexpr uint64_t kSites = 100'000, kPokes = 10'000'000;
constexpr Time kBetween = 10'000;  // ns
constexpr uint32_t kPtType = 8;
constexpr unsigned kBlocks = 64, kRounds = 400'000;  // of the traced loop
constexpr TimeConvSpec kClock{.shift = 0, .mult = 1, .zero = 0};

std::array<uint8_t, 5> instruction(uint64_t site, bool on) {
  if (!on) return {0x0f, 0x1f, 0x44, 0x00, 0x00};
  return {0xe9, static_cast<uint8_t>(site), static_cast<uint8_t>(site >> 8), static_cast<uint8_t>(site >> 16),
          0};
}

// kBlocks times "four NOPs; JE over one NOP", then JE back to the start.
std::vector<uint8_t> make_text() {
  std::vector<uint8_t> text;
  for (unsigned i = 0; i < kBlocks; ++i) text.insert(text.end(), {0x90, 0x90, 0x90, 0x90, 0x74, 0x01, 0x90});
  const auto back = static_cast<uint32_t>(-static_cast<int32_t>(text.size() + 6));
  text.insert(text.end(), {0x0f, 0x84});
  for (unsigned i = 0; i < 4; ++i) text.push_back(static_cast<uint8_t>(back >> (8 * i)));
  text.resize(kPage + kSites * kSpacing, 0x90);
  for (uint64_t s = 0; s < kSites; ++s) {
    const auto nop = instruction(s, false);
    std::copy(nop.begin(), nop.end(), text.begin() + static_cast<std::ptrdiff_t>(kPage + s * kSpacing));
  }
  return text;
}

std::vector<uint8_t> make_trace() {
  PtWriter pt;
  const uint64_t step = kPokes * kBetween / kRounds;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t tsc = 1'000'000 + round * step;
    if (round % 512 == 0) {
      PsbPlus group;
      group.tsc = tsc;
      group.ip = kText;
      pt.psb_plus(group);
    } else if (round % 8 == 0) {
      pt.tsc(tsc);
    }
    for (unsigned i = 0; i < kBlocks; ++i) pt.tnt((i + round) % 3 == 0);
    pt.tnt(true);
    pt.flush();
  }
  pt.fup(kText);
  pt.tip_pgd();
  std::vector<uint8_t> out(pt.bytes().begin(), pt.bytes().end());
  out.resize((out.size() + 7) / 8 * 8);
  return out;
}

void write_recording(const fs::path& path, uint64_t pokes) {
  namespace bit = pt_config_bit;
  PerfDataWriter w;
  w.add_attr({.type = kPtType,
              .config = bit::kPt | bit::kTsc | bit::kBranch,
              .flags = attr_flag::kSampleIdAll,
              .ids = {101},
              .name = "intel_pt//"});
  w.add_attr(
      {.flags = attr_flag::kSampleIdAll | attr_flag::kMmap | attr_flag::kKsymbol | attr_flag::kTextPoke,
       .ids = {201},
       .name = "dummy:HG"});
  w.arch("x86_64");
  w.nr_cpus(1);
  w.event_desc();
  w.time_conv(kClock);
  w.auxtrace_info({.pmu_type = kPtType, .time = kClock});
  const std::vector<uint8_t> text = make_text(), trace = make_trace();
  w.mmap({.addr = kText,
          .len = text.size(),
          .pgoff = kText,
          .filename = "[kernel.kallsyms]_text",
          .kernel = true});
  w.finished_init();
  const auto at = [](uint64_t time, size_t attr) {
    return Trailer{.time = time, .attr = attr, .has_id = true};
  };
  w.auxtrace({.reference = 1'000'000, .idx = 0, .cpu = 0}, trace);
  w.itrace_start(1, 1, at(900'000, 0));
  for (uint64_t i = 0; i < pokes; ++i) {
    const uint64_t site = (i * 7919) % kSites;
    const bool on = (i / kSites) % 2 == 0;
    w.text_poke(kText + kPage + site * kSpacing, instruction(site, !on), instruction(site, on),
                at(1'000'000 + i * static_cast<uint64_t>(kBetween), 1));
  }
  w.aux(0, trace.size(), 0, at(1'000'000 + kPokes * static_cast<uint64_t>(kBetween), 0));
  w.finished_round();
  DirectoryParts parts;
  parts.kcore = make_core({{kText, text}});
  parts.kallsyms = "ffffffff81000000 T _text\nffffffff81000000 T _stext\n";
  char end[64];
  std::snprintf(end, sizeof end, "%016lx T _etext\n", static_cast<unsigned long>(kText + text.size()));
  parts.kallsyms += end;
  w.write_directory(path, parts);
}

// The recording, written by a child process on first use and removed when this process ends.
const fs::path& recording(bool with_pokes) {
  struct Written {
    explicit Written(uint64_t pokes)
        : path(fs::temp_directory_path() /
               ("asof-flood-" + std::to_string(::getpid()) + "-" + std::to_string(pokes))) {
      const pid_t child = ::fork();
      if (child == 0) {
        write_recording(path, pokes);
        ::_exit(0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
    }
    ~Written() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
    fs::path path;
  };
  static const Written with(kPokes), without(0);
  return with_pokes ? with.path : without.path;
}

void Open(benchmark::State& state) {
  const std::string path = recording(true).string();
  for (auto _ : state) {
    const auto capture = open_capture(path, {});
    if (!capture || capture->text->pokes().size() != kPokes) state.SkipWithError("not all pokes were read");
    benchmark::DoNotOptimize(capture);
  }
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  state.counters["memory_MiB"] = static_cast<double>(usage.ru_maxrss) / 1024;
}
BENCHMARK(Open)->Unit(benchmark::kSecond)->Iterations(1);

struct Count : ChunkConsumer {
  void deliver(Chunk& chunk, const Stream&, Prepared*) override {
    for (const Step& s : chunk.steps) instructions += s.count;
    gaps += chunk.gaps.size();
  }
  uint64_t instructions = 0, gaps = 0;
};

void Decode(benchmark::State& state, bool with_pokes) {
  const auto capture = open_capture(recording(with_pokes).string(), {});
  if (!capture) {
    state.SkipWithError(capture.error().reason.c_str());
    return;
  }
  uint64_t instructions = 0;
  for (auto _ : state) {
    Count count;
    PipelineOptions options;
    options.jobs = 1;
    if (!run_pipeline(*capture, options, ChunkOrder::kByStream, count)) state.SkipWithError("no decoder");
    if (count.gaps != 0 || count.instructions < kRounds) state.SkipWithError("not decoded as a whole");
    instructions += count.instructions;
  }
  state.SetItemsProcessed(static_cast<int64_t>(instructions));
}
BENCHMARK_CAPTURE(Decode, with_pokes, true)->Unit(benchmark::kMillisecond)->MinTime(2);
BENCHMARK_CAPTURE(Decode, without_pokes, false)->Unit(benchmark::kMillisecond)->MinTime(2);

}  // namespace
}  // namespace asof::test
