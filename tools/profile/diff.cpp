// asof diff: two captures, or two stretches of one: time, instructions and frequency of each function, each
// call (caller and callee) or each path from the outermost caller down.
#include <fmt/format.h>

#include <algorithm>

#include "tools/cli/flow_found.h"
#include "tools/cli/progress.h"
#include "tools/cli/verbs.h"
#include "tools/output/csv.h"
#include "tools/output/format.h"
#include "tools/output/json.h"
#include "tools/output/output.h"
#include "tools/profile/folded_stacks.h"
#include "tools/profile/function_costs.h"

namespace asof {
namespace {

struct DiffText {
  InputOptions input;
  DecodeChoice choice;
  std::string first, second, output, by = "ns", format = "text", rows = "functions";
  std::vector<std::string> times;
  uint64_t limit = 30;
};

// Function and file; caller and callee; or path and nothing.
using Name = std::pair<std::string, std::string>;
using Costs = std::map<Name, Cost>;

struct Row {
  Name name;
  Cost a, b;
};

uint64_t value_of(const Cost& c, const std::string& by) {
  if (by == "instructions") return c.instructions;
  return by == "ns" ? c.ns : c.calls;
}

Result<Costs> functions_of(const Capture& capture, TimeBounds time, const DiffText& o,
                           Diagnostics& diagnostics, ExitCode& status) {
  PipelineOptions options = o.choice.pipeline;
  options.time = time;
  FunctionCosts costs(capture, time);
  ProgressBar bar(o.choice.progress, "diff");
  FlowFound found(capture, o.choice, time);
  FlowWatch watch(costs, found);
  const auto done = run_pipeline(capture, options, ChunkOrder::kByStream, watch, bar.callback());
  if (!done) return std::unexpected(done.error());
  status = std::max(status, found.status(diagnostics, capture.path));
  return costs.costs();
}

// Everything is decoded, because callers can have started before the requested time.
Result<Costs> stacks_of(const Capture& capture, TimeBounds time, const DiffText& o, Diagnostics& diagnostics,
                        ExitCode& status) {
  TimelineOptions options;
  options.pipeline = o.choice.pipeline;
  options.thread_tracks = !has_cpu_streams(capture);
  options.cpu_tracks = !options.thread_tracks;
  options.counted = time;
  FlowErrors errors(capture, o.choice, time);
  errors.watch(options);
  FoldedStacks stacks({.untraced = false, .time = time});
  ProgressBar bar(o.choice.progress, "diff");
  const auto summary = run_timeline(capture, options, stacks, bar.callback());
  if (!summary) return std::unexpected(summary.error());
  errors.tell(diagnostics, capture.path);
  status = std::max(status, errors.judge(exit_code_for(*summary), diagnostics));
  if (const std::string note = stacks.shallow_note(); !note.empty()) diagnostics.note(note);
  const bool has_time = summary->clock == TimelineSummary::Clock::kNanoseconds;
  const auto& names = stacks.names();
  Costs costs;
  stacks.visit([&](std::span<const uint32_t> stack, const Cost& own) {
    Name name;
    if (o.rows == "calls") {
      name = {stack.size() > 1 ? names[stack[stack.size() - 2]] : "", names[stack.back()]};
    } else {
      for (const uint32_t n : stack) (name.first += name.first.empty() ? "" : ";") += names[n];
    }
    costs[name] += {has_time ? own.ns : 0, own.instructions, own.calls};
  });
  return costs;
}

// What one side of the comparison executed; `status` shows if that is nothing. None: an error was printed.
std::optional<Costs> measure(const Capture& capture, const std::string& range, const DiffText& o,
                             Diagnostics& diagnostics, ExitCode& status) {
  TimeBounds time;
  if (!take_time(range, capture, diagnostics, time)) {
    status = kExitUsage;
    return std::nullopt;
  }
  auto costs = o.rows == "functions" ? functions_of(capture, time, o, diagnostics, status)
                                     : stacks_of(capture, time, o, diagnostics, status);
  if (costs) return std::move(*costs);
  diagnostics.error(costs.error());
  status = kExitInput;
  return std::nullopt;
}

// Largest change first; then by name.
std::vector<Row> join(const Costs& a, const Costs& b, const std::string& by) {
  std::map<Name, Row> rows;
  for (const auto& [name, cost] : a) rows[name].a = cost;
  for (const auto& [name, cost] : b) rows[name].b = cost;
  std::vector<Row> out;
  for (auto& [name, row] : rows) {
    row.name = name;
    out.push_back(row);
  }
  const auto change = [&](const Row& r) {
    const uint64_t x = value_of(r.a, by), y = value_of(r.b, by);
    return x > y ? x - y : y - x;
  };
  std::ranges::stable_sort(out, [&](const Row& x, const Row& y) { return change(x) > change(y); });
  return out;
}

std::string change_text(uint64_t a, uint64_t b) {
  return b >= a ? "+" + format_count(b - a) : "-" + format_count(a - b);
}

std::string line_of(const Cost& a, const Cost& b, const std::string& name) {
  std::string line;
  for (const auto& [x, y] : {std::pair{a.ns, b.ns}, {a.instructions, b.instructions}, {a.calls, b.calls}})
    line += fmt::format("{:>14} {:>14} {:>14} ", format_count(x), format_count(y), change_text(x, y));
  return line + " " + name + "\n";
}

// The frequency: a function is entered at its beginning; what is on a stack was called.
const char* frequency(const DiffText& o) { return o.rows == "functions" ? "entries" : "calls"; }

std::string name_text(const Name& name, const std::string& rows) {
  if (rows == "paths") return name.first;
  if (rows == "calls") return (name.first.empty() ? "(not known)" : name.first) + " > " + name.second;
  return name.first.empty() ? "no symbol" : fmt::format("{} ({})", name.first, name.second);
}

void print_text(const std::vector<Row>& rows, const DiffText& o, Output& out) {
  std::string head;
  for (const char* what : {"ns", "instructions", frequency(o)})
    head +=
        fmt::format("{:>14} {:>14} {:>14} ", fmt::format("A {}", what), fmt::format("B {}", what), "B - A");
  out.write(fmt::format("{} {}\n", head, o.rows.substr(0, o.rows.size() - 1)));
  Cost a, b;
  uint64_t shown = 0;
  for (const Row& r : rows) {
    a += r.a;
    b += r.b;
    if (o.limit != 0 && shown == o.limit) continue;
    ++shown;
    out.write(line_of(r.a, r.b, name_text(r.name, o.rows)));
  }
  if (shown != rows.size()) out.write(fmt::format("and {} more; --limit 0 shows all\n", rows.size() - shown));
  out.write(line_of(a, b, fmt::format("all {} {}", rows.size(), o.rows)));
}

void print_rows(const std::vector<Row>& rows, const DiffText& o, Output& out) {
  const bool paths = o.rows == "paths", functions = o.rows == "functions";
  const char* first = paths ? "path" : functions ? "function" : "caller";
  const char* second = functions ? "dso" : "callee";
  const std::string often = frequency(o);
  if (o.format == "csv") {
    out.write(fmt::format("{}{},a_ns,b_ns,a_instructions,b_instructions,a_{},b_{}\n", first,
                          paths ? "" : fmt::format(",{}", second), often, often));
  }
  for (const Row& r : rows) {
    if (o.format == "csv") {
      const std::string more = paths ? "" : "," + csv_field(r.name.second);
      out.write(fmt::format("{}{},{},{},{},{},{},{}\n", csv_field(r.name.first), more, r.a.ns, r.b.ns,
                            r.a.instructions, r.b.instructions, r.a.calls, r.b.calls));
      continue;
    }
    JsonLine line(o.rows.substr(0, o.rows.size() - 1));
    line.text(first, r.name.first);
    if (!paths) line.text(second, r.name.second);
    line.number("a_ns", r.a.ns).number("b_ns", r.b.ns);
    line.number("a_instructions", r.a.instructions).number("b_instructions", r.b.instructions);
    line.number("a_" + often, r.a.calls).number("b_" + often, r.b.calls);
    out.write(line.end());
  }
}

ExitCode run_diff(DiffText& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  // -i is the first capture.
  if (o.input.input != InputOptions().input) {
    if (!o.first.empty() && !o.second.empty()) {
      diagnostics.error(
          {Code::kBadOption, "", Error::kNoOffset, "three captures", "give A and B, or -i A and B"});
      return kExitUsage;
    }
    o.second = o.first;
    o.first = o.input.input;
  }
  if (o.first.empty()) o.first = o.input.input;
  const bool one = o.second.empty();
  if (o.times.size() > 2 || (one && o.times.size() != 2)) {
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset, "two captures, or one and --time twice",
                       "for instance: asof diff perf.data --time 0%-50% --time 50%-100%"});
    return kExitUsage;
  }
  o.times.resize(2, o.times.empty() ? std::string() : o.times.front());
  o.input.input = o.first;
  auto capture = open_for_verb(o.input, diagnostics, ShownNotices::kAll, &o.choice);
  if (!capture) return kExitInput;
  ExitCode status = kExitOk;
  const auto a = measure(*capture, o.times[0], o, diagnostics, status);
  if (!a) return status;
  if (!one) {
    o.input.input = o.second;
    capture = open_for_verb(o.input, diagnostics, ShownNotices::kAll, &o.choice);
    if (!capture) return kExitInput;
  }
  const auto b = measure(*capture, o.times[1], o, diagnostics, status);
  if (!b) return status;
  auto out = Output::open(o.output);
  if (!out) {
    diagnostics.error(out.error());
    return kExitInput;
  }
  const std::vector<Row> rows = join(*a, *b, o.by);
  o.format == "text" ? print_text(rows, o, *out) : print_rows(rows, o, *out);
  if (!flush_output(*out, diagnostics)) return kExitInput;
  return interrupted() ? kExitInterrupted : status;
}

}  // namespace

