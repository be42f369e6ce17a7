// FlowRecords: the flow of one stream as perf's synthesised events. Chunk after chunk, in order; what a branch leads
// to may be in the next one.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "arch/arch.h"
#include "decoder/calls/task_walk.h"
#include "decoder/model/capture.h"
#include "tools/output/merge.h"
#include "tools/script/code_of_blocks.h"
#include "tools/script/pebs_blocks.h"
#include "tools/script/script_options.h"
#include "tools/script/script_record.h"
#include "tools/script/user_return.h"

namespace asof {

class FlowRecords {
 public:
  // `follow`: calls and returns are needed that are not shown; `follow_all`: every branch is; `code`: so is all code
  // that ran, which is put there.
  FlowRecords(const Capture& capture, const Stream& stream, const ScriptItrace& itrace, bool follow,
              bool follow_all, CodeOfBlocks* code)
      : stream_(&stream),
        walk_(capture, stream),
        pebs_(capture, stream),
        event_trace_(capture.x86.event_trace),
        itrace_(itrace),
        user_return_(capture),
        follow_(follow),
        follow_all_(follow_all),
        code_(code) {}

  void take(const Chunk& chunk, TimedText& out);
  // After the last chunk: an instruction that waits for where it went.
  void finish(TimedText& out) {
    out_ = &out;
    flush_waiting(0, kKernelSpace);
    put_event(interrupts());
  }

 private:
  void step(const Step& s);
  void code(const Step& s);
  void instructions(const Step& s);
  void instruction(const Step& s, uint32_t number);
  void event(const Event& e);
  void flow_event(const Event& e);
  // True: it is of Event Trace, or of PEBS.
  bool side_event(const Event& e);
  void interrupt_event(const Event& e);
  void put_event(uint32_t flags);
  // Event Trace: a change of the interrupt flag waits for the branch that made it, or for what runs next.
  void interrupt_flag(const Event& e);
  void switch_interrupts(ScriptRecord r, bool by_branch);
  uint32_t interrupts() const { return interrupts_on_.value_or(true) ? 0 : uint32_t{kFlagIntrDisable}; }
  // The flags of a branch, with those of interrupts. `switches`: a change that waits is its own.
  uint32_t with_interrupts(uint32_t flags, Time t, Space space, Addr from, Addr to, bool switches);
  void sync_point(const Event& e);
  void cbr(const Event& e, uint64_t ratio);
  Space space_of(const Event& e) const;
  void gap(const Gap& gap);
  // The step before left by the branch at its end, to `to`.
  void leave(Addr to, Space space, uint32_t more);
  void branch(Time t, Space from_space, Addr from, Space to_space, Addr to, uint32_t flags, const Step* last);
  ScriptRecord record(ScriptRecord::Kind kind, Time t, Space space);
  // Has the target of its branch now, or none.
  void flush_waiting(Addr target, Space space);
  void put(const ScriptRecord& r);
  // Samples of the recording get callers or branches of the trace.
  bool serves_samples() const { return itrace_.sample_chain != 0 || itrace_.sample_branches != 0; }
  struct Ipc {
    uint64_t cycles = 0, instructions = 0;
  };
  // perf gives a sample cycles where a count ends: it is the last thing that ran before the count.
  void add_ipc(ScriptRecord& r, Ipc& last) const;

  const Stream* stream_;
  TaskWalk walk_;
  PebsBlocks pebs_;
  bool aborts_ = false;  // the next interrupt is the abort of a transaction
  bool event_trace_;     // MODE.Exec says RFLAGS.IF
  ScriptItrace itrace_;
  UserReturn user_return_;
  bool follow_, follow_all_;
  CodeOfBlocks* code_;
  TimedText* out_ = nullptr;
  std::optional<Step> last_;             // the flow continues from here
  std::optional<ScriptRecord> waiting_;  // instruction at the end of last_
  const Step* next_ = nullptr;           // the step before which an event is
  uint64_t since_ = 0;                   // instructions since the last one of those
  Ipc now_, last_branch_, last_instruction_;
  bool counted_ = false;               // a count has just been taken
  std::optional<Time> due_;            // of the next, when the period is a time
  std::optional<bool> interrupts_on_;  // nothing: not known
  struct FlagChange {
    bool on = false;
    Addr ip = 0;  // from there on
  };
  std::optional<FlagChange> change_;
  uint32_t first_ = 0;  // flags of the first instruction of a step, at which interrupts were switched
  uint64_t cbr_ = 0;    // the ratio shown last
  std::vector<std::pair<uint8_t, uint64_t>> event_data_;  // EVD packets, for the CFE packet that follows
  std::optional<ScriptRecord> event_;                     // a CFE packet: of the interrupt that follows
};

// `flows`: of streams by their numbers in `merger`.
void finish_flows(std::vector<FlowRecords>& flows, Merger& merger);

}  // namespace asof
