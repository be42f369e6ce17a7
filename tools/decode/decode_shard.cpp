#include "tools/decode/decode_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "decoder/core/core_file.h"
#include "decoder/pipeline/decoders.h"
#include "tools/cli/decode_run.h"
#include "tools/cli/shard_option.h"
#include "tools/cli/verbs.h"
#include "tools/decode/decode_blocks.h"
#include "tools/output/unfinished_file.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

// Where the first segment begins that begins at an offset or later. Where a shard ends, the next one begins.
class SegmentBegins {
 public:
  explicit SegmentBegins(const Decoders& decoders) : decoders_(decoders) {}
  uint64_t from(size_t stream, uint64_t offset) {
    if (offset == 0 || offset == UINT64_MAX) return offset;
    if (stream == stream_ && offset == offset_) return begin_;
    const auto first = decoders_.arch().segments(decoders_.capture().streams[stream], stream, offset)->next();
    stream_ = stream;
    offset_ = offset;
    return begin_ = first ? first->begin : UINT64_MAX;
  }

 private:
  const Decoders& decoders_;
  size_t stream_ = 0;
  uint64_t offset_ = 0, begin_ = 0;  // the latest answer
};

uint64_t options_hash(const CoreFile& core, const DecodeOptions& options, bool calls) {
  return core.hash() ^ (uint64_t{options.reference_engine} << 1 |
                        static_cast<uint64_t>(options.text_at) << 2 | uint64_t{calls} << 8);
}

ExitCode cannot(const Error& error, Diagnostics& diagnostics) {
  diagnostics.error(error);
  return kExitInput;
}

// What the shards of one process share.
struct Job {
  Decoders& decoders;
  DecodeChoice choice;
  const ShardOutput& output;
  Diagnostics& diagnostics;
  SegmentBegins begins{decoders};
  blocks::BlockWriter::Memory memory{};
  bool going_on = true;  // what ended this shard does not end the next

  ExitCode decode(Shard shard);
  ExitCode give_up(const Error& error) {
    going_on = false;
    return cannot(error, diagnostics);
  }
};

ExitCode Job::decode(Shard shard) {
  const Capture& capture = decoders.capture();
  blocks::PartCoverage coverage{shard, options_hash(*capture.core, choice.pipeline.decode, output.calls), {}};
  choice.pipeline.ranges = shard_ranges(capture.core->extents(), shard);
  for (StreamRange r : *choice.pipeline.ranges) {
    r.begin = begins.from(r.stream, r.begin);
    r.end = begins.from(r.stream, r.end);
    coverage.ranges.push_back(r);
  }
  const std::string path = (fs::path(output.folder) / (shard_name(shard) + ".blocks")).string();
  UnfinishedFile file(path);
  if (file.error()) return give_up(*file.error());
  Output out = file.output();
  BlocksConsumer consumer(capture, out, choice, std::move(coverage), output.calls, memory);
  ProgressBar bar(choice.progress, "decode");
  run_pass(decoders, choice.pipeline, {}, ChunkOrder::kByTime, consumer, bar.callback());
  tell_stopped(consumer.coverage(), choice);
  const ExitCode status = exit_code_for(consumer.coverage(), choice);
  // A part is whole or is not there. What could not be decoded is in it, as gaps.
  going_on = !consumer.stopped();
  if (!going_on) return status;
  consumer.finish();
  if (!flush_output(out, diagnostics)) {
    going_on = false;
    return kExitInput;
  }
  if (const auto kept = file.keep(); !kept) return give_up(kept.error());
  diagnostics.note(fmt::format("{}: {}", path, consumer.coverage().line()));
  return choice.strict ? status : kExitOk;
}

}  // namespace

ExitCode decode_shards(InputOptions input, const DecodeChoice& choice, Shards shards,
                       const ShardOutput& output, Diagnostics& diagnostics) {
  if (!CoreFile::is_plan(input.input)) {
    diagnostics.error({Code::kBadOption, input.input, Error::kNoOffset, "--shard needs a plan",
                       "make one: asof plan CAPTURE -o DIR"});
    return kExitUsage;
  }
  input.capture.shards = shards;
  const auto capture = open_for_verb(input, diagnostics, ShownNotices::kNone);
  if (!capture) return kExitInput;
  auto decoders = Decoders::of(*capture, choice.pipeline.decode);
  if (!decoders) return cannot(decoders.error(), diagnostics);
  std::error_code failed;
  fs::create_directories(output.folder, failed);
  Job job{*decoders, choice, output, diagnostics};
  ExitCode worst = kExitOk;
  for (uint32_t k = shards.first; k <= shards.last && job.going_on; ++k) {
    const ExitCode status = job.decode({k, shards.count});
    if (status != kExitOk) worst = status;
  }
  return worst;
}

}  // namespace asof
