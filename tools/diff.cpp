// asof diff: two captures, or two stretches of one, function by function: time, instructions, entries.
#include <fmt/format.h>

#include <algorithm>

#include "tools/csv.h"
#include "tools/format.h"
#include "tools/function_costs.h"
#include "tools/json.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/verbs.h"

namespace asof {
namespace {

struct DiffText {
  InputOptions input;
  DecodeChoice choice;
  std::string first, second, output, by = "ns", format = "text";
  std::vector<std::string> times;
  uint64_t limit = 30;
};

struct Row {
  FunctionCosts::Name name;
  FunctionCost a, b;
};

uint64_t value_of(const FunctionCost& c, const std::string& by) {
  if (by == "instructions") return c.instructions;
  return by == "entries" ? c.entries : c.ns;
}

// What one side of the comparison executed. Nothing: an error was printed.
std::optional<std::map<FunctionCosts::Name, FunctionCost>> measure(const Capture& capture,
                                                                   const std::string& range, DiffText& o,
                                                                   Diagnostics& diagnostics,
                                                                   ExitCode& status) {
  PipelineOptions options = o.choice.pipeline;
  if (!range.empty()) {
    const auto time = parse_time_range(range, whole_time(capture));
    if (!time) {
      diagnostics.error(time.error());
      status = kExitUsage;
      return std::nullopt;
    }
    options.time = *time;
  }
  FunctionCosts costs(capture, options.time);
  ProgressBar bar(o.choice.progress, "diff");
  const auto done = run_pipeline(capture, options, ChunkOrder::kByStream, costs, bar.callback());
  if (done) return costs.costs();
  diagnostics.error(done.error());
  status = kExitInput;
  return std::nullopt;
}

// Largest change first; then by name.
std::vector<Row> join(const std::map<FunctionCosts::Name, FunctionCost>& a,
                      const std::map<FunctionCosts::Name, FunctionCost>& b, const std::string& by) {
  std::map<FunctionCosts::Name, Row> rows;
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

std::string line_of(const FunctionCost& a, const FunctionCost& b, const std::string& name) {
  std::string line;
  for (const auto& [x, y] : {std::pair{a.ns, b.ns}, {a.instructions, b.instructions}, {a.entries, b.entries}})
    line += fmt::format("{:>14} {:>14} {:>14} ", format_count(x), format_count(y), change_text(x, y));
  return line + " " + name + "\n";
}

void print_text(const std::vector<Row>& rows, uint64_t limit, Output& out) {
  std::string head;
  for (const char* what : {"ns", "instructions", "entries"})
    head +=
        fmt::format("{:>14} {:>14} {:>14} ", fmt::format("A {}", what), fmt::format("B {}", what), "B - A");
  out.write(head + " function\n");
  FunctionCost a, b;
  uint64_t shown = 0;
  for (const Row& r : rows) {
    a += r.a;
    b += r.b;
    if (limit != 0 && shown == limit) continue;
    ++shown;
    const std::string name =
        r.name.first.empty() ? "no symbol" : fmt::format("{} ({})", r.name.first, r.name.second);
    out.write(line_of(r.a, r.b, name));
  }
  if (shown != rows.size()) out.write(fmt::format("and {} more; --limit 0 shows all\n", rows.size() - shown));
  out.write(line_of(a, b, fmt::format("all {} functions", rows.size())));
}

void print_rows(const std::vector<Row>& rows, const std::string& format, Output& out) {
  const bool csv = format == "csv";
  if (csv) out.write("function,dso,a_ns,b_ns,a_instructions,b_instructions,a_entries,b_entries\n");
  for (const Row& r : rows) {
    if (csv) {
      out.write(fmt::format("{},{},{},{},{},{},{},{}\n", csv_field(r.name.first), csv_field(r.name.second),
                            r.a.ns, r.b.ns, r.a.instructions, r.b.instructions, r.a.entries, r.b.entries));
      continue;
    }
    JsonLine line("function");
    line.text("function", r.name.first).text("dso", r.name.second);
    line.number("a_ns", r.a.ns).number("b_ns", r.b.ns);
    line.number("a_instructions", r.a.instructions).number("b_instructions", r.b.instructions);
    line.number("a_entries", r.a.entries).number("b_entries", r.b.entries);
    out.write(line.end());
  }
}

ExitCode run_diff(DiffText& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  const bool one = o.second.empty();
  if (o.times.size() > 2 || (one && o.times.size() != 2)) {
    diagnostics.error({"E-FILE-091", "", Error::kNoOffset, "two captures, or one and --time twice",
                       "for instance: asof diff perf.data --time 0%-50% --time 50%-100%"});
    return kExitUsage;
  }
  o.times.resize(2, o.times.empty() ? std::string() : o.times.front());
  o.input.input = o.first;
  auto capture = open_for_verb(o.input, diagnostics);
  if (!capture) return kExitInput;
  ExitCode status = kExitOk;
  const auto a = measure(*capture, o.times[0], o, diagnostics, status);
  if (!a) return status;
  if (!one) {
    o.input.input = o.second;
    capture = open_for_verb(o.input, diagnostics);
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
  o.format == "text" ? print_text(rows, o.limit, *out) : print_rows(rows, o.format, *out);
  if (!flush_output(*out, o.output, diagnostics)) return kExitInput;
  return interrupted() ? kExitInterrupted : kExitOk;
}

}  // namespace

RunVerb add_diff(CLI::App& app) {
  auto o = std::make_shared<DiffText>();
  CLI::App* verb = app.add_subcommand("diff", "two captures, or two times of one, function by function");
  verb->add_option("A", o->first, "capture")->required();
  verb->add_option("B", o->second, "capture to compare with; without it, A at another time");
  add_input_options(*verb, o->input, false);
  add_decode_options(*verb, o->choice);
  const std::string output = "Output";
  verb->add_option("-o,--output", o->output, "file to write (default: standard output)")->group(output);
  verb->add_option("--by", o->by, "order: largest change of ns, instructions or entries first")
      ->check(CLI::IsMember({"ns", "instructions", "entries"}))
      ->capture_default_str()
      ->group(output);
  verb->add_option("--format", o->format, "text, csv or jsonl")
      ->check(CLI::IsMember({"text", "csv", "jsonl"}))
      ->capture_default_str()
      ->group(output);
  verb->add_option("--limit", o->limit, "functions in the text; 0: all")
      ->capture_default_str()
      ->group(output);
  verb->add_option("--time", o->times,
                   "only from A to B, as in decode; given twice: of the first, of the second")
      ->allow_extra_args(false)
      ->group("Filters");
  return [o] { return run_diff(*o); };
}

}  // namespace asof
