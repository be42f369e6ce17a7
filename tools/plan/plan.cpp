// asof plan: what decoding in many processes needs, parsed once. asof merge: what they made, put together.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "decoder/blocks/block_merge.h"
#include "decoder/core/core_file.h"
#include "decoder/io/folder.h"
#include "decoder/open/archive.h"
#include "tools/cli/verbs.h"
#include "tools/output/format.h"
#include "tools/output/json.h"
#include "tools/output/output.h"
#include "tools/output/unfinished_file.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kShardSize = uint64_t{256} << 20;

struct PlanOptions {
  InputOptions input;
  std::string output;
  uint64_t shard_megabytes = kShardSize >> 20;
};

CoreFile::Write to(Output& out) {
  return [&out](std::span<const uint8_t> bytes) {
    out.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
}

// Writes `path` as a whole: make(out) fills it.
template <class Make>
Result<void> write_file(const std::string& path, Make make) {
  UnfinishedFile file(path);
  if (file.error()) return std::unexpected(*file.error());
  Output out = file.output();
  if (auto made = make(out); !made) return made;
  out.flush();
  if (auto failure = Output::take_failure()) return std::unexpected(std::move(*failure));
  return file.keep();
}

// What a scheduler reads.
Result<void> write_manifest(const Capture& capture, const std::string& folder, uint32_t shards) {
  return write_file((fs::path(folder) / "plan.json").string(), [&](Output& out) -> Result<void> {
    out.write(JsonLine("asof-plan")
                  .number("version", 1)
                  .text("capture", fs::absolute(capture.path).lexically_normal().string())
                  .text("machine", capture.machine)
                  .number("streams", capture.streams.size())
                  .number("trace_bytes", trace_bytes(capture.streams))
                  .number("shards", shards)
                  .end());
    return {};
  });
}

ExitCode run_plan(const PlanOptions& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  const auto cannot = [&](const Error& error) {
    diagnostics.error(error);
    return kExitInput;
  };
  if (is_archive(o.input.input)) {
    return cannot({Code::kTraceNotInFile, o.input.input, Error::kNoOffset,
                   "an archive is unpacked anew by each process", "asof unpack it, and plan what is in it"});
  }
  const DecodeChoice decodes;
  const auto capture = open_for_verb(o.input, diagnostics, ShownNotices::kAll, &decodes);
  if (!capture) return kExitInput;
  const uint64_t bytes = trace_bytes(capture->streams), size = o.shard_megabytes << 20;
  const auto shards =
      static_cast<uint32_t>(std::clamp<uint64_t>((bytes + size - 1) / size, 1, blocks::kMaxParts / 2));
  std::error_code failed;
  fs::create_directories(o.output, failed);
  const auto core = write_file((fs::path(o.output) / core::kFileName).string(), [&](Output& out) {
    return CoreFile::write(*capture, fs::absolute(o.output).lexically_normal().string(), to(out));
  });
  if (!core) return cannot(core.error());
  if (const auto manifest = write_manifest(*capture, o.output, shards); !manifest)
    return cannot(manifest.error());
  diagnostics.note(fmt::format("{}: {} of trace; {}, each: asof decode --plan {} --shard K/{} -o PARTS",
                               o.output, format_size(bytes), format_plural(shards, "shard", "shards"),
                               o.output, shards));
  return kExitOk;
}

struct MergeOptions {
  std::string plan, output;
  std::vector<std::string> parts;
  bool strict = false, quiet = false;
};

// Folders stand for the parts in them.
std::vector<std::string> part_files(const std::vector<std::string>& named) {
  std::vector<std::string> out;
  for (const std::string& path : named) {
    std::error_code failed;
    if (!fs::is_directory(path, failed)) {
      out.push_back(path);
      continue;
    }
    for (const std::string& inner : paths_in(path, failed)) {
      if (inner.ends_with(".blocks")) out.push_back(inner);
    }
  }
  std::ranges::sort(out);
  return out;
}

void tell_missing(const std::vector<Shard>& missing, const MergeOptions& o, Diagnostics& diagnostics) {
  if (missing.empty()) return;
  std::string list;
  for (size_t i = 0; i < missing.size() && i < 20; ++i)
    list += fmt::format("{}{}", i == 0 ? "" : ", ", missing[i].index);
  if (missing.size() > 20) list += ", ...";
  diagnostics.warn({Code::kPartMissing, o.output, Error::kNoOffset,
                    fmt::format("of {} shards {} not among the parts: {}", missing[0].count,
                                format_plural(missing.size(), "is", "are"), list),
                    fmt::format("asof decode --plan {} --shard {}/{} -o PARTS, then merge again", o.plan,
                                missing[0].index, missing[0].count)});
}

ExitCode run_merge(const MergeOptions& o) {
  Diagnostics diagnostics(Diagnostics::Color::kAuto, o.quiet ? -1 : 0);
  const auto cannot = [&](const Error& error) {
    diagnostics.error(error);
    return kExitInput;
  };
  if (!CoreFile::is_plan(o.plan)) {
    return cannot({Code::kBadPlan, o.plan, Error::kNoOffset,
                   "no plan: a folder with core.asof is wanted first", "asof merge PLAN PARTS... -o FILE"});
  }
  const auto capture = open_capture(o.plan, {});
  if (!capture) return cannot(capture.error());
  blocks::PartMerger merger(capture->core->identity());
  bool good = true;
  for (const auto& added : merger.add(part_files(o.parts))) {
    if (!added) {
      diagnostics.error(added.error());
      good = false;
    }
  }
  if (!good) return kExitInput;
  if (merger.parts() == 0) {
    return cannot({Code::kPartRefused, o.parts.empty() ? "" : o.parts[0], Error::kNoOffset,
                   "there are no parts here", "asof decode --plan PLAN --shard K/N -o PARTS makes them"});
  }
  const auto written = write_file(o.output, [&](Output& out) -> Result<void> {
    merger.write(*capture, to(out));
    return {};
  });
  if (!written) return cannot(written.error());
  tell_missing(merger.missing(), o, diagnostics);
  diagnostics.note(
      fmt::format("{}: {}{}", o.output, format_plural(merger.parts(), "part", "parts"),
                  merger.repeated() == 0 ? "" : fmt::format(", {} more given again", merger.repeated())));
  return o.strict && !merger.missing().empty() ? kExitErrors : kExitOk;
}

}  // namespace