RunVerb add_diff(CLI::App& app) {
  auto o = std::make_shared<DiffText>();
  CLI::App* verb = app.add_subcommand("diff", "two captures, or two times of one, by function, call or path");
  verb->add_option("A", o->first, "capture; also by -i (default: perf.data)");
  verb->add_option("B", o->second, "capture to compare with; without it, A at another time");
  add_input_options(*verb, o->input, false);
  add_decode_options(*verb, o->choice, o->input.capture);
  const std::string output = "Output";
  add_output_option(*verb, o->output);
  verb->add_option("--rows", o->rows, "functions; calls (caller and callee); paths (whole stacks)")
      ->check(CLI::IsMember({"functions", "calls", "paths"}))
      ->capture_default_str()
      ->group(output);
  verb->add_option("--by", o->by, "order: largest change first; entries or calls: how often")
      ->check(CLI::IsMember({"ns", "instructions", "entries", "calls"}))
      ->capture_default_str()
      ->group(output);
  verb->add_option("--format", o->format, "text, csv or jsonl")
      ->check(CLI::IsMember({"text", "csv", "jsonl"}))
      ->capture_default_str()
      ->group(output);
  verb->add_option("--limit", o->limit, "rows in the text; 0: all")
      ->transform(not_negative())
      ->capture_default_str()
      ->group(output);
  verb->add_option("--time", o->times,
                   "only from A to B, as in decode; given twice: of the first, of the second")
      ->allow_extra_args(false)
      ->group("Filters");
  return [o] { return run_diff(*o); };
}

}  // namespace asof
