// asof report: one screen about a capture: what is in it, how much was decoded, what was lost and why, what
// happened to the text, and where the time went.
#include <fmt/format.h>
#include <tbb/enumerable_thread_specific.h>

#include <algorithm>
#include <atomic>

#include "tools/cli/decode_run.h"
#include "tools/cli/task_options.h"
#include "tools/cli/verbs.h"
#include "tools/output/chunk_window.h"
#include "tools/output/coverage.h"
#include "tools/output/format.h"
#include "tools/output/json.h"
#include "tools/output/output.h"
#include "tools/output/tally.h"
#include "tools/verbs/hot_code.h"
#include "tools/verbs/report_cycles.h"
#include "tools/verbs/report_facts.h"

namespace asof {
namespace {

class ReportConsumer : public ChunkConsumer {
 public:
  // `by_instruction`: a block may have parts of several lines or functions.
  // `cycles`: to be filled; or nullptr.
  ReportConsumer(const Capture& capture, const DecodeChoice& choice, const TaskChoice& tasks,
                 bool by_instruction, CycleCosts* cycles)
      : capture_(capture),
        tasks_(tasks),
        coverage_(capture, choice.pipeline),
        max_errors_(choice.max_errors),
        time_(choice.pipeline.time),
        cycles_(cycles),
        counters_([by_instruction] { return BlockCounter(by_instruction); }) {}

  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream& stream) override {
    auto counted = std::make_unique<Counted>();
    counted->part = chunk_chosen(chunk, stream, capture_, tasks_, time_);
    const Chunk& wanted = counted->part ? *counted->part : chunk;
    count_steps(wanted, *counted);
    counted->decoded = tasks_.any() ? instructions_within(chunk, time_) : counted->ips.count;
    counters_.local().add(wanted);
    return counted;
  }

  void deliver(Chunk& chunk, const Stream&, Prepared* prepared) override {
    const auto& report = static_cast<const Counted&>(*prepared);
    const Chunk& wanted = report.part ? *report.part : chunk;
    coverage_.add(chunk, report.decoded);
    instructions += report.ips.count;
    if (coverage_.errors() > max_errors_) stopped_ = true;
    branches += report.branches;
    for (size_t c = 0; c < by_confidence.size(); ++c) by_confidence[c] += report.by_confidence[c];
    if (cycles_ != nullptr) cycles_->take(wanted);
    for (const Event& e : wanted.events) overflows += e.kind == EventKind::kOverflow;
  }

  bool delivers_steps() const override { return cycles_ != nullptr; }

  // Called by all workers.
  bool stopped() const override { return interrupted() || stopped_; }

  // Most executed first.
  std::vector<std::pair<std::string, uint64_t>> hottest(const Capture& capture, HotBy by, bool inlined,
                                                        SharedSourceLines& lines) {
    HotBlocks all;
    for (BlockCounter& counter : counters_) counter.add_to(all);
    return hottest_by(all, capture, by, inlined, lines);
  }

  Coverage& coverage() { return coverage_; }
  uint64_t instructions = 0, branches = 0, overflows = 0;  // of the tasks that were chosen
  std::array<uint64_t, 5> by_confidence{};

 private:
  struct Counted : Tally {
    std::optional<Chunk> part;  // what was asked for, if the chunk reaches beyond it
    uint64_t decoded = 0;       // instructions of all tasks
  };
  static uint64_t instructions_within(const Chunk& chunk, const TimeBounds& time) {
    const auto part = chunk_within(chunk, time);
    Tally tally;
    count_steps(part ? *part : chunk, tally);
    return tally.ips.count;
  }

  const Capture& capture_;
  const TaskChoice& tasks_;
  Coverage coverage_;
  uint64_t max_errors_;
  TimeBounds time_;
  CycleCosts* cycles_;
  std::atomic<bool> stopped_ = false;
  tbb::enumerable_thread_specific<BlockCounter> counters_;
};

struct ReportOptions {
  InputOptions input;
  DecodeChoice choice;
  TaskText tasks;
  std::string format = "text", time, sort = "symbol";
  size_t top = 10;  // 0: all
  bool inlined = false, cycles = false;

