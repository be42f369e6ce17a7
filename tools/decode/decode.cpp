// asof decode: every executed instruction, branch, event and gap, in time order over all CPUs. Lines are made
// by the workers (decode_printer.h) and put in order by one thread (merge.h); the output is the same for
// every -j. With --format blocks it is a block stream instead (decode_blocks.h).
#include <fmt/format.h>
#include <tbb/enumerable_thread_specific.h>

#include <atomic>
#include <mutex>

#include "tools/cli/decode_run.h"
#include "tools/cli/matches.h"
#include "tools/cli/verbs.h"
#include "tools/decode/decode_blocks.h"
#include "tools/decode/decode_printer.h"
#include "tools/decode/decode_shard.h"
#include "tools/output/chunk_window.h"
#include "tools/output/coverage.h"
#include "tools/output/format.h"
#include "tools/output/merge.h"
#include "tools/output/output.h"
#include "tools/output/tally.h"

namespace asof {
namespace {

struct PrintedChunk : ChunkConsumer::Prepared {
  TimedText lines;
  DecodePrinter::Last last;
  uint64_t instructions = 0;
  std::optional<Chunk> part;  // what is counted, if the chunk reaches beyond the time that was asked for
  uint64_t bytes() const override {
    return sizeof *this + lines.text.capacity() + lines.marks.capacity() * sizeof(TimedText::Mark);
  }
};

// Memory of written lines, for later lines: there is so much text that new pages from the system would cost
// more than making it.
class LinePool {
 public:
  TimedText take() {
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) return {};
    TimedText lines = std::move(free_.back());
    free_.pop_back();
    bytes_ -= lines.text.capacity();
    return lines;
  }
  void give(TimedText&& lines) {
    lines.text.clear();
    lines.marks.clear();
    const std::scoped_lock lock(mutex_);
    if (bytes_ + lines.text.capacity() > kMaxBytes) return;
    bytes_ += lines.text.capacity();
    free_.push_back(std::move(lines));
  }

 private:
  static constexpr size_t kMaxBytes = 64 << 20;
  std::mutex mutex_;
  std::vector<TimedText> free_;
  size_t bytes_ = 0;
};

class DecodeConsumer : public ChunkConsumer {
 public:
  DecodeConsumer(const DecodeJob& job, Output& out, Diagnostics& diagnostics, const DecodeChoice& choice)
      : job_(job),
        out_(out),
        diagnostics_(diagnostics),
        max_errors_(choice.max_errors),
        coverage_(job.capture, choice.pipeline),
        last_(job.capture.streams.size()),
        merger_(
            job.capture.streams.size(), [&](std::string_view text) { out_.write(text); },
            Merger::kDefaultLimit, [&](TimedText&& lines) { pool_.give(std::move(lines)); }),
        printers_([&job] { return DecodePrinter(job); }) {}

  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream& stream) override {
    auto printed = std::make_unique<PrintedChunk>();
    printed->lines = pool_.take();
    printed->part = chunk_within(chunk, job_.selection.time);
    Tally tally;
    count_steps(printed->part ? *printed->part : chunk, tally);
    printed->instructions = tally.ips.count;
    printed->last = printers_.local().print(chunk, stream, printed->lines);
    return printed;
  }

  void deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) override {
    auto& printed = static_cast<PrintedChunk&>(*prepared);
    coverage_.add(printed.part ? *printed.part : chunk, printed.instructions);
    any_cycles_ = any_cycles_ || has_cycles(chunk);
    DecodePrinter& printer = printers_.local();
    for (const Gap& gap : chunk.gaps) {
      if (printer.selected(gap, stream)) diagnostics_.gap(job_.capture, stream, gap);
    }
    TimedText seam;
    const auto after = printer.seam(last_[chunk.stream], chunk, stream, seam);
    last_[chunk.stream] = chunk.steps.empty() ? after : printed.last;
    merger_.add(chunk.stream, std::move(seam), chunk.segment_start);
    merger_.add(chunk.stream, std::move(printed.lines), chunk.segment_start);
    if (interrupted() || out_.closed() || coverage_.errors() > max_errors_) stopped_ = true;
  }

  // Called by all workers.
  bool stopped() const override { return stopped_; }

  void finish() {
    merger_.finish();
    out_.flush();
    if (job_.lines) {
      for (const Notice& n : job_.lines->take_notices()) diagnostics_.notice(n);
    }
    if (job_.format.wants(kKindCycles) && !any_cycles_) diagnostics_.warn(no_cycles(job_.capture));
    if (merger_.forced() != 0) {
      diagnostics_.note(
          "the order of lines over CPUs is approximate in places: a segment was too long to hold back the "
          "others");
    }
  }
  Coverage& coverage() { return coverage_; }

 private:
  const DecodeJob& job_;
  Output& out_;
  Diagnostics& diagnostics_;
  uint64_t max_errors_;
  Coverage coverage_;
  std::vector<DecodePrinter::Last> last_;  // by stream
  LinePool pool_;
  Merger merger_;
  tbb::enumerable_thread_specific<DecodePrinter> printers_;
  std::atomic<bool> stopped_ = false;
  bool any_cycles_ = false;
};