RunVerb add_plan(CLI::App& app) {
  auto o = std::make_shared<PlanOptions>();
  CLI::App* verb =
      app.add_subcommand("plan", "a capture parsed once, for decoding by many processes or machines");
  add_input_options(*verb, o->input);
  verb->add_option("-o,--output", o->output, "folder of the plan")->required()->type_name("DIR");
  verb->add_option("--shard-size", o->shard_megabytes,
                   "MiB of trace in each shard that the plan proposes (256)")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 20))
      ->type_name("MIB");
  return [o] { return run_plan(*o); };
}

RunVerb add_merge(CLI::App& app) {
  auto o = std::make_shared<MergeOptions>();
  CLI::App* verb = app.add_subcommand("merge", "the parts of a plan's shards as one block stream");
  verb->add_option("PLAN", o->plan, "folder of the plan")->required()->type_name("DIR");
  verb->add_option("PARTS", o->parts, "parts, folders of parts, or what was merged before")
      ->required()
      ->type_name("PATH");
  verb->add_option("-o,--output", o->output, "the block stream, which every verb reads")
      ->required()
      ->type_name("FILE");
  verb->add_flag("--strict", o->strict, "status 3 when parts are missing");
  verb->add_flag("-q,--quiet", o->quiet, "errors only");
  return [o] { return run_merge(*o); };
}

}  // namespace asof
