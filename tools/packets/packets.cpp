// asof packets: the raw trace, one packet a line, stream by stream.
#include <fmt/format.h>

#include "tools/cli/matches.h"
#include "tools/cli/verbs.h"
#include "tools/output/output.h"
#include "tools/packets/packet_count.h"
#include "tools/packets/packet_filter.h"
#include "tools/packets/packet_style.h"

namespace asof {
namespace {

struct PacketsOptions {
  InputOptions input;
  std::string output, format = "text", types, cpus, pids, tids, time, offsets;
  bool raw = false, file_offsets = false, count = false;
};

struct Selection {
  std::vector<int> cpus, pids, tids;
  OffsetRange offsets;
  TimeBounds time;

  bool wants(const Stream& s) const {
    if (!cpus.empty() && s.cpu >= 0 && std::ranges::find(cpus, s.cpu) == cpus.end()) return false;
    return tids.empty() || s.tid < 0 || std::ranges::find(tids, s.tid) != tids.end();
  }
};

// Everything that does not need the capture.
Result<Selection> read_selection(const PacketsOptions& o) {
  Selection s;
  for (const auto& [text, list, name] :
       {std::tuple{&o.cpus, &s.cpus, "--cpu"}, {&o.pids, &s.pids, "--pid"}, {&o.tids, &s.tids, "--tid"}}) {
    if (text->empty()) continue;
    auto numbers = parse_number_list(*text, name);
    if (!numbers) return std::unexpected(numbers.error());
    *list = std::move(*numbers);
  }
  if (!o.offsets.empty()) {
    const auto range = parse_offset_range(o.offsets);
    if (!range) return std::unexpected(range.error());
    s.offsets = *range;
  }
  if (!o.time.empty() && o.time.find('%') == std::string::npos) {
    const auto time = parse_time_range(o.time, {});
    if (!time) return std::unexpected(time.error());
  }
  return s;
}

class Lister {
 public:
  Lister(const Selection& selection, const TypeFilter& types, const PacketFormat& format, bool count,
         Output& out)
      : selection_(selection),
        types_(types),
        tasks_(selection.pids, selection.tids),
        style_(make_packet_style(format)),
        only_count_(count),
        out_(out) {
    if (!count) out_.write(style_->header());
  }

  void list(const Stream& stream, PacketReader& reader) {
    style_->start(stream, reader.names());
    TracePacket k;
    for (uint64_t n = 0; reader.next(k); ++n) {
      if (k.offset >= selection_.offsets.end) return;
      if (n % kLook == 0 && (interrupted() || out_.closed())) return;
      if (!passes(stream, k)) continue;
      count_.add(k);
      if (!only_count_) print(reader, k);
    }
  }
  const PacketCount& count() const { return count_; }

 private:
  static constexpr uint64_t kLook = 4096;

  bool passes(const Stream& stream, const TracePacket& k) {
    if (!types_.passes(k.type)) return false;
    if (k.offset < selection_.offsets.begin && k.offset + k.size <= selection_.offsets.begin) return false;
    if (k.time < selection_.time.lo || k.time > selection_.time.hi) return false;
    return tasks_.passes(stream, k.time);
  }
  void print(const PacketReader& reader, const TracePacket& k) {
    fields_.clear();
    if (k.is_packet()) reader.describe(fields_);
    line_.clear();
    style_->line(line_, k, fields_.all());
    out_.write(line_);
  }

  const Selection& selection_;
  const TypeFilter& types_;
  TaskFilter tasks_;
  const std::unique_ptr<PacketStyle> style_;
  const bool only_count_;
  Output& out_;
  PacketCount count_;
  PacketFields fields_;
  std::string line_;
};

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

void warn_of_unseen(const TypeFilter& types, const PacketCount& count, Diagnostics& diagnostics) {
  for (const std::string& word : types.unseen(count.packets()))
    diagnostics.warn({Code::kBadOption, "", Error::kNoOffset,
                      fmt::format("no packet that was asked for is a {}", word),
                      "'asof packets --count' says which there are"});
}

ExitCode list_all(const PacketsOptions& o, const Capture& capture, const Arch& arch,
                  const Selection& selection, Diagnostics& diagnostics) {
  const auto first = arch.packets(capture.streams.front(), 0);
  if (!first) {
    diagnostics.error({Code::kNoTrace, capture.path, Error::kNoOffset,
                       "this holds decoded flow, not the trace",
                       "list the packets of the recording it was made from"});
    return kExitInput;
  }
  const auto types = TypeFilter::read(o.types, first->names());
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
  Lister lister(selection, *types, format, o.count, *out);
  for (size_t i = 0; i < capture.streams.size() && !interrupted() && !out->closed(); ++i) {
    if (selection.wants(capture.streams[i]))
      lister.list(capture.streams[i], *arch.packets(capture.streams[i], i));
  }
  if (o.count) out->write(lister.count().table(first->names(), format.kind));
  if (!flush_output(*out, diagnostics)) return kExitInput;
  if (interrupted()) return kExitInterrupted;
  if (!out->closed()) warn_of_unseen(*types, lister.count(), diagnostics);
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
  const auto capture = open_for_verb(o.input, diagnostics, o.input.verbose > 0, &choice);
  if (!capture) return kExitInput;
  if (!take_time(o.time, *capture, diagnostics, selection->time)) return kExitUsage;
  warn_of_tasks(*capture, selection->pids, selection->tids, diagnostics);
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
  const std::string filter = "Filters";
  verb->add_option("--type", o->types, "only these: TNT,TIP,PSB or Atom,Address,...; ^PAD leaves out")
      ->type_name("LIST")
      ->group(filter);
  verb->add_option("--offset", o->offsets,
                   "only bytes from A on, before B, of each stream; either may be missing")
      ->type_name("A,B")
      ->group(filter);
  verb->add_option("-C,--cpu", o->cpus, "only these CPUs: 0,2-5")->type_name("LIST")->group(filter);
  verb->add_option("--pid", o->pids, "only while these processes ran")->group(filter);
  verb->add_option("--tid", o->tids, "only while these threads ran")->group(filter);
  add_time_option(*verb, o->time);
  return [o] { return run_packets(*o); };
}

}  // namespace asof
