// asof packets: the raw trace, one packet a line, stream by stream.
#include <fmt/format.h>

#include "arch/packets.h"
#include "tools/cli/task_options.h"
#include "tools/cli/verbs.h"
#include "tools/output/format.h"
#include "tools/output/output.h"
#include "tools/packets/flow_beside.h"
#include "tools/packets/lister.h"

namespace asof {
namespace {

struct PacketsOptions {
  InputOptions input;
  std::string output, format = "text", types, cpus, time, offsets;
  TaskText tasks;
  bool raw = false, file_offsets = false, count = false, flow = false;
  unsigned jobs = 0;
};

// Everything that does not need the capture.
Result<PacketSelection> read_selection(const PacketsOptions& o) {
  PacketSelection s;
  if (!o.cpus.empty()) {
    auto numbers = parse_number_list(o.cpus, "--cpu");
    if (!numbers) return std::unexpected(numbers.error());
    s.cpus = std::move(*numbers);
  }
  auto tasks = read_tasks(o.tasks);
  if (!tasks) return std::unexpected(tasks.error());
  s.tasks = std::move(*tasks);
  if (!o.offsets.empty()) {
    const auto range = parse_offset_range(o.offsets);
    if (!range) return std::unexpected(range.error());
    s.offsets = *range;
  }
  if (o.flow && (o.count || o.format == "csv"))
    return fail(Code::kBadOption, "", Error::kNoOffset, "--flow goes with neither --count nor --format csv");
  if (!o.time.empty() && o.time.find('%') == std::string::npos) {
    const auto time = parse_time_range(o.time, {});
    if (!time) return std::unexpected(time.error());
  }
  return s;
}

PacketFormat format_of(const PacketsOptions& o, const Output& out) {
  PacketFormat f;
  f.kind = o.format == "jsonl" ? PacketFormat::Kind::kJson
           : o.format == "csv" ? PacketFormat::Kind::kCsv
                               : PacketFormat::Kind::kText;
  f.raw = o.raw;
  f.file_offsets = o.file_offsets;
  f.color = wants_color(o.input.color, out.is_terminal());
  return f;
}

void warn_of_damage(const Capture& capture, const PacketCount& count, Diagnostics& diagnostics) {
  const uint64_t places = count.packets()[kPacketBad];
  if (places == 0) return;
  diagnostics.warn({Code::kBadPacket, capture.path, Error::kNoOffset,
                    fmt::format("{} without a packet, {} in all", format_plural(places, "place", "places"),
                                format_size(count.bytes_of(kPacketBad))),
                    "'asof packets --type BAD --raw' lists them"});
}

void warn_of_unseen(const TypeFilter& types, const PacketCount& count, Diagnostics& diagnostics) {
  for (const std::string& word : types.unseen(count.packets()))
    diagnostics.warn({Code::kBadOption, "", Error::kNoOffset,
                      fmt::format("no packet that was asked for is a {}", word),
                      "'asof packets --count' says which there are"});
}

// Of streams that are wanted; those whose packets nobody here reads are told of.
struct Readers {
  std::vector<std::pair<const Stream*, std::unique_ptr<PacketReader>>> all;
  bool any_other = false;
};

Readers readers_of(const Capture& capture, const Arch& arch, const PacketSelection& selection,
                   Diagnostics& diagnostics) {
  Readers out;
  for (size_t i = 0; i < capture.streams.size(); ++i) {
    const Stream& stream = capture.streams[i];
    if (!selection.wants(stream)) continue;
    auto reader = arch.packets(stream, i);
    if (reader) {
      out.all.emplace_back(&stream, std::move(reader));
      continue;
    }
    out.any_other = true;
    if (!capture.blocks)
      diagnostics.note(
          fmt::format("{}: OpenCSD, which reads the packets of ETMv3 and PTM, does not take this trace "
                      "unit's configuration",
                      stream.name));
  }
  return out;
}

// The flow is decoded, and its blocks are written under the packets.
ExitCode list_with_flow(const PacketsOptions& o, const Capture& capture, const Arch& arch,
                        const PacketSelection& selection, Lister& lister, Diagnostics& diagnostics) {
  PipelineOptions options;
  options.jobs = o.jobs;
  options.cpus = selection.cpus;
  options.tids = selection.tasks.tids;
  options.time = selection.time;
  const auto flow = make_flow_beside(capture, arch, lister);
  const auto done = run_pipeline(capture, options, ChunkOrder::kByStream, *flow);
  if (!done) {
    diagnostics.error(done.error());
    return kExitInput;
  }
  flow->finish();
  if (flow->unmatched() != 0)
    diagnostics.note(
        fmt::format("{} where packets and flow could not be matched: up to the next sync point the blocks "
                    "are not under their packets",
                    format_plural(flow->unmatched(), "place", "places")));
  return kExitOk;
}

ExitCode list_all(const PacketsOptions& o, const Capture& capture, const Arch& arch,
                  const PacketSelection& selection, Diagnostics& diagnostics) {
  Readers readers = readers_of(capture, arch, selection, diagnostics);
  if (capture.blocks) {
    diagnostics.error({Code::kNoTrace, capture.path, Error::kNoOffset,
                       "this holds decoded flow, not the trace",
                       "list the packets of the recording it was made from"});
    return kExitInput;
  }
  if (readers.all.empty()) return readers.any_other ? kExitInput : kExitOk;
  const auto names = readers.all.front().second->names();
  const auto types = TypeFilter::read(o.types, names);
  if (!types) {
    diagnostics.error(types.error());
    return kExitUsage;
  }
  auto out = Output::open(o.output);
  if (!out) {
    diagnostics.error(out.error());
    return kExitInput;
  }
  const PacketFormat format = format_of(o, *out);
  Lister lister(capture, selection, *types, format, o.count, *out);
  if (o.flow) {
    const ExitCode code = list_with_flow(o, capture, arch, selection, lister, diagnostics);
    if (code != kExitOk) return code;
  } else {
    for (auto& [stream, reader] : readers.all) {
      if (lister.stopped()) break;
      lister.list(*stream, *reader);
      reader.reset();  // its window
    }
  }
  if (o.count) out->write(lister.count().table(names, format.kind));
  if (!flush_output(*out, diagnostics)) return kExitInput;
  if (interrupted()) return kExitInterrupted;
  if (!out->closed()) {
    warn_of_damage(capture, lister.count(), diagnostics);
    warn_of_unseen(*types, lister.count(), diagnostics);
  }
  return kExitOk;
}

ExitCode run_packets(const PacketsOptions& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  auto selection = read_selection(o);
  if (!selection) {
    diagnostics.error(selection.error());
    return kExitUsage;
  }
  DecodeChoice choice;
  choice.pipeline.cpus = selection->cpus;
  const auto capture =
      open_for_verb(o.input, diagnostics, shown_or_all(ShownNotices::kRecording, o.input), &choice);
  if (!capture) return kExitInput;
  if (!take_time(o.time, *capture, diagnostics, selection->time)) return kExitUsage;
  warn_of_tasks(*capture, selection->tasks, diagnostics);
  const auto arch = capture->arch();
  if (!arch) {
    diagnostics.error(arch.error());
    return kExitInput;
  }
  return list_all(o, *capture, **arch, *selection, diagnostics);
}

}  // namespace

RunVerb add_packets(CLI::App& app) {
  auto o = std::make_shared<PacketsOptions>();
  CLI::App* verb = app.add_subcommand("packets", "the packets of the raw trace, one a line");
  add_input_options(*verb, o->input);
  add_strict_option(*verb);
  add_output_option(*verb, o->output);
  const std::string output = "Output";
  verb->add_option("--format", o->format, "text, jsonl or csv")
      ->check(CLI::IsMember({"text", "jsonl", "csv"}))
      ->group(output);
  verb->add_flag("--raw", o->raw, "the bytes of each packet, too")->group(output);
  verb->add_flag("--file-offsets", o->file_offsets, "offsets are those in the file, not in the stream")
      ->group(output);
  verb->add_flag("--count", o->count, "only how many packets of each type there are, and their bytes")
      ->group(output);
  verb->add_flag("--flow", o->flow, "under each packet the blocks of code that ran because of it")
      ->group(output);
  verb->add_option_function<unsigned>(
          "-j,--jobs", [o](unsigned jobs) { o->jobs = o->input.capture.jobs = jobs; },
          "threads for --flow and for opening (default: one for each CPU)")
      ->check(CLI::Range(1, 4096))
      ->group(output);
  const std::string filter = "Filters";
  verb->add_option("--type", o->types, "only these: TNT,TIP,PSB or Atom,Address,...; ^PAD leaves out")
      ->type_name("LIST")
      ->group(filter);
  verb->add_option("--offset", o->offsets,
                   "only bytes from A on, before B, of each stream; either may be missing")
      ->type_name("A,B")
      ->group(filter);
  verb->add_option("-C,--cpu", o->cpus, "only these CPUs: 0,2-5")->type_name("LIST")->group(filter);
  add_task_options(*verb, o->tasks);
  add_time_option(*verb, o->time);
  return [o] { return run_packets(*o); };
}

}  // namespace asof
