// asof decode: every executed instruction, branch, event and gap, in time order over all CPUs. Lines are made
// by the workers (decode_printer.h) and put in order by one thread (merge.h); the output is the same for
// every -j. With --format blocks it is a block stream instead (decode_blocks.h).
#include <fmt/format.h>

#include <memory>

#include "decoder/coresight/cs_frame_memory.h"
#include "tools/cli/decode_run.h"
#include "tools/cli/matches.h"
#include "tools/cli/shard_option.h"
#include "tools/cli/task_options.h"
#include "tools/cli/verbs.h"
#include "tools/decode/decode_blocks.h"
#include "tools/decode/decode_lines.h"
#include "tools/decode/decode_live.h"
#include "tools/decode/decode_shard.h"
#include "tools/output/output.h"

namespace asof {
namespace {

struct DecodeOptionsText {
  InputOptions input;
  DecodeChoice choice;
  std::string fields, itrace = "i", output, format = "text", syntax = "intel";
  TaskText tasks;
  std::string time, symbols, dsos, addresses;
  std::string plan, shard, same_machine;
  bool follow = false, calls = false;
  bool nanoseconds = false;
  SourceChoice source;
  bool cycles = false;
};

// Everything about the options that does not need the capture.
Result<std::pair<DecodeFormat, Selection>> read_options(DecodeOptionsText& o) {
  DecodeFormat format;
  Selection selection;
  if (!o.fields.empty()) {
    const auto fields = parse_fields(o.fields);
    if (!fields) return std::unexpected(fields.error());
    format.fields = *fields;
  }
  if (o.source.lines) format.fields |= kFieldSrcline;
  if (o.source.inlined) format.fields |= kFieldInline;
  const auto kinds = parse_itrace(o.itrace);
  if (!kinds) return std::unexpected(kinds.error());
  format.kinds = *kinds;
  if (o.cycles) format.kinds |= kKindCycles;
  format.json = o.format == "jsonl";
  format.nanoseconds = o.nanoseconds;
  format.syntax = o.syntax == "att" ? Syntax::kAtt : Syntax::kIntel;
  auto tasks = read_tasks(o.tasks, o.choice.pipeline);
  if (!tasks) return std::unexpected(tasks.error());
  selection.tasks = std::move(*tasks);
  selection.symbols = split_names(o.symbols);
  selection.dsos = split_list(o.dsos);
  for (const std::string& part : split_list(o.addresses)) {
    const auto range = parse_address_range(part);
    if (!range) return std::unexpected(range.error());
    selection.addresses.push_back(*range);
  }
  return std::pair{format, std::move(selection)};
}

// Invalid requests: a block stream holds everything, but not all that a recording does.
Result<void> check_blocks(const DecodeOptionsText& o) {
  if (o.format != "blocks") return {};
  for (const std::string* filter :
       {&o.fields, &o.tasks.pids, &o.tasks.tids, &o.tasks.comms, &o.symbols, &o.dsos, &o.addresses}) {
    if (!filter->empty())
      return fail(Code::kBadOption, "", Error::kNoOffset,
                  "--format blocks has no fields, and filters only by --cpu and --time",
                  "filter when the block stream is read");
  }
  return {};
}

// Parts of a plan: all of their flow, so that parts of all shards are the whole.
ExitCode run_shards(const DecodeOptionsText& o, Diagnostics& diagnostics) {
  const auto usage = [&](std::string reason, std::string hint) {
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset, std::move(reason), std::move(hint)});
    return kExitUsage;
  };
  const auto shards = parse_shards(o.shard);
  if (!shards) return usage(shards.error().reason, shards.error().hint);
  for (const std::string* filter : {&o.fields, &o.tasks.pids, &o.tasks.tids, &o.tasks.comms, &o.symbols,
                                    &o.dsos, &o.addresses, &o.time, &o.choice.cpus}) {
    if (!filter->empty())
      return usage("--shard decodes all of its trace, without filters", "filter what was merged");
  }
  if (o.output.empty() || o.output == "-") return usage("--shard needs a folder for its part", "-o DIR");
  return decode_shards(o.input, o.choice, *shards, {o.output, o.calls}, diagnostics);
}

bool is_part_of_whole(const std::string& time) { return time.find('%') != std::string::npos; }

void warn_of_selection(const Capture& capture, const Selection& selection, Diagnostics& diagnostics) {
  warn_of_tasks(capture, selection.tasks, diagnostics);
  warn_of_symbols(capture, selection.symbols, diagnostics);
  warn_of_dsos(capture, selection.dsos, diagnostics);
}

ExitCode run_live(const DecodeOptionsText& o, const DecodeFormat& format, const Selection& selection,
                  Diagnostics& diagnostics) {
  InputOptions input = o.input;
  input.capture.growing_frames = std::make_shared<CsFrameMemory>();
  LiveRequest request{input, o.choice, format, selection, o.output, o.same_machine, {}, {}};
  request.blocks = o.format == "blocks";
  request.window_needs_end = is_part_of_whole(o.time);
  request.choice.pipeline.time = selection.time;
  request.choice.pipeline.decode.cycles = o.cycles;
  request.open_whole = [&] {
    auto capture = open_for_verb(input, diagnostics, ShownNotices::kAll, &o.choice);
    if (capture) warn_of_selection(*capture, selection, diagnostics);
    return capture;
  };
  if (!o.time.empty())
    request.window = [&](const Capture& whole, TimeBounds& time) {
      return take_time(o.time, whole, diagnostics, time);
    };
  return decode_live(request, diagnostics);
}

