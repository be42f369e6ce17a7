// asof timeline: functions as nested slices by CPU and thread, with everything that happened to text, as a
// file for a viewer. The suffix of -o picks the format.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "decoder/calls/call_part.h"
#include "textstore/time.h"
#include "tools/cli/flow_found.h"
#include "tools/cli/progress.h"
#include "tools/cli/shard_option.h"
#include "tools/cli/task_options.h"
#include "tools/cli/verbs.h"
#include "tools/output/format.h"
#include "tools/output/gzip.h"
#include "tools/output/output.h"
#include "tools/timeline/out_html.h"
#include "tools/timeline/out_slices.h"
#include "tools/timeline/out_sqlite.h"
#include "tools/timeline/timeline_outputs.h"

namespace asof {
namespace {

// Straight runs in a page: some megabytes.
constexpr uint64_t kPageBlocks = 300'000;

struct TimelineText {
  InputOptions input;
  DecodeChoice choice;
  TaskText tasks;
  TaskChoice wanted;  // by `tasks`
  std::string output, html, format, time, detail, shard, tracks = "cpu,thread";
  uint64_t max_slices = TimelineLimits{}.slices;
  bool gzip = false, cycles = false;
  SourceChoice source;
  std::optional<Shard> part;  // as `shard` says
};

struct FormatName {
  std::string_view suffix, format;
};
constexpr std::array<FormatName, 10> kSuffixes{{{".html", "html"},
                                                {".csv", "csv"},
                                                {".jsonl", "jsonl"},
                                                {".db", "sqlite"},
                                                {".pftrace", "perfetto"},
                                                {".perfetto-trace", "perfetto"},
                                                {".perfetto", "perfetto"},
                                                {".json", "chrome"},
                                                {".pb", "perfetto"},
                                                {".pf", "perfetto"}}};

// By the suffix of the file, which ".gz" may follow; empty when it is unknown.
std::string format_of(std::string_view file) {
  if (file.ends_with(".gz")) file.remove_suffix(3);
  for (const FormatName& f : kSuffixes) {
    if (file.ends_with(f.suffix)) return std::string(f.format);
  }
  return {};
}

// The first suffix of a format.
std::string default_output(std::string_view format) {
  for (const FormatName& f : kSuffixes) {
    if (format == f.format) return "asof" + std::string(f.suffix);
  }
  return "asof.pftrace";
}

bool is_rows(std::string_view format) { return format == "csv" || format == "jsonl"; }

Result<void> choose(TimelineText& o, TimelineOptions& options) {
  if (!o.html.empty()) {
    if (!o.output.empty() || (!o.format.empty() && o.format != "html"))
      return fail(Code::kBadOption, "", Error::kNoOffset,
                  "--html is the output: -o and --format of another one do not go with it");
    o.output = o.html;
    o.format = "html";
  }
  if (o.output.empty()) o.output = default_output(o.format);
  if (o.format.empty()) o.format = format_of(o.output);
  if (o.format.empty()) {
    return fail(Code::kBadOption, "", Error::kNoOffset, "the suffix of '" + o.output + "' names no format",
                "use .pftrace, .json, .html, .csv, .jsonl or .db, or --format");
  }
  o.gzip = o.gzip || o.output.ends_with(".gz");
  options.pipeline = o.choice.pipeline;
  options.cpu_tracks = options.thread_tracks = false;
  for (const std::string& word : split_list(o.tracks)) {
    if (word == "cpu") {
      options.cpu_tracks = true;
    } else if (word == "thread") {
      options.thread_tracks = true;
    } else {
      return fail(Code::kBadOption, "", Error::kNoOffset, "--tracks: '" + word + "' is not cpu or thread");
    }
  }
  // A page shows any number of calls, and as many instructions as fit beside them.
  if ((is_rows(o.format) || o.format == "chrome") && o.detail == "insn") {
    return fail(Code::kBadOption, "", Error::kNoOffset, "--detail insn: " + o.format + " has functions only",
                "`asof decode` prints instructions as text or JSON lines; .pftrace, .html and .db have them");
  }
  if (!o.shard.empty()) {
    if (!is_rows(o.format))
      return fail(Code::kBadOption, "", Error::kNoOffset,
                  "--shard: a file of format " + o.format + " is not joined of parts", ".csv and .jsonl are");
    const auto shard = parse_shard(o.shard);
    if (!shard) return std::unexpected(shard.error());
    o.part = *shard;
  }
  if (o.format == "sqlite" && o.gzip)
    return fail(Code::kBadOption, "", Error::kNoOffset, "a database is not compressed");
  if (o.cycles && o.format != "html") {
    return fail(Code::kBadOption, "", Error::kNoOffset, "--cycles is for a page (--html)",
                "'asof query' has them as tables, 'asof report --cycles' as text");
  }
  options.detail = o.detail == "insn" || (o.detail.empty() && o.format == "html");
  // A database takes all of them, row by row; what is shown must fit into memory.
  if (options.detail && o.time.empty() && o.format != "html" && o.format != "sqlite") {
    return fail(Code::kBadOption, "", Error::kNoOffset, "--detail insn needs --time A,B",
                "every instruction of a whole capture is more than a viewer shows");
  }
  return {};
}

// As a shell would read it again.
std::string quoted_word(const std::string& word) {
  const bool plain =
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%") ==
      std::string::npos;
  if (plain && !word.empty()) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Where a page has single instructions when no time was given: everywhere in a small capture; else around
// changes of text, and now and then, in windows that are as long as the page has room.
std::vector<TimeBounds> page_windows(const Capture& capture) {
  constexpr uint64_t kSmall = 256 << 10;  // bytes of trace
  constexpr Time kInstants = 16;
  constexpr Time kRunsPerMicrosecond = 30;  // of one CPU, about
  uint64_t bytes = 0;
  for (const Stream& s : capture.streams) bytes += s.end() - s.begin();
  const TimeBounds whole = whole_time(capture);
  if (bytes < kSmall || whole.lo == kTimeMin || whole.hi == kTimeMax) return {};
  std::vector<Time> centres;
  for (const PokeRecord& p : capture.text->pokes()) centres.push_back(p.time);
  for (Time i = 0; i < kInstants; ++i)
    centres.push_back(whole.lo + elapsed(whole.lo, whole.hi) / kInstants * i);
  std::ranges::sort(centres);
  const Time streams = static_cast<Time>(capture.streams.size());
  const Time room = static_cast<Time>(kPageBlocks) * 1000 / kRunsPerMicrosecond / streams;
  const Time half = std::clamp<Time>(room / static_cast<Time>(centres.size()) / 2, 500, 20'000);
  std::vector<TimeBounds> windows;
  for (const Time t : centres) {
    const TimeBounds window{saturating_add(t, -half), saturating_add(t, half)};
    if (!windows.empty() && windows.back().hi >= window.lo) {
      windows.back().hi = window.hi;
    } else {
      windows.push_back(window);
    }
  }
  return windows;
}

std::vector<Notice> write_page(const Capture& capture, const Timeline& timeline, const TimelineText& o,
                               const TimelineOptions& made, const CycleCosts* cycles,
                               const std::function<void(std::string_view)>& write) {
  HtmlOptions options;
  options.inlined = o.source.inlined;
  options.cycles = cycles;
  options.command = "asof timeline " + quoted_word(o.input.input);
  const CaptureOptions& c = o.input.capture;
  const std::pair<const char*, const std::string&> files[] = {
      {"--vmlinux", c.vmlinux},     {"--kallsyms", c.kallsyms},  {"--kcore", c.kcore},
      {"--modules", c.modules_dir}, {"--symfs", c.symfs},        {"--buildid-dir", c.buildid_dir},
      {"--kcore-end", c.kcore_end}, {"--ksym-text", c.ksym_text}};
  for (const auto& [name, file] : files) {
    if (!file.empty()) options.command += fmt::format(" {} {}", name, quoted_word(file));
  }
  for (const std::string& file : c.jitdumps) options.command += " --jitdump " + quoted_word(file);
  const std::pair<const char*, const std::string&> tasks[] = {
      {"--pid", o.tasks.pids}, {"--tid", o.tasks.tids}, {"--comm", o.tasks.comms}};
  for (const auto& [name, list] : tasks) {
    if (!list.empty()) options.command += fmt::format(" {} {}", name, quoted_word(list));
  }
  if (c.catalogue) options.command += " --catalogue";
  if (o.cycles) options.command += " --cycles";
  if (c.force) options.command += " --force";
  options.command += " -o " + quoted_word(o.output);
  if (made.detail) options.detail = made.detail_windows;
  if (made.detail && options.detail.empty()) options.detail = {made.detail_time};
  return write_html(capture, timeline, options, write);
}

void report_result(const Timeline& t, const TimelineText& o, Diagnostics& diagnostics) {
  diagnostics.note(fmt::format(
      "{}: {} of {} on {}, {}, {}", o.output, format_plural(t.slices.size(), "slice", "slices"),
      format_plural(t.functions.size(), "function", "functions"),
      format_plural(t.tracks.size(), "track", "tracks"), format_plural(t.gaps.size(), "gap", "gaps"),
      format_plural(t.pokes.size(), "poke", "pokes")));
  if (t.folded != 0) {
    diagnostics.note(
        fmt::format("{} slices shorter than {} were folded into those around them; "
                    "--max-slices 0 keeps all",
                    format_count(t.folded), timeline_length(t.summary, t.folded_below)));
  }
  if (t.blocks_left_out != 0) {
    diagnostics.note(fmt::format("{} straight runs were left out: choose a shorter --time",
                                 format_count(t.blocks_left_out)));
  }
  if (t.summary.reordered != 0)
    diagnostics.note("threads are stitched approximately in places: a segment was too long to wait for");
}

void warn_of_idle(const TimelineText& o, Diagnostics& diagnostics) {
  if (o.wanted.any() && !interrupted()) warn_of_idle_tasks(o.wanted, diagnostics);
}

// Databases and rows are written while decoding continues; nothing is folded.
Result<TimelineSummary> write_database(const Capture& capture, const TimelineText& o,
                                       const TimelineOptions& options, Diagnostics& diagnostics) {
  auto sink = SqliteSink::open(o.output, options.detail, o.source.inlined);
  if (!sink) return std::unexpected(sink.error());
  ProgressBar bar(o.choice.progress, "timeline");
  auto summary = run_timeline(capture, options, **sink, bar.callback());
  const auto done = (*sink)->finish();
  for (const Notice& n : (*sink)->take_notices()) diagnostics.notice(n);
  if (summary && !done) return std::unexpected(done.error());
  return summary;
}

Result<TimelineSummary> write_rows(const Capture& capture, const TimelineText& o,
                                   const TimelineOptions& options, Diagnostics& diagnostics) {
  auto out = Output::open(o.output);
  if (!out) return std::unexpected(out.error());
  const std::function<void(std::string_view)> plain = [&](std::string_view bytes) { out->write(bytes); };
  GzipWriter packed(plain);
  const std::function<void(std::string_view)> write =
      o.gzip ? [&](std::string_view bytes) { packed.write(bytes); } : plain;
  const auto format = o.format == "csv" ? SliceSink::Format::kCsv : SliceSink::Format::kJsonLines;
  SourceLines lines(capture);
  SliceSink sink(
      format, write, [&] { return out->closed() || interrupted(); }, o.source.lines ? &lines : nullptr,
      !o.part || o.part->index == 0);
  ProgressBar bar(o.choice.progress, "timeline");
  auto summary = o.part ? run_timeline_part(capture, options, *o.part, sink, {}, bar.callback())
                        : run_timeline(capture, options, sink, bar.callback());
  if (o.gzip) packed.finish();
  if (!summary) return summary;
  out->finish();
  for (const Notice& n : lines.take_notices()) diagnostics.notice(n);
  if (auto failure = Output::take_failure()) return std::unexpected(std::move(*failure));
  return summary;
}

ExitCode write_table(const Capture& capture, const TimelineText& o, const TimelineOptions& options,
                     const FlowErrors& errors, Diagnostics& diagnostics) {
  const auto summary = o.format == "sqlite" ? write_database(capture, o, options, diagnostics)
                                            : write_rows(capture, o, options, diagnostics);
  if (!summary) {
    diagnostics.error(summary.error());
    return kExitInput;
  }
  errors.tell(diagnostics);
  diagnostics.note(fmt::format("{}: {}, {}", o.output, format_plural(summary->slices, "slice", "slices"),
                               format_plural(summary->gaps, "gap", "gaps")));
  if (summary->slices == 0) warn_of_idle(o, diagnostics);
  return errors.judge(exit_code_for(*summary), diagnostics);
}

// Where functions begin.
std::vector<Notice> add_lines(const Capture& capture, const SourceChoice& choice, Timeline& timeline) {
  if (!choice.lines) return {};
  SourceLines lines(capture);
  std::vector<bool> seen(timeline.functions.size());
  for (const Slice& s : timeline.slices) {
    if (seen[s.function]) continue;
    seen[s.function] = true;
    TimelineFunction& f = timeline.functions[s.function];
    f.line = function_line(lines, f, s.begin);
  }
  return lines.take_notices();
}

ExitCode run_timeline_verb(TimelineText& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  TimelineOptions options;
  if (const auto chosen = choose(o, options); !chosen) {
    diagnostics.error(chosen.error());
    return kExitUsage;
  }
  auto tasks = read_tasks(o.tasks, options.pipeline);
  if (!tasks) {
    diagnostics.error(tasks.error());
    return kExitUsage;
  }
  o.wanted = std::move(*tasks);
  if (o.wanted.any() && o.part) {
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset, "--shard is a part of the calls of all tasks",
                       "leave out --pid, --tid and --comm"});
    return kExitUsage;
  }
  if (o.wanted.any() && o.cycles) {
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset,
                       "--cycles counts what all tasks ran between two counts",
                       "leave out --pid, --tid and --comm"});
    return kExitUsage;
  }
  const auto capture = open_for_verb(o.input, diagnostics, ShownNotices::kAll, &o.choice);
  if (!capture) return kExitInput;
  if (o.part) {
    if (const auto ok = check_call_shard(*capture, o.time); !ok) {
      diagnostics.error(ok.error());
      return kExitUsage;
    }
  }
  if (!take_time(o.time, *capture, diagnostics, options.pipeline.time)) return kExitUsage;
  options.detail_time = options.pipeline.time;
  warn_of_tasks(*capture, o.wanted, diagnostics);
  choose_threads(o.wanted, *capture, options);
  FlowErrors errors(*capture, o.choice, options.pipeline.time);
  errors.watch(options);
  if (o.format == "sqlite" || is_rows(o.format))
    return write_table(*capture, o, options, errors, diagnostics);
  if (o.format == "html" && o.time.empty() && o.detail.empty())
    options.detail_windows = page_windows(*capture);
  auto out = Output::open(o.output);
  if (!out) {
    diagnostics.error(out.error());
    return kExitInput;
  }
  TimelineLimits limits{.slices = o.max_slices};
  if (o.format == "html") limits.blocks = kPageBlocks;
  Result<Timeline> timeline;
  {
    ProgressBar bar(o.choice.progress, "timeline");
    timeline = make_timeline(*capture, options, limits, bar.callback());
  }
  if (!timeline) {
    diagnostics.error(timeline.error());
    return kExitInput;
  }
  const std::function<void(std::string_view)> plain = [&](std::string_view bytes) { out->write(bytes); };
  GzipWriter packed(plain);
  const std::function<void(std::string_view)> write =
      o.gzip ? [&](std::string_view bytes) { packed.write(bytes); } : plain;
  std::vector<Notice> notices = add_lines(*capture, o.source, *timeline);
  const auto append = [&](std::vector<Notice> more) {
    notices.insert(notices.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  if (o.format == "html") {
    std::optional<CycleCosts> cycles;
    if (o.cycles) {
      cycles.emplace(*capture);
      if (const auto counted = count_cycles(*capture, options.pipeline, *cycles); !counted) {
        diagnostics.error(counted.error());
        return kExitInput;
      }
      if (!cycles->any()) diagnostics.warn(no_cycles(*capture));
    }
    append(write_page(*capture, *timeline, o, options, cycles ? &*cycles : nullptr, write));
  } else if (o.format == "chrome") {
    write_chrome(*capture, *timeline, write);
  } else {
    PerfettoResult result = write_perfetto(*capture, *timeline, o.source.inlined, write);
    append(std::move(result.notices));
    if (result.instructions_left_out != 0) {
      diagnostics.note(
          fmt::format("{} instructions have no slices of their own, only their runs: choose a shorter --time",
                      format_count(result.instructions_left_out)));
    }
  }
  if (o.gzip) packed.finish();
  if (!flush_output(*out, diagnostics)) return kExitInput;
  for (const Notice& n : notices) diagnostics.notice(n);
  errors.tell(diagnostics);
  report_result(*timeline, o, diagnostics);
  if (timeline->slices.empty()) warn_of_idle(o, diagnostics);
  return errors.judge(exit_code_for(timeline->summary), diagnostics);
}

}  // namespace

RunVerb add_timeline(CLI::App& app) {
  auto o = std::make_shared<TimelineText>();
  CLI::App* verb =
      app.add_subcommand("timeline", "functions as slices in time, for Perfetto and other viewers");
  add_input_options(*verb, o->input);
  add_decode_options(*verb, o->choice, o->input.capture);
  const std::string output = "Output";
  verb->add_option("-o,--output", o->output,
                   "file to write (default: asof.pftrace, or as --format says); its suffix picks the format")
      ->group(output);
  verb->add_option("--html", o->html, "write a page that any browser opens, as -o with .html")
      ->type_name("FILE")
      ->group(output);
  verb->add_option("--format", o->format, "perfetto, chrome, html, csv, jsonl or sqlite")
      ->check(CLI::IsMember({"perfetto", "chrome", "html", "csv", "jsonl", "sqlite"}))
      ->group(output);
  verb->add_flag("--gzip", o->gzip, "compress; also by a .gz behind the suffix")->group(output);
  verb->add_option("--max-slices", o->max_slices, "fold the shortest beyond so many; 0: keep all")
      ->transform(not_negative())
      ->capture_default_str()
      ->group(output);
  verb->add_option("--tracks", o->tracks, "cpu, thread or both")->capture_default_str()->group(output);
  verb->add_option("--detail", o->detail,
                   "insn: also straight runs, instructions and source lines, within --time; calls: none")
      ->check(CLI::IsMember({"insn", "calls"}))
      ->group(output);
  verb->add_flag(
          "--cycles", o->cycles,
          "in a page: core cycles and IPC of functions, blocks and calls, with bounds; decodes once more")
      ->group(output);
  verb->add_option(
          "--shard", o->shard,
          "of a block stream, CSV and JSON lines: part K (from 0) of N; joined, they are what one run writes")
      ->type_name("K/N");
  add_source_options(*verb, o->input, o->source);
  add_task_options(*verb, o->tasks);
  add_time_option(*verb, o->time);
  return [o] { return run_timeline_verb(*o); };
}

}  // namespace asof