struct DecodeOptionsText {
  InputOptions input;
  DecodeChoice choice;
  std::string fields, itrace = "i", output, format = "text", syntax = "intel";
  std::string pids, tids, time, symbols, dsos, addresses;
  std::string plan, shard;
  bool nanoseconds = false;
  SourceChoice source;
  bool cycles = false;
};

// Everything about the options that does not need the capture.
Result<std::pair<DecodeFormat, Selection>> read_options(const DecodeOptionsText& o) {
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
  for (const auto& [text, list, name] :
       {std::tuple{&o.pids, &selection.pids, "--pid"}, {&o.tids, &selection.tids, "--tid"}}) {
    if (text->empty()) continue;
    auto numbers = parse_number_list(*text, name);
    if (!numbers) return std::unexpected(numbers.error());
    *list = std::move(*numbers);
  }
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
Result<void> check_blocks(const DecodeOptionsText& o, const Output& out) {
  const auto usage = [](const char* reason, const char* hint) {
    return fail(Code::kBadOption, "", Error::kNoOffset, reason, hint);
  };
  for (const std::string* filter : {&o.fields, &o.pids, &o.tids, &o.symbols, &o.dsos, &o.addresses}) {
    if (!filter->empty())
      return usage("--format blocks has no fields, and filters only by --cpu and --time",
                   "filter when the block stream is read");
  }
  if (out.is_terminal()) return usage("--format blocks is binary, not for a terminal", "use -o FILE");
  return {};
}

// One part of a plan: all of its flow, so that parts of all shards are the whole.
ExitCode run_shard(const DecodeOptionsText& o, Diagnostics& diagnostics) {
  const auto usage = [&](std::string reason, std::string hint) {
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset, std::move(reason), std::move(hint)});
    return kExitUsage;
  };
  const auto shard = parse_shard(o.shard);
  if (!shard) return usage(shard.error().reason, shard.error().hint);
  for (const std::string* filter :
       {&o.fields, &o.pids, &o.tids, &o.symbols, &o.dsos, &o.addresses, &o.time, &o.choice.cpus}) {
    if (!filter->empty())
      return usage("--shard decodes all of its trace, without filters", "filter what was merged");
  }
  if (o.output.empty() || o.output == "-") return usage("--shard needs a folder for its part", "-o DIR");
  return decode_shard(o.input, o.choice, *shard, o.output, diagnostics);
}

ExitCode run_decode(DecodeOptionsText& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!o.plan.empty()) o.input.input = o.plan;
  if (!o.shard.empty()) return run_shard(o, diagnostics);
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  auto options = read_options(o);
  // A wrong --time is found before a long reading if possible.
  if (options && !o.time.empty() && o.time.find('%') == std::string::npos) {
    const auto time = parse_time_range(o.time, {});
    if (!time) options = std::unexpected(time.error());
  }
  if (!options) {
    diagnostics.error(options.error());
    return kExitUsage;
  }
  const auto capture = open_for_verb(o.input, diagnostics, true, &o.choice);
  if (!capture) return kExitInput;
  if (!take_time(o.time, *capture, diagnostics, options->second.time)) return kExitUsage;
  o.choice.pipeline.time = options->second.time;
  o.choice.pipeline.decode.cycles = o.cycles;
  if (!options->second.tids.empty()) o.choice.pipeline.tids = options->second.tids;
  warn_of_tasks(*capture, options->second.pids, options->second.tids, diagnostics);
  warn_of_symbols(*capture, options->second.symbols, diagnostics);
  warn_of_dsos(*capture, options->second.dsos, diagnostics);
  auto out = Output::open(o.output);
  if (!out) {
    diagnostics.error(out.error());
    return kExitInput;
  }
  if (o.format == "blocks") {
    if (const auto ok = check_blocks(o, *out); !ok) {
      diagnostics.error(ok.error());
      return kExitUsage;
    }
    BlocksConsumer consumer(*capture, *out, o.choice);
    return decode_to(consumer, *capture, o.choice, "decode", *out, diagnostics);
  }
  const DecodeJob job(*capture, options->first, options->second);
  DecodeConsumer consumer(job, *out, diagnostics, o.choice);
  return decode_to(consumer, *capture, o.choice, "decode", *out, diagnostics);
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
                 "core cycles between packets, with the instructions that may have run in them (CYC packets)")
      ->group(output);
  verb->add_option("--syntax", o->syntax, "of disassembly: intel or att")
      ->check(CLI::IsMember({"intel", "att"}))
      ->group(output);
  verb->add_option("--plan", o->plan, "the plan to decode (asof plan), instead of INPUT")->type_name("DIR");
  verb->add_option("--shard", o->shard,
                   "of a plan, part K (from 0) of N, as a file in the folder -o, for 'asof merge'")
      ->type_name("K/N");
  const std::string filter = "Filters";
  verb->add_option("--pid", o->pids, "only these processes")->group(filter);
  verb->add_option("--tid", o->tids, "only these threads")->group(filter);
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
