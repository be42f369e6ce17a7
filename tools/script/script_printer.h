// ScriptPrinter: records in order to lines of perf script. What a line needs of those before it (callers, the last
// branches, the indentation, the time before) is here.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "decoder/lines/source_lines.h"
#include "decoder/model/capture.h"
#include "decoder/perf/full_sample.h"
#include "tools/disasm/disasm.h"
#include "tools/output/task_choice.h"
#include "tools/script/branch_blocks.h"
#include "tools/script/script_fields.h"
#include "tools/script/script_names.h"
#include "tools/script/script_options.h"
#include "tools/script/script_record.h"
#include "tools/script/side_band_lines.h"
#include "tools/script/thread_stacks.h"
#include "tools/script/trace_text.h"

namespace asof {

struct ScriptFormat {
  ScriptFields fields = default_script_fields();
  ScriptItrace itrace;
  bool nanoseconds = false, relative = false, deltas = false;
  SideBandChoice side_band;
  bool inlined = false;    // in call chains
  bool pad_files = false;  // perf does so for --call-trace
  std::vector<std::string> graph_functions;

  bool trace = true;               // what is made of the trace is shown
  bool hide_chains = false;        // of the recording's own samples
  uint32_t most_callers = 127;     // of a call chain, as in perf
  uint32_t most_blocks = 0;        // of code of a branch stack; 0: all
  std::vector<std::string> stops;  // functions at which call chains end

  bool has(uint64_t field) const { return ((fields.flow | fields.synth) & field) != 0; }
  bool has_any(uint64_t field) const {
    return has(field) ||
           std::ranges::any_of(fields.records, [&](uint64_t mask) { return (mask & field) != 0; });
  }
  bool wants_stacks() const {
    return itrace.chain != 0 || itrace.sample_chain != 0 || has(kScriptCallindent) ||
           !graph_functions.empty();
  }
  // As many as perf keeps: between a sample's place and its time the kernel may take many.
  uint32_t kept_branches() const {
    constexpr uint32_t kSinceSample = 1024;
    return std::max(itrace.last_branches,
                    itrace.sample_branches == 0 ? 0 : itrace.sample_branches + kSinceSample);
  }
  bool wants_branches() const { return kept_branches() != 0; }
  bool wants_code() const { return has(kScriptBrstackinsn | kScriptBrstackinsnlen); }
};

struct ScriptSelection {
  TaskChoice tasks;
  std::vector<std::string> symbols, dsos;
  TimeBounds time;

  bool any() const { return tasks.any() || !symbols.empty() || !dsos.empty(); }
};

class ScriptPrinter {
 public:
  using Write = std::function<void(std::string_view)>;
  ScriptPrinter(const Capture& capture, const ScriptFormat& format, const ScriptSelection& selection,
                Write write);
  // `lines`: of records of kind kSideBand.
  void show(const SideBandLines& lines) { side_band_lines_ = &lines; }
  // `code`: of records of kind kCode.
  void show(const CodeOfBlocks& code) {
    branch_blocks_.emplace(code, names_, (format_.fields.flow & kScriptBrstackinsnlen) != 0,
                           format_.most_blocks);
  }
  // Records one after the other.
  void take(std::string_view records);
  uint64_t lines() const { return lines_; }
  std::vector<Notice> take_notices() { return lines_of_source_.take_notices(); }
  // Why what tracepoints say is missing.
  const std::optional<Error>& trace_text_failure() const { return trace_text_.failure(); }
  // Samples that are shorter than their fields.
  uint64_t bad_samples() const { return bad_samples_; }

 private:
  struct Ends {  // of a branch
    ScriptName from, to;
  };
  bool selected(const ScriptRecord& r, const Ends& ends);
  uint64_t fields_of(const ScriptRecord& r) const;
  bool in_graph(const ScriptRecord& r, ThreadStack& stack);
  void print(const ScriptRecord& r, ThreadStack* stack);
  void ipc(const ScriptRecord& r);
  void head(const ScriptRecord& r, uint64_t fields, bool chain);
  void time(Time t);
  void event_name(const ScriptRecord& r);
  void flow(const ScriptRecord& r, const Ends& ends, const ThreadStack* stack);
  void branch(const ScriptRecord& r, const Ends& ends, const ThreadStack* stack);
  void synthesised(const ScriptRecord& r);
  void error(const ScriptRecord& r);
  void side_band(const ScriptRecord& r);
  void pebs(const ScriptRecord& r, const Ends& ends, const ThreadStack* stack);
  void sample(const ScriptRecord& r, const Ends& ends, const ThreadStack* stack);
  void sample_chain(const ScriptRecord& r, const FullSample& sample, const ThreadStack* stack);
  void late_chain(const ScriptRecord& r, const ThreadStack* stack, uint64_t f);
  void sample_branches(const ScriptRecord& r, const FullSample& sample, const ThreadStack* stack);
  void sample_code(const ScriptRecord& r);
  void address_name(const ScriptRecord& r, uint64_t f);
  void tod(Time t);
  // With the fields of `f`, as the rest below.
  void place(Addr ip, const ScriptName& name, uint64_t f);
  void target(const ScriptRecord& r, const Ends& ends);
  void name(const ScriptName& name, bool with_offset);
  void call_chain(const ScriptRecord& r, const ThreadStack* stack, uint32_t length, uint64_t f);
  // False: callers end with it (--stop-bt).
  bool caller(const ScriptRecord& r, Space space, Addr a, bool called, uint64_t f);
  void inlined_callers(const ScriptRecord& r, Space space, Addr a, bool called, uint64_t f);
  enum class BranchForm : uint8_t { kAddresses, kSymbols, kOffsets };
  void branch_end(const ScriptRecord& r, Space space, Addr a, BranchForm form, uint64_t f);
  void branch_stack(const ScriptRecord& r, const ThreadStack* stack, uint32_t length, BranchForm form,
                    uint64_t f, size_t skip = 0);
  void indented(const ScriptRecord& r, const Ends& ends, const ThreadStack* stack);
  void instruction(const ScriptRecord& r);
  void branch_code(const ScriptRecord& r, const ThreadStack* stack);
  void source_line(const ScriptRecord& r, uint64_t f);
  std::string_view comm(const ScriptRecord& r, std::string& kept) const;
  std::string misc(const ScriptRecord& r) const;

  const Capture& capture_;
  ScriptFormat format_;
  ScriptSelection selection_;
  Write write_;
  ScriptNames names_;
  // Of names that options give: a look for each symbol.
  struct NamedSymbols {
    std::vector<std::string> names;
    tsl::robin_map<const Symbol*, bool> known{};
    bool has(const Symbol* symbol);
  };
  NamedSymbols selected_symbols_, graph_symbols_, stop_symbols_;
  ThreadStacks stacks_;
  Disassembler disassembler_;
  SourceLines lines_of_source_;
  TraceText trace_text_;
  const SideBandLines* side_band_lines_ = nullptr;
  std::optional<BranchBlocks> branch_blocks_;
  std::vector<std::string> recorded_names_;  // of the recording's events
  std::string modifiers_, out_;
  size_t name_width_ = 0, file_width_ = 0;
  size_t indent_width_ = 0;  // perf's lines change it seldom
  std::optional<Time> first_time_, last_time_;
  uint64_t skipped_ = 0, lines_ = 0, bad_samples_ = 0;
};

}  // namespace asof
