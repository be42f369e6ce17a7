#include "tools/query/schema.h"

#include <fmt/format.h>

#include <array>

namespace asof {
namespace {

// Units: times are nanoseconds of perf's clock (numbers of instructions where a capture has no time), addresses
// are signed.
constexpr ColumnMeaning kTracks[] = {{"id", "number, from 0"},
                                     {"kind", "cpu or thread"},
                                     {"cpu", "of a CPU's track, or of an idle thread's; else -1"},
                                     {"pid", "process of a thread's track; -1: unknown"},
                                     {"tid", "thread of a thread's track; -1: unknown"},
                                     {"name", "CPU 0, worker 4711"}};
constexpr ColumnMeaning kFunctions[] = {
    {"id", "the same whatever part of the capture is decoded"},
    {"name", "symbol, demangled, or the address of code without one"},
    {"kind", "kernel, module, user, bpf, trampoline, slot (of a probe), unnamed, untraced"},
    {"dso", "file or module it belongs to"},
    {"begin", "first address"},
    {"size", "bytes"},
    {"versions", "of its text: 1 if it never changed"},
    {"bpf_id", "id of the BPF program; 0: none, or unknown"},
    {"bpf_tag", "tag of the BPF program"},
    {"linkage_name", "symbol as its file has it"}};
constexpr ColumnMeaning kCalls[] = {
    {"id", "number, from 1; of one CPU in order of beginning where nothing is missing"},
    {"parent", "call around it on the same track; 0: none known"},
    {"track", "tracks.id"},
    {"function", "functions.id"},
    {"begin", "time; of the last timing packet"},
    {"end", "time"},
    {"instructions", "executed, with those of callees"},
    {"self_instructions",
     "executed in itself; of a straight run that goes on into another function, in the first"},
    {"entry", "address it was entered at"},
    {"call_site", "address of the call; 0: unknown"},
    {"flags",
     "words: async, syscall, tail, emulated, began-before, across-gap, end-unknown, skipped, resumed, "
     "switched-out, "
     "unbalanced, signal, clipped-begin, clipped-end"},
    {"version", "of its function's text when it began, from 1"},
    {"source", "where the bytes at its entry came from"},
    {"confidence",
     "the worst of its own instructions: certain, proved, equivalent, ambiguous, contradiction"},
    {"cpu", "where it began"},
    {"depth", "calls around it; 0: outermost"}};
constexpr ColumnMeaning kRuns[] = {
    {"cpu", "CPU"},
    {"pid", "process"},
    {"tid", "thread"},
    {"comm", "its name then"},
    {"begin", "time it came, by the switch records"},
    {"end", "time it went"},
    {"flags",
     "clipped-begin, clipped-end: cut by --time; preempted: it could have run on "
     "when it went"}};
constexpr ColumnMeaning kGaps[] = {{"cpu", "CPU; -1: trace of one thread"},
                                   {"tid", "thread that ran"},
                                   {"begin", "time the flow was lost"},
                                   {"end", "time it was found again"},
                                   {"family", "LOST, DATA, FLOW, TEXT"},
                                   {"code", "stable code, E-FLOW-001: see asof errors"},
                                   {"reason", "what happened, in words"},
                                   {"ip", "address where the flow was lost; 0: unknown"},
                                   {"resume_ip", "address where it went on; 0: unknown"},
                                   {"bytes", "of trace that were passed over"},
                                   {"file_offset", "of the first of them"},
                                   {"flags", "clipped-begin, clipped-end: cut by --time"}};
constexpr ColumnMeaning kEvents[] = {{"cpu", "CPU; -1: trace of one thread"},
                                     {"tid", "thread that ran"},
                                     {"time", "time"},
                                     {"kind", "ptwrite, power, transaction, loss of time and others"},
                                     {"ip", "address, where the event has one"},
                                     {"a", "first value of the event"},
                                     {"b", "second value"}};
constexpr ColumnMeaning kPokes[] = {
    {"id", "number of the change of text, from 1, as in `asof text`"},
    {"time", "time of its record"},
    {"address", "first address of the change"},
    {"symbol", "function and offset"},
    {"mechanism", "jump_label, ftrace, kprobe, static_call, bpf, ..., unknown"},
    {"action", "nop to jump, ..."},
    {"bytes", "old and new bytes"},
    {"begin", "time of the first visit of its breakpoint, or of the record"},
    {"end", "time of the last visit of its breakpoint, or of the record"},
    {"breakpoints", "visits of its breakpoint by all CPUs; of an armed kprobe all until it is disarmed"}};
constexpr ColumnMeaning kVisits[] = {
    {"poke", "pokes.id"},
    {"cpu", "CPU that ran code at the address"},
    {"last_old", "its last run of the old text, by the last timing packet before; NULL: none"},
    {"first_new", "its first run of the new text, by the last timing packet before; NULL: none"},
    {"breakpoints", "its visits of the breakpoint"}};
constexpr ColumnMeaning kLives[] = {
    {"kind", "bpf, module, out of line, snapshot (copy of memory)"},
    {"name", "of the program, module or symbol"},
    {"address", "first address"},
    {"size", "bytes; of a snapshot those from its first to its last, with what was not copied between them"},
    {"begin",
     "it was not there before: the time it came, where a record says that; NULL: before the capture, or "
     "unknown"},
    {"end",
     "it was not there later: the time it went, where a record says that; NULL: not within the capture"},
    {"bpf_id", "id of the BPF program"},
    {"bpf_tag", "its tag"},
    {"seen_from", "it was certainly there from here on"},
    {"seen_until", "up to here"}};
constexpr ColumnMeaning kCounters[] = {
    {"kind",
     "text version (changes so far), instructions/us, coverage (percent of traced time that was decoded)"},
    {"cpu", "CPU; -1: all"},
    {"time", "from here to the next point"},
    {"value", "value"}};
constexpr ColumnMeaning kVersions[] = {
    {"address", "first address of a piece of kernel text that changed"},
    {"size", "bytes"},
    {"version", "number at this address, from 1"},
    {"begin", "time; NULL: from the start"},
    {"end", "time; NULL: to the end"},
    {"bytes", "content; NULL: unknown"},
    {"source", "where the bytes came from: kcore, poke #17, ..."},
    {"symbol", "function"},
    {"certain", "1: then it was nothing else; 0: it may have been, for a part of the time"}};
constexpr ColumnMeaning kBlocks[] = {
    {"id", "number, from 1; of one CPU in the order they ran"},
    {"cpu", "CPU"},
    {"tid", "thread"},
    {"call", "calls.id, of the CPU's track; NULL: none known"},
    {"time_lo", "time in the trace before it"},
    {"time_hi", "time in the trace after it; NULL: unknown"},
    {"code", "code.id"},
    {"first", "id of its first instruction"},
    {"branch", "kind of the taken branch that ended it; NULL: not taken, or where it went is not known"},
    {"from_ip", "address of that branch"},
    {"to_ip", "where it went"},
    {"confidence", "certain, proved, equivalent, ambiguous, contradiction"}};
constexpr ColumnMeaning kCode[] = {{"id", "number of a straight run of code, from 0"},
                                   {"address", "first address"},
                                   {"symbol", "function it begins in"},
                                   {"size", "bytes"},
                                   {"instructions", "how many it has"},
                                   {"bytes", "content"},
                                   {"source", "where the bytes came from"}};
constexpr ColumnMeaning kCodeInstructions[] = {{"code", "code.id"},
                                               {"number", "in the run, from 0"},
                                               {"address", "address"},
                                               {"bytes", "hexadecimal"},
                                               {"text", "disassembly"},
                                               {"file", "source file; NULL: unknown"},
                                               {"line", "source line; NULL: unknown"},
                                               {"inlined",
                                                "inlined functions with their lines, innermost first; NULL "
                                                "without timeline --inline"}};
constexpr ColumnMeaning kFunctionCycles[] = {
    {"name", "function"},
    {"dso", "its file"},
    {"cycles_least", "core cycles that were certainly its own, without what it called"},
    {"cycles_most", "core cycles that may have been"},
    {"instructions_least", "executed in these cycles, certainly"},
    {"instructions_most", "executed in these cycles, at most"}};
constexpr ColumnMeaning kBlockCycles[] = {{"address", "of its first instruction"},
                                          {"symbol", "there"},
                                          {"size", "bytes"},
                                          {"instructions", "how many it has"},
                                          {"source", "where its bytes came from"},
                                          {"cycles_least", "core cycles of all its executions, certainly"},
                                          {"cycles_most", "core cycles that may have been"},
                                          {"instructions_least", "executed in these cycles, certainly"},
                                          {"instructions_most", "executed in these cycles, at most"}};
constexpr ColumnMeaning kCallCycles[] = {
    {"caller", "function"},
    {"callee", "function it called"},
    {"calls", "whose call and return lie in one stretch of counted trace"},
    {"cycles_least", "core cycles from call to return, with all that ran in between"},
    {"cycles_most", "the same, at most"}};
constexpr ColumnMeaning kCall[] = {
    {"name", "functions.name"}, {"kind", "functions.kind"}, {"track_name", "tracks.name"}};
constexpr ColumnMeaning kInstructions[] = {{"id", "number; of one CPU in the order they ran"},
                                           {"block", "blocks.id"},
                                           {"cpu", "CPU"},
                                           {"tid", "thread"},
                                           {"call", "calls.id, of the CPU's track"},
                                           {"time_lo", "time in the trace before its block"},
                                           {"time_hi", "time in the trace after its block"},
                                           {"address", "address"},
                                           {"bytes", "hexadecimal"},
                                           {"text", "disassembly"},
                                           {"file", "source file; NULL: unknown"},
                                           {"line", "source line; NULL: unknown"},
                                           {"inlined", "inlined functions; NULL without timeline --inline"},
                                           {"block_symbol", "function its block begins in"},
                                           {"source", "where its bytes came from"},
                                           {"confidence", "of its block"}};
constexpr ColumnMeaning kBranches[] = {{"block", "blocks.id that it ends"},
                                       {"cpu", "CPU"},
                                       {"tid", "thread"},
                                       {"call", "calls.id, of the CPU's track"},
                                       {"time_lo", "time in the trace before its block"},
                                       {"time_hi", "time in the trace after its block"},
                                       {"kind", "kind of branch"},
                                       {"from_ip", "address of the branch"},
                                       {"to_ip", "where it went"},
                                       {"confidence", "of its block"}};

constexpr TableMeaning kMeanings[] = {
    {"tracks", "CPUs and threads, which calls are listed by", false, kTracks},
    {"functions", "functions that ran", false, kFunctions},
    {"calls", "activations of functions: each once by CPU and once by thread", false, kCalls},
    {"call", "view: all columns of calls, and names", false, kCall},
    {"runs", "threads on CPUs", false, kRuns},
    {"gaps", "stretches in which the flow is not known", false, kGaps},
    {"events", "what else the trace tells", false, kEvents},
    {"pokes", "changes of kernel text that were recorded", false, kPokes},
    {"poke_visits", "who ran old and new code around a change", false, kVisits},
    {"text_versions", "kernel text that changed: what it was, and when", false, kVersions},
    {"text_lives", "code that came and went", false, kLives},
    {"counters", "values over time", false, kCounters},
    {"function_cycles", "core cycles by function, from the counts in the trace; filled when a query names it",
     false, kFunctionCycles},
    {"block_cycles", "core cycles by block of code; likewise", false, kBlockCycles},
    {"call_cycles", "core cycles of calls; likewise", false, kCallCycles},
    {"instructions", "view: every executed instruction", true, kInstructions},
    {"branches", "view: every taken branch", true, kBranches},
    {"blocks", "every executed straight run of code", true, kBlocks},
    {"code", "each different straight run once", true, kCode},
    {"code_instructions", "the instructions of code", true, kCodeInstructions}};

}  // namespace

std::span<const TableMeaning> table_meanings() { return kMeanings; }

std::string schema_text() {
  std::string out;
  for (const TableMeaning& t : kMeanings) {
    out += fmt::format("{}{}: {}{}\n", out.empty() ? "" : "\n", t.name, t.meaning,
                       t.detail ? " (decoded when it is named)" : "");
    for (const ColumnMeaning& c : t.columns) out += fmt::format("  {:<18} {}\n", c.name, c.meaning);
  }
  return out;
}

std::string schema_markdown() {
  std::string out =
      "# Tables of `asof query`\n\nMade from the table in `tools/query/schema.cpp` by `asof query --schema "
      "--markdown`; a "
      "test keeps both equal. Times are\nnanoseconds of perf's clock (numbers of instructions where a "
      "capture has no "
      "time), addresses are signed: `printf('%x', address)`.\n";
  for (const TableMeaning& t : kMeanings) {
    out += fmt::format("\n## {}\n\n{}{}.\n\n| column | meaning |\n|-|-|\n", t.name, t.meaning,
                       t.detail ? "; decoded when a query names it, or with `--detail insn`" : "");
    for (const ColumnMeaning& c : t.columns) out += fmt::format("| `{}` | {} |\n", c.name, c.meaning);
  }
  return out;
}

std::string schema_scdoc() {
  const auto plain = [](std::string_view text) {
    std::string out;
    for (const char c : text) out += c == '_' ? "\\_" : std::string(1, c);
    return out;
  };
  std::string out;
  for (const TableMeaning& t : kMeanings) {
    std::string columns;
    for (const ColumnMeaning& c : t.columns) columns += (columns.empty() ? "" : ", ") + plain(c.name);
    out += fmt::format("*{}*\n\t{}: {}\n\n", plain(t.name), plain(t.meaning), columns);
  }
  return out;
}

}  // namespace asof
