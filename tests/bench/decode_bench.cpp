// Decoding of whole captures: asof's flow and libipt's instruction decoder on the same input. Missing
// captures are left out. One thread; counts are instructions.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <string>

#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"

namespace asof {
namespace {

class Count : public ChunkConsumer {
 public:
  void deliver(Chunk& chunk, const Stream&, Prepared*) override {
    for (const Step& s : chunk.steps) instructions += s.count;
  }
  uint64_t instructions = 0;
};

void decode(benchmark::State& state, const std::string& path, bool reference, unsigned jobs) {
  auto capture = open_capture(path, {});
  if (!capture) {
    state.SkipWithError(capture.error().reason.c_str());
    return;
  }
  uint64_t instructions = 0;
  for (auto _ : state) {
    Count count;
    PipelineOptions options;
    options.jobs = jobs;
    options.decode.reference_engine = reference;
    if (!run_pipeline(*capture, options, ChunkOrder::kByStream, count)) state.SkipWithError("no decoder");
    instructions += count.instructions;
  }
  state.SetItemsProcessed(static_cast<int64_t>(instructions));
}

void register_capture(const std::string& name, const std::string& path) {
  if (!std::filesystem::exists(path)) return;
  benchmark::RegisterBenchmark((name + "/asof").c_str(), decode, path, false, 1)
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark((name + "/asof-2").c_str(), decode, path, false, 2)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
  if (name != "pt-cc1") {  // takes over a minute
    benchmark::RegisterBenchmark((name + "/libipt-insn").c_str(), decode, path, true, 1)
        ->Unit(benchmark::kMillisecond);
  }
}

const bool kRegistered = [] {
  register_capture("demo", ASOF_TEST_DATA "/demo/perf.data");
  register_capture("pt-work-1round", ASOF_SHARED_DIR "/captures/pt-work-1round/bundle.json");
  register_capture("pt-cc1", ASOF_SHARED_DIR "/captures/pt-cc1/bundle.json");
  register_capture("x86-board-storm", ASOF_SHARED_DIR "/captures/x86-board-storm/perf.data");
  return true;
}();

}  // namespace
}  // namespace asof
