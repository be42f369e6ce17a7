#include "tools/decode/decode_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "decoder/core/core_file.h"
#include "tools/cli/decode_run.h"
#include "tools/cli/shard_option.h"
#include "tools/cli/verbs.h"
#include "tools/decode/decode_blocks.h"
#include "tools/output/unfinished_file.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

// Where the first segment begins that begins at `from` or later.
uint64_t segment_from(const Arch& arch, const Capture& capture, size_t stream, uint64_t from) {
  if (from == 0 || from == UINT64_MAX) return from;
  const auto first = arch.segments(capture.streams[stream], stream, from)->next();
  return first ? first->begin : UINT64_MAX;
}

uint64_t options_hash(const CoreFile& core, const DecodeOptions& options, bool calls) {
  return core.hash() ^ (uint64_t{options.reference_engine} << 1 |
                        static_cast<uint64_t>(options.text_at) << 2 | uint64_t{calls} << 8);
}

ExitCode cannot(const Error& error, Diagnostics& diagnostics) {
  diagnostics.error(error);
  return kExitInput;
}

}  // namespace

ExitCode decode_shard(InputOptions input, DecodeChoice choice, Shard shard, const ShardOutput& output,
                      Diagnostics& diagnostics) {
  if (!CoreFile::is_plan(input.input)) {
    diagnostics.error({Code::kBadOption, input.input, Error::kNoOffset, "--shard needs a plan",
                       "make one: asof plan CAPTURE -o DIR"});
    return kExitUsage;
  }
  input.capture.shard = shard;
  const auto capture = open_for_verb(input, diagnostics, false, nullptr);
  if (!capture) return kExitInput;
  const auto arch = capture->arch();
  if (!arch) return cannot(arch.error(), diagnostics);
  blocks::PartCoverage coverage{
      shard, options_hash(*capture->core, choice.pipeline.decode, output.calls), {}};
  choice.pipeline.ranges = shard_ranges(capture->core->extents(), shard);
  for (StreamRange r : *choice.pipeline.ranges) {
    r.begin = segment_from(**arch, *capture, r.stream, r.begin);
    r.end = segment_from(**arch, *capture, r.stream, r.end);
    coverage.ranges.push_back(r);
  }
  std::error_code failed;
  fs::create_directories(output.folder, failed);
  const std::string path = (fs::path(output.folder) / (shard_name(shard) + ".blocks")).string();
  UnfinishedFile file(path);
  if (file.error()) return cannot(*file.error(), diagnostics);
  Output out = file.output();
  BlocksConsumer consumer(*capture, out, choice, std::move(coverage), output.calls);
  const Result<void> done = run_with_progress(consumer, *capture, choice, "decode");
  if (!done) return cannot(done.error(), diagnostics);
  tell_stopped(consumer.coverage(), choice);
  const ExitCode status = exit_code_for(consumer.coverage(), choice);
  // A part is whole or is not there. What could not be decoded is in it, as gaps.
  if (consumer.stopped()) return status;
  consumer.finish();
  if (!flush_output(out, diagnostics)) return kExitInput;
  if (const auto kept = file.keep(); !kept) return cannot(kept.error(), diagnostics);
  diagnostics.note(fmt::format("{}: {}", path, consumer.coverage().line()));
  return choice.strict ? status : kExitOk;
}

}  // namespace asof