  HotBy by() const {
    return sort == "dso" ? HotBy::kFile : sort == "srcline" ? HotBy::kLine : HotBy::kFunction;
  }
  // A straight run may go on into another function.
  bool by_instruction() const { return by() != HotBy::kFile; }
};

void print_flow(const Capture& c, ReportConsumer& consumer, const ReportOptions& o, SharedSourceLines& lines,
                Output& out) {
  std::string confidence;
  for (size_t i = 0; i < consumer.by_confidence.size(); ++i) {
    if (consumer.by_confidence[i] == 0) continue;
    confidence +=
        fmt::format("{}{} {}", confidence.empty() ? "" : ", ", confidence_name(static_cast<Confidence>(i)),
                    format_count(consumer.by_confidence[i]));
  }
  put_line(out, fmt::format("flow: {} branches; text of the instructions: {}",
                            format_count(consumer.branches), confidence.empty() ? "none" : confidence));
  const auto hottest = consumer.hottest(c, o.by(), o.inlined, lines);
  struct Heading {
    const char *what, *column;
  };
  static constexpr Heading kHeadings[] = {
      {"functions", "function (file)"}, {"files", "file"}, {"lines", "line"}};
  const Heading& heading = kHeadings[static_cast<size_t>(o.by())];
  // Where decoding was stopped, other threads were ahead: what they decoded is counted here, and not above.
  uint64_t counted = 0;
  for (const auto& [name, count] : hottest) counted += count;
  if (!hottest.empty())
    out.write(fmt::format(
        "hottest {}{}:\n    share    instructions {}\n", heading.what,
        counted == consumer.instructions
            ? ""
            : fmt::format(" of {} instructions, with some that were decoded ahead", format_count(counted)),
        heading.column));
  const double all = static_cast<double>(std::max<uint64_t>(counted, 1));
  size_t shown = 0;
  for (const auto& [name, count] : hottest) {
    if (o.top != 0 && shown++ == o.top) {
      out.write(fmt::format("  and {} more; --top 0 shows all\n", format_count(hottest.size() - o.top)));
      break;
    }
    out.write(fmt::format("  {:5.1f} % {:>15} {}\n", 100 * static_cast<double>(count) / all,
                          format_count(count), name));
  }
}

// One object for each fact; the last is what the last line of the text says.
void print_json(const Capture& c, ReportConsumer& consumer, const ReportOptions& o, SharedSourceLines& lines,
                Output& out) {
  const Coverage& coverage = consumer.coverage();
  out.write(JsonLine("capture")
                .text("path", c.path)
                .text("kind", c.kind)
                .text("machine", c.machine)
                .text("command_line", c.command_line)
                .number("streams", c.streams.size())
                .end());
  for (const auto& [type, count] : c.record_counts)
    out.write(JsonLine("records").text("record", record_type_name(type)).number("count", count).end());
  for (size_t i = 0; i < consumer.by_confidence.size(); ++i)
    out.write(JsonLine("confidence")
                  .text("name", confidence_name(static_cast<Confidence>(i)))
                  .number("instructions", consumer.by_confidence[i])
                  .end());
  size_t shown = 0;
  for (const auto& [name, count] : consumer.hottest(c, o.by(), o.inlined, lines)) {
    if (o.top != 0 && shown++ == o.top) break;
    out.write(JsonLine("hot").text("name", name).number("instructions", count).end());
  }
  for (const auto& [code, cause] : coverage.causes())
    out.write(JsonLine("cause")
                  .text("code", code_text(code))
                  .number("count", cause.count)
                  .number("bytes", cause.bytes)
                  .number("ns", cause.time)
                  .text("first", cause.first)
                  .end());
  if (const Coverage::Cause& starts = coverage.ring_starts(); starts.count != 0)
    out.write(JsonLine("ring_start").number("count", starts.count).number("bytes", starts.bytes).end());
  for (const Notice& n : c.notices) {
    if (n.severity == Notice::Severity::kInfo) continue;
    JsonLine line("notice");
    line.text("code", code_text(n.code)).text("where", n.where);
    if (n.offset != Error::kNoOffset) line.number("offset", n.offset);
    out.write(line.text("reason", n.reason).number("count", n.count).end());
  }
  out.write(
      JsonLine("coverage")
          .text("percent", fmt::format("{:.2f}", coverage.percent()))
          .text("percent_of_time", coverage.has_time() ? fmt::format("{:.2f}", coverage.time_percent()) : "")
          .text("percent_of_bytes", fmt::format("{:.2f}", coverage.bytes_percent()))
          .number("instructions", coverage.instructions())
          .number("branches", consumer.branches)
          .number("gaps", coverage.gaps())
          .number("errors", coverage.errors())
          .text("line", coverage.line())
          .end());
}

ExitCode run_report(ReportOptions& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  const auto tasks = read_tasks(o.tasks, o.choice.pipeline);
  if (!tasks || (tasks->any() && o.cycles)) {
    diagnostics.error(!tasks ? tasks.error()
                             : Error{Code::kBadOption, "", Error::kNoOffset,
                                     "--cycles counts what all tasks ran between two counts",
                                     "leave out --pid, --tid and --comm"});
    return kExitUsage;
  }
  const auto capture =
      open_for_verb(o.input, diagnostics, shown_or_all(ShownNotices::kNone, o.input), &o.choice);
  if (!capture) return kExitInput;
  warn_of_tasks(*capture, *tasks, diagnostics);
  if (!take_time(o.time, *capture, diagnostics, o.choice.pipeline.time)) return kExitUsage;
  std::optional<CycleCosts> cycles;
  if (o.cycles) cycles.emplace(*capture);
  o.choice.pipeline.decode.cycles = o.cycles;
  ReportConsumer consumer(*capture, o.choice, *tasks, o.by_instruction(), cycles ? &*cycles : nullptr);
  if (const auto done = run_with_progress(consumer, *capture, o.choice, "report", ChunkOrder::kByStream);
      !done) {
    diagnostics.error(done.error());
    return kExitInput;
  }
  tell_stopped(consumer.coverage(), o.choice);
  if (tasks->any()) {
    consumer.coverage().selected(fmt::format("{} of them selected", format_count(consumer.instructions)),
                                 consumer.instructions != 0);
    if (consumer.instructions == 0 && !interrupted()) warn_of_idle_tasks(*tasks, diagnostics);
  }
  if (cycles) cycles->finish();
  if (cycles && !cycles->any()) diagnostics.warn(no_cycles(*capture));
  auto out = Output::open("-");
  if (!out) return kExitInput;
  SharedSourceLines lines(*capture);
  if (o.format == "jsonl") {
    print_json(*capture, consumer, o, lines, *out);
    if (cycles) print_cycles_json(*cycles, o.top, *out);
    for (const Notice& n : lines.take_notices()) diagnostics.notice(n);
    return exit_code_for(consumer.coverage(), o.choice);
  }
  print_capture(*capture, *out);
  print_text_facts(*capture, o.choice.pipeline.time, *out);
  print_flow(*capture, consumer, o, lines, *out);
  if (cycles) print_cycles(*cycles, o.top, *out);
  print_open_matters(*capture, *out);
  print_stream_losses(*capture, o.choice.pipeline.time, *out);
  print_causes(*capture, consumer.coverage(), *out);
  put_line(*out, consumer.coverage().line());
  for (const Notice& n : lines.take_notices()) diagnostics.notice(n);
  return exit_code_for(consumer.coverage(), o.choice);
}

}  // namespace

