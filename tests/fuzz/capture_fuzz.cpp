// A folder of files from a stranger, opened and decoded as the verbs do it: perf.data as a file or a directory with its
// copies of kcore, kallsyms and modules; vmlinux, a symfs and JIT dumps beside it; bundles, LLDB's bundles, OpenCSD
// snapshots, plans. The file that is opened is the first of `kInputs` there is.
#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "decoder/core/core_file.h"
#include "decoder/open/capture_perf.h"
#include "tests/fuzz/as_blocks.h"
#include "tests/fuzz/decode_all.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr std::array kInputs = {"perf.data", "bundle.json", "trace.json", "snapshot.ini", "plan/core.asof"};

asof::CaptureOptions options_for(const std::string& folder) {
  asof::CaptureOptions options;
  options.host_files = false;
  options.jobs = 1;
  const auto there = [&](const char* name) {
    std::string path = folder + "/" + name;
    return std::filesystem::exists(path) ? path : std::string();
  };
  options.symfs = there("symfs");
  options.vmlinux = there("vmlinux");
  options.kallsyms = there("kallsyms");
  options.kcore = there("kcore");
  options.kcore_end = there("kcore_end");
  options.modules_dir = there("modules");
  options.ksym_text = there("ksym_text");
  options.catalogue = !there("catalogue").empty();
  if (std::string dump = there("jit-1.dump"); !dump.empty()) options.jitdumps.push_back(std::move(dump));
  return options;
}

// Decoded in shards, it is the same.
void check_shards(const asof::Capture& plan) {
  asof::PipelineOptions options;
  options.jobs = 1;
  asof::fuzz::FlowSum whole, shards;
  FUZZ_CHECK(asof::run_pipeline(plan, options, asof::ChunkOrder::kByTime, whole).has_value());
  for (const uint32_t k : {2U, 0U, 1U}) {
    options.ranges = asof::shard_ranges(plan.core->extents(), asof::Shard{k, 3});
    FUZZ_CHECK(asof::run_pipeline(plan, options, asof::ChunkOrder::kByTime, shards).has_value());
  }
  FUZZ_CHECK(shards.unordered() == whole.unordered());
}

// The plan of a capture decodes as the capture does, and its own plan is the same.
void check_plan(const asof::Capture& capture, uint64_t flow, const std::string& folder) {
  const auto core_of = [&](const asof::Capture& c, std::vector<uint8_t>& out) {
    return asof::CoreFile::write(c, folder, [&](std::span<const uint8_t> bytes) {
      out.insert(out.end(), bytes.begin(), bytes.end());
    });
  };
  std::vector<uint8_t> core, again;
  if (const auto written = core_of(capture, core); !written) {
    FUZZ_CHECK(!written.error().reason.empty());
    return;
  }
  asof::fuzz::write_file(folder + "/core.asof", core);
  asof::CaptureOptions options;
  options.host_files = false;
  options.jobs = 1;
  const auto plan = asof::open_capture(folder, options);
  FUZZ_CHECK(plan.has_value());
  FUZZ_CHECK(asof::fuzz::decode_opened(plan) == flow);
  check_shards(*plan);
  FUZZ_CHECK(core_of(*plan, again).has_value() && again == core);
}

}  // namespace

FUZZ_TARGET(capture) {
  auto files = asof::fuzz::split_files(bytes);
  if (files.empty()) return;
  asof::fuzz::move_plan(files);
  const std::string folder = asof::fuzz::as_folder(files);
  const asof::CaptureOptions options = options_for(folder);
  for (const char* input : kInputs) {
    const std::string path = folder + "/" + input;
    if (!std::filesystem::exists(path)) continue;
    const bool plan = std::string_view(input) == "plan/core.asof";
    const auto capture = asof::open_capture(plan ? folder + "/plan" : path, options);
    const auto flow = asof::fuzz::decode_opened(capture);
    if (!flow) return;
    switch (bytes.size() % 3) {  // all of them for each would take too long
      case 0:
        if (!plan) check_plan(*capture, *flow, folder + "/made-plan");
        break;
      case 1:
        asof::fuzz::check_block_stream(*capture, folder + "/made.blocks");
        break;
      default:
        asof::fuzz::check_same_flow(*capture, bytes.size() % 8 == 2);
        asof::fuzz::check_folded(*capture);
        asof::fuzz::check_cycles(*capture);
    }
    return;
  }
}