ExitCode run_decode(DecodeOptionsText& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!o.plan.empty()) o.input.input = o.plan;
  if (!o.shard.empty()) return run_shards(o, diagnostics);
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  auto options = read_options(o);
  if (options && o.calls && o.format != "blocks")
    options = fail(Code::kBadOption, "", Error::kNoOffset, "--calls is for block streams and parts of a plan",
                   "--format blocks, or --plan and --shard");
  // A wrong --time is found before a long reading if possible.
  if (options && !o.time.empty() && !is_part_of_whole(o.time)) {
    const auto time = parse_time_range(o.time, {});
    if (!time) options = std::unexpected(time.error());
    if (time) options->second.time = *time;
  }
  if (const auto ok = check_blocks(o); options && !ok) options = std::unexpected(ok.error());
  if (!options) {
    diagnostics.error(options.error());
    return kExitUsage;
  }
  if (o.follow || is_live_pipe(o.input)) {
    if (!o.calls) return run_live(o, options->first, options->second, diagnostics);
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset, "--calls is not for what is still recorded",
                       "write the recording to a file first"});
    return kExitUsage;
  }
  const auto capture = open_for_verb(o.input, diagnostics, ShownNotices::kAll, &o.choice);
  if (!capture) return kExitInput;
  if (!take_time(o.time, *capture, diagnostics, options->second.time)) return kExitUsage;
  o.choice.pipeline.time = options->second.time;
  o.choice.pipeline.decode.cycles = o.cycles;
  warn_of_selection(*capture, options->second, diagnostics);
  auto out = Output::open(o.output);
  if (!out) {
    diagnostics.error(out.error());
    return kExitInput;
  }
  if (o.format == "blocks") {
    if (const auto ok = check_not_terminal(*out); !ok) {
      diagnostics.error(ok.error());
      return kExitUsage;
    }
    BlocksConsumer consumer(*capture, *out, o.choice, o.calls);
    return told(decode_to(consumer, *capture, o.choice, "decode", *out, diagnostics), consumer,
                o.input.quiet);
  }
  const DecodeJob job(*capture, options->first, options->second);
  DecodeLines consumer(job, *out, diagnostics, o.choice);
  return told(decode_to(consumer, *capture, o.choice, "decode", *out, diagnostics), consumer, o.input.quiet);
}

}  // namespace

RunVerb add_decode(CLI::App& app) {
  auto o = std::make_shared<DecodeOptionsText>();
  CLI::App* verb =
      app.add_subcommand("decode", "every executed instruction, branch, event and gap (the default verb)");
  add_input_options(*verb, o->input);
  add_decode_options(*verb, o->choice, o->input.capture);
  const std::string output = "Output";
  add_output_option(*verb, o->output);
  verb->add_option("--format", o->format, "text, jsonl, or blocks: a binary stream that other verbs read")
      ->check(CLI::IsMember({"text", "jsonl", "blocks"}))
      ->group(output);
  verb->add_option(
          "-F,--fields", o->fields,
          "comm,pid,tid,cpu,time,ip,sym,symoff,dso,insn,insnlen,disasm,flags,textver,textsrc,conf,srcline,"
          "inline; +f and -f change the default")
      ->type_name("LIST")
      ->group(output);
  verb->add_option(
          "--itrace", o->itrace,
          "i instructions, b branches, c calls, r returns, e gaps, x transactions, w ptwrite, p power, I "
          "interrupts (Event Trace), o PEBS (default: i)")
      ->type_name("LETTERS")
      ->group(output);
  verb->add_flag("--ns", o->nanoseconds, "times with nanoseconds")->group(output);
  add_source_options(*verb, o->input, o->source);
  verb->add_flag("--cycles", o->cycles,
                 "core cycles between packets, with the instructions that may have run in them (CYC packets, "
                 "cycacc)")
      ->group(output);
  verb->add_option("--syntax", o->syntax, "of disassembly: intel or att")
      ->check(CLI::IsMember({"intel", "att"}))
      ->group(output);
  verb->add_option("--plan", o->plan, "the plan to decode (asof plan), instead of INPUT")->type_name("DIR");
  verb->add_option("--shard", o->shard,
                   "of a plan, part K (from 0) of N, as a file in the folder -o, for 'asof merge'; "
                   "K-L/N: parts K to L, one after the other")
      ->type_name("K/N");
  verb->add_flag("--calls", o->calls,
                 "with --format blocks or --shard: also what calls add up to, which 'asof stacks' then reads "
                 "instead of the flow");
  verb->add_flag(
      "--follow", o->follow,
      "the file or directory is still written: give out what is settled, go on until perf ends (a pipe "
      "is followed without it)");
  verb->add_option(
          "--same-machine", o->same_machine,
          "with --follow: a finished recording of the machine, for what files say at their end alone")
      ->type_name("PERF.DATA");
  const std::string filter = "Filters";
  add_task_options(*verb, o->tasks);
  add_time_option(*verb, o->time);
  verb->add_option("-S,--symbols", o->symbols, "only in these functions; patterns as in a shell: 'sched*'")
      ->type_name("LIST")
      ->group(filter);
  verb->add_option("--dsos,--dso", o->dsos, "only in these files")->type_name("LIST")->group(filter);
  verb->add_option("--addr-range", o->addresses, "only from address A to B: A-B, hexadecimal")
      ->type_name("A-B")
      ->group(filter);
  return [o] { return run_decode(*o); };
}

}  // namespace asof
