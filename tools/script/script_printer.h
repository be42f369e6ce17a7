// ScriptPrinter: records in order to lines of perf script. What a line needs of those before it (callers, the last
// branches, the indentation, the time before) is here.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "decoder/lines/source_lines.h"
#include "decoder/model/capture.h"
#include "tools/disasm/disasm.h"
#include "tools/script/branch_blocks.h"
#include "tools/script/script_names.h"
#include "tools/script/script_options.h"
#include "tools/script/script_record.h"
#include "tools/script/side_band_lines.h"
#include "tools/script/thread_stacks.h"

namespace asof {

struct ScriptFormat {
  ScriptFields fields = default_script_fields();
  ScriptItrace itrace;
  bool nanoseconds = false, relative = false, deltas = false;
  SideBandChoice side_band;
  bool inlined = false;    // in call chains
  bool pad_files = false;  // perf does so for --call-trace
  std::vector<std::string> graph_functions;

  bool has(uint32_t field) const { return ((fields.flow | fields.synth) & field) != 0; }
  bool wants_stacks() const {
    return itrace.chain != 0 || has(kScriptCallindent) || !graph_functions.empty();
  }
  bool wants_branches() const { return itrace.last_branches != 0; }
  bool wants_code() const { return has(kScriptBrstackinsn | kScriptBrstackinsnlen); }
};

struct ScriptSelection {
  std::vector<int> pids, tids;
  std::vector<std::string> comms, symbols, dsos;
  TimeBounds time;

  bool any() const {
    return !pids.empty() || !tids.empty() || !comms.empty() || !symbols.empty() || !dsos.empty();
  }
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
    branch_blocks_.emplace(code, names_, (format_.fields.flow & kScriptBrstackinsnlen) != 0);
  }
  // Records one after the other.
  void take(std::string_view records);
  uint64_t lines() const { return lines_; }
  std::vector<Notice> take_notices() { return lines_of_source_.take_notices(); }

 private:
  struct Ends {  // of a branch
    ScriptName from, to;
  };
  bool selected(const ScriptRecord& r, const Ends& ends);
  bool any_field(ScriptRecord::Kind kind) const;
  bool in_graph(const ScriptRecord& r, ThreadStack& stack);
  void print(const ScriptRecord& r, ThreadStack* stack);
  void ipc(const ScriptRecord& r);
  void head(const ScriptRecord& r, uint32_t fields, bool chain);
  void time(Time t);
  void event_name(const ScriptRecord& r);
  void flow(const ScriptRecord& r, const Ends& ends, const ThreadStack* stack);
  void branch(const ScriptRecord& r, const Ends& ends, const ThreadStack* stack);
  void synthesised(const ScriptRecord& r);
  void error(const ScriptRecord& r);
  void side_band(const ScriptRecord& r);
  void place(Addr ip, const ScriptName& name);
  void target(const ScriptRecord& r, const Ends& ends);
  void name(const ScriptName& name, bool with_offset);
  void call_chain(const ScriptRecord& r, const ScriptName& name, const ThreadStack* stack);
  void caller(const ScriptRecord& r, Space space, Addr a, bool called);
  void inlined_callers(const ScriptRecord& r, Space space, Addr a, bool called);
  void branch_stack(const ScriptRecord& r, const ThreadStack* stack, bool symbols);
  void indented(const ScriptRecord& r, const Ends& ends, const ThreadStack* stack);
  void instruction(const ScriptRecord& r);
  void branch_code(const ScriptRecord& r, const ThreadStack* stack);
  void source_line(const ScriptRecord& r);
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
  NamedSymbols selected_symbols_, graph_symbols_;
  ThreadStacks stacks_;
  Disassembler disassembler_;
  SourceLines lines_of_source_;
  const SideBandLines* side_band_lines_ = nullptr;
  std::optional<BranchBlocks> branch_blocks_;
  std::string modifiers_, out_;
  size_t name_width_ = 0, file_width_ = 0;
  size_t indent_width_ = 0;  // perf's lines change it seldom
  std::optional<Time> first_time_, last_time_;
  uint64_t skipped_ = 0, lines_ = 0;
};

}  // namespace asof
