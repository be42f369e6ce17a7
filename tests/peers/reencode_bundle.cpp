// reencode_bundle BUNDLE DIRECTORY [--ret-compression] [--no-time] [--psb-bytes N] [--times N]: what the first
// stream of a raw PT bundle of user code executed, traced again with another choice of packets, as
// DIRECTORY/bundle.json. Without options every return has a TIP (IA32_RTIT_CTL.DisRETC), an MTC follows every
// thousand instructions, and a PSB every 4096 bytes (perf's own choice is 16384, psb_period=3). Without time
// there is one PSB, unless its distance is given. --times: as if the program had been run so often, each run
// entered from the kernel, to which the last instruction leads. The text is linked to.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/pt_tracer.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr Addr kKernelEntry = 0xffffffff81000000;  // where system calls go; not traced

struct Choice {
  bool ret_compression = false;
  bool timing = true;
  uint32_t psb_bytes = 0;  // 0: as timing asks for
  uint32_t times = 1;
};

TracerConfig tracer_config(const Choice& choice) {
  const bool timing = choice.timing;
  const uint32_t psb_bytes = timing ? 4096U : UINT32_MAX;
  // One TSC tick for each instruction, one MTC for eight ticks of the CTC.
  return {.kernel = false,
          .return_compression = choice.ret_compression,
          .mtc = timing,
          .tma = false,
          .mtc_freq = 3,
          .tsc = timing,
          .tsc_ctc_n = 125,
          .psb_bytes = choice.psb_bytes != 0 ? choice.psb_bytes : psb_bytes,
          .keep_packets = false};
}

// Traces the steps of chunks that are delivered in order. A step's branch is traced when the next step says
// where it led.
class Retracer final : public ChunkConsumer {
 public:
  explicit Retracer(const TracerConfig& config) : tracer_(config) {}
  void deliver(Chunk& chunk, const Stream&, Prepared*) override {
    if (!chunk.gaps.empty())
      throw std::runtime_error("the trace has gaps: what ran there cannot be traced again");
    for (const Step& step : chunk.steps) {
      if (started_) trace_end(step.block->ip);
      tracer_.at(instructions_, step.block->ip, true, 0);
      if (!started_) tracer_.start();
      started_ = true;
      kind_ = step.block->kind;
      end_ = step.block->end();
      target_ = step.block->target;
      taken_ = (step.flags & Step::kTaken) != 0;
      instructions_ += step.count;
      left_ = step.block->ip;
      for (uint32_t i = 0; i < step.count; ++i) left_ += step.block->lengths[i];
    }
  }
  void finish() {
    tracer_.at(instructions_, left_, true, 0);
    tracer_.stop();
  }
  bool left_to_kernel() const { return left_ != end_ || kind_ == BranchKind::kFarCall; }
  uint64_t instructions() const { return instructions_; }
  const std::vector<uint8_t>& trace() const { return tracer_.writer().bytes(); }

 private:
  // How the last block was left: by its branch, or by an interrupt before its end.
  void trace_end(Addr next) {
    if (left_ != end_) return through_kernel(next, true);
    switch (kind_) {
      case BranchKind::kCond:
        return tracer_.cond(taken_);
      case BranchKind::kCall:
        return tracer_.call(end_, target_);
      case BranchKind::kCallInd:
        return tracer_.call_indirect(end_, next);
      case BranchKind::kRet:
        return tracer_.ret(next);
      case BranchKind::kJumpInd:
        return tracer_.jump_indirect(next);
      case BranchKind::kFarCall:
        return through_kernel(next, false);
      case BranchKind::kNone:
      case BranchKind::kJump:
        return;
      default:
        throw std::runtime_error(fmt::format("a branch at {:#x} that is not traced here", end_));
    }
  }

  void through_kernel(Addr next, bool interrupt) {
    tracer_.at(instructions_, left_, true, 0);
    tracer_.transfer(kKernelEntry, false, interrupt);
    tracer_.at(instructions_, kKernelEntry, false, 0);
    tracer_.transfer(next, true, false);
  }

  PtTracer tracer_;
  // Of the last block, whose memory may be gone.
  bool started_ = false;
  BranchKind kind_ = BranchKind::kNone;
  Addr end_ = 0, target_ = 0;
  Addr left_ = 0;  // behind the last instruction
  bool taken_ = false;
  uint64_t instructions_ = 0;
};

void write(const fs::path& bundle, const fs::path& to, const Choice& choice) {
  const auto capture = open_capture(bundle.string(), {});
  if (!capture) throw std::runtime_error(capture.error().reason);
  Retracer retracer(tracer_config(choice));
  PipelineOptions options;
  options.cpus = {capture->streams.front().cpu};
  for (uint32_t n = 0; n < choice.times; ++n) {
    if (const auto ok = run_pipeline(*capture, options, ChunkOrder::kByStream, retracer); !ok)
      throw std::runtime_error(ok.error().reason);
    if (n + 1 < choice.times && !retracer.left_to_kernel())
      throw std::runtime_error("the trace does not end where the kernel may have gone on");
  }
  retracer.finish();
  fs::create_directories(to);
  json manifest = json::parse(std::ifstream(bundle));
  manifest["streams"] = json::array({{{"file", "trace.pt"}, {"cpu", 0}}});
  manifest["pt"] = {{"ret_compression", choice.ret_compression}};
  for (json& piece : manifest["text"]) {
    const fs::path name = piece["file"].get<std::string>();
    if (!fs::exists(to / name)) fs::create_symlink(fs::absolute(bundle.parent_path() / name), to / name);
  }
  write_bytes(to / "trace.pt", retracer.trace());
  std::ofstream(to / "bundle.json") << manifest.dump(1) << '\n';
  fmt::print("{}: {} instructions, {} bytes of trace\n", (to / "bundle.json").string(),
             retracer.instructions(), retracer.trace().size());
}

}  // namespace
}  // namespace asof::test

int main(int argc, char** argv) {
  using namespace asof::test;
  Choice choice;
  std::string bundle, directory;
  CLI::App app("traces again what a raw PT bundle of user code executed");
  app.add_option("BUNDLE", bundle)->required();
  app.add_option("DIRECTORY", directory)->required();
  app.add_flag("--ret-compression", choice.ret_compression);
  app.add_flag("!--no-time", choice.timing);
  app.add_option("--psb-bytes", choice.psb_bytes, "between two PSBs")->check(CLI::Range(1U, UINT32_MAX));
  app.add_option("--times", choice.times, "that it runs")->check(CLI::Range(1U, UINT32_MAX));
  CLI11_PARSE(app, argc, argv);
  try {
    write(bundle, directory, choice);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  }
  return 0;
}
