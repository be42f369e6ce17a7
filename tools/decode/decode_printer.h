// DecodePrinter: chunks to lines. One for each thread: it keeps the text of every block it has seen, so that
// a visit costs copies, not formatting.
//
// Branches need what comes next, and a chunk does not know what comes after it. So print() leaves out what
// lies before a chunk's first step, and seam() prints that when the chunks of a stream are put together.
#pragma once
#include <tsl/robin_map.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arch/arch.h"
#include "arch/chunk_items.h"
#include "decoder/blocks/block_text.h"
#include "decoder/calls/task_walk.h"
#include "decoder/model/capture.h"
#include "decoder/model/symbol_epochs.h"
#include "tools/decode/decode_options.h"
#include "tools/decode/decode_style.h"
#include "tools/disasm/source_text.h"
#include "tools/output/code_names.h"
#include "tools/output/merge.h"

namespace asof {

// Everything printers share; const while they work.
struct DecodeJob {
  DecodeJob(const Capture& c, DecodeFormat f, Selection s)
      : capture(c), format(f), selection(std::move(s)), epochs(c) {
    if (format.has(kFieldSrcline | kFieldInline)) lines = std::make_unique<SharedSourceLines>(c);
  }
  const Capture& capture;
  DecodeFormat format;
  Selection selection;
  SymbolEpochs epochs;
  std::unique_ptr<SharedSourceLines> lines;  // nullptr: not asked for
};

class DecodePrinter {
 public:
  explicit DecodePrinter(const DecodeJob& job);

  // The last step of a stream so far, when the flow continues from it.
  using Last = std::optional<Step>;

  // All of a chunk except what lies before its first step. Returns the flow's state at its end.
  Last print(const Chunk& chunk, const Stream& stream, TimedText& out);
  // Instructions that were printed since the last call.
  uint64_t take_printed() { return std::exchange(printed_, 0); }
  // What lies before the first step (all of a chunk without steps).
  Last seam(const Last& last, const Chunk& chunk, const Stream& stream, TimedText& out);

  // True when the gap, or a part of it, passes the filters by time and task.
  bool selected(const Gap& gap, const Stream& stream);

 private:
  struct BlockText {
    TimeBounds valid;               // of the names in it
    std::string text;               // bodies of the selected instructions
    std::vector<uint32_t> ends;     // of each instruction's body in `text`
    std::vector<uint8_t> selected;  // by instruction
    bool all_selected = true;
  };
  struct Context {  // of the lines being printed
    const Stream* stream = nullptr;
    Who who;
    const ContextChange* by_time = nullptr;
    const Stream* looked_in = nullptr;         // by_time
    bool by_records = false;                   // alone, not by the flow
    Time looked = kTimeMin, until = kTimeMin;  // it runs at least from then to then
    Space space = kKernelSpace;                // of the code
    const ContextChange* task = nullptr;       // whose code it is
    bool wanted = true;                        // by time and task
    bool prefix_made = false;
    std::string prefix;
  };

  Time time_of(const Gap& gap) const;
  void move_to(const Stream& stream, Time t, Space space = kKernelSpace);
  const std::string& prefix();  // and room after it, see decode_printer.cpp
  const BlockText& text_of(const Block& block, Time t);
  void make_text(const Block& block, Time t, BlockText& out);
  At name(Space space, Addr a, Time t);
  bool symbol_selected(const Symbol* symbol);
  bool place_selected(const At& at);
  Addr last_instruction(const Block& block) const;

  void print_step(const Step& step, TimedText& out);
  // Events and gaps before the chunk's entry `index`, and the branch that leads to `next`.
  Last between(Last last, const Chunk& chunk, const Stream& stream, size_t index, const Step* next,
               ChunkItems& items, TimedText& out);
  // The chunk's event `index`.
  void event_between(Last& last, const Chunk& chunk, size_t index, const Stream& stream, Space space,
                     TimedText& out);
  void print_cycles(const Event& e, size_t index, const Stream& stream, TimedText& out);
  void print_event(const Event& e, const Stream& stream, Space space, TimedText& out);
  void print_gap(const Gap& gap, const Stream& stream, TimedText& out);
  void print_branch(const Stream& stream, Time t, Space space, At from, At to, std::string_view flags,
                    TimedText& out);
  // The branch at the end of a step, if it was taken and is to be printed.
  void print_exit(const Step& step, const Stream& stream, Space space, Addr to, std::string_view flags,
                  TimedText& out);

  const DecodeJob& job_;
  std::unique_ptr<LineStyle> style_;
  Disassembler disassembler_;
  BlockTexts texts_;
  CodeNames names_;
  tsl::robin_map<const Block*, BlockText> blocks_;
  size_t cached_bytes_ = 0;
  uint64_t printed_ = 0;
  Context context_;
  std::optional<TaskWalk> walk_;         // of the chunk whose steps are printed
  const Symbol* last_symbol_ = nullptr;  // that was looked at, and what came out
  bool last_selected_ = false;
  std::array<std::string, 5> suffixes_;
  std::vector<CycleSpan> spans_;  // of the chunk that is printed
};

}  // namespace asof