RunVerb add_report(CLI::App& app) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* verb = app.add_subcommand("report", "coverage, losses, errors by cause, text, hottest functions");
  add_input_options(*verb, options->input);
  add_decode_options(*verb, options->choice, options->input.capture);
  const std::string output = "Output";
  verb->add_option("--format", options->format, "text or jsonl: one JSON object a line")
      ->check(CLI::IsMember({"text", "jsonl"}))
      ->group(output);
  verb->add_option("--top", options->top, "how many of the hottest; 0: all")
      ->transform(not_negative())
      ->capture_default_str()
      ->group(output);
  verb->add_option("--sort", options->sort, "the hottest what: symbol (functions), dso (files) or srcline")
      ->check(CLI::IsMember({"symbol", "dso", "srcline"}))
      ->capture_default_str()
      ->group(output);
  verb->add_flag("--inline", options->inlined, "functions that the compiler inlined count for themselves")
      ->group(output);
  verb->add_flag("--cycles", options->cycles,
                 "core cycles and IPC of functions, blocks and calls, with bounds (CYC packets, cycacc)")
      ->group(output);
  add_debuginfod_option(*verb, options->input);
  add_task_options(*verb, options->tasks);
  add_time_option(*verb, options->time);
  return [options] { return run_report(*options); };
}

}  // namespace asof
