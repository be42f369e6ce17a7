// reencode_bundle BUNDLE DIRECTORY [--ret-compression] [--no-time]: what the first stream of a raw PT bundle of
// user code executed, traced again with another choice of packets, as DIRECTORY/bundle.json. Without options
// every return has a TIP (IA32_RTIT_CTL.DisRETC), and an MTC follows every thousand instructions. The text is
// linked to.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/pt_tracer.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr Addr kKernelEntry = 0xffffffff81000000;  // where system calls go; not traced

TracerConfig tracer_config(bool ret_compression, bool timing) {
  // One TSC tick for each instruction, one MTC for eight ticks of the CTC.
  return {.kernel = false,
          .return_compression = ret_compression,
          .mtc = timing,
          .tma = false,
          .mtc_freq = 3,
          .tsc = timing,
          .tsc_ctc_n = 125,
          .psb_bytes = timing ? 4096U : UINT32_MAX,
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
      if (block_ != nullptr) trace_end(step.block->ip);
      tracer_.at(instructions_, step.block->ip, true, 0);
      if (block_ == nullptr) tracer_.start();
      block_ = step.block;
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
  uint64_t instructions() const { return instructions_; }
  const std::vector<uint8_t>& trace() const { return tracer_.writer().bytes(); }

 private:
  // How the last block was left: by its branch, or by an interrupt before its end.
  void trace_end(Addr next) {
    if (left_ != block_->end()) return through_kernel(next, true);
    switch (block_->kind) {
      case BranchKind::kCond:
        return tracer_.cond(taken_);
      case BranchKind::kCall:
        return tracer_.call(block_->end(), block_->target);
      case BranchKind::kCallInd:
        return tracer_.call_indirect(block_->end(), next);
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
        throw std::runtime_error(fmt::format("a branch at {:#x} that is not traced here", block_->end()));
    }
  }

  void through_kernel(Addr next, bool interrupt) {
    tracer_.at(instructions_, left_, true, 0);
    tracer_.transfer(kKernelEntry, false, interrupt);
    tracer_.at(instructions_, kKernelEntry, false, 0);
    tracer_.transfer(next, true, false);
  }

  PtTracer tracer_;
  const Block* block_ = nullptr;
  Addr left_ = 0;  // behind the last instruction
  bool taken_ = false;
  uint64_t instructions_ = 0;
};

void write(const fs::path& bundle, const fs::path& to, bool ret_compression, bool timing) {
  const auto capture = open_capture(bundle.string(), {});
  if (!capture) throw std::runtime_error(capture.error().reason);
  Retracer retracer(tracer_config(ret_compression, timing));
  PipelineOptions options;
  options.cpus = {capture->streams.front().cpu};
  if (const auto ok = run_pipeline(*capture, options, ChunkOrder::kByStream, retracer); !ok)
    throw std::runtime_error(ok.error().reason);
  retracer.finish();
  fs::create_directories(to);
  json manifest = json::parse(std::ifstream(bundle));
  manifest["streams"] = json::array({{{"file", "trace.pt"}, {"cpu", 0}}});
  manifest["pt"] = {{"ret_compression", ret_compression}};
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
  bool ret_compression = false, timing = true, usage = argc < 3;
  for (int i = 3; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--ret-compression")
      ret_compression = true;
    else if (word == "--no-time")
      timing = false;
    else
      usage = true;
  }
  if (usage) {
    std::fputs("usage: reencode_bundle BUNDLE DIRECTORY [--ret-compression] [--no-time]\n", stderr);
    return 1;
  }
  try {
    asof::test::write(argv[1], argv[2], ret_compression, timing);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  }
  return 0;
}
