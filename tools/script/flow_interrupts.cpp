// FlowRecords: Event Trace, which tells interrupts and their ends, and where RFLAGS.IF changes. What perf shows of it:
// "hw int (t)" where interrupts are off from there on, "(D)" where they are off, "(Dt)" where they are on again.
#include <utility>

#include "tools/script/flow_records.h"

namespace asof {

using RecordKind = ScriptRecord::Kind;

void FlowRecords::interrupt_flag(const Event& e) {
  if (!event_trace_) return;
  change_.reset();
  if (const bool on = e.b != 0; interrupts_on_ != on) change_ = {on, e.ip};
}

// Where it was not known before it may be no change: it is only known from here on.
void FlowRecords::switch_interrupts(ScriptRecord r, bool by_branch) {
  const bool known = interrupts_on_.has_value();
  interrupts_on_ = change_->on;
  change_.reset();
  if (!known || !itrace_.interrupts) return;
  r.a = *interrupts_on_ ? 1 : 0;
  r.b = by_branch ? 1 : 0;
  put(r);
}

uint32_t FlowRecords::with_interrupts(uint32_t flags, Time t, Space space, Addr from, Addr to,
                                      bool switches) {
  flags |= interrupts();
  const bool switched = switches && change_;
  if (switched && interrupts_on_) flags |= kFlagIntrToggle;
  if (switches) put_event(flags);
  if (!switched) return flags;
  ScriptRecord r = record(RecordKind::kIflag, t, space);
  r.ip = from;
  r.addr = to;
  r.flags = flags;
  switch_interrupts(r, true);
  return flags;
}

// An event of the trace has the flags of the branch that it made, and its line: it waits for what follows.
void FlowRecords::interrupt_event(const Event& e) {
  put_event(interrupts());
  const auto data = std::exchange(event_data_, {});
  if (!itrace_.interrupts) return;
  ScriptRecord r = record(RecordKind::kEvent, e.time, e.ip == 0 ? kKernelSpace : space_of(e));
  r.ip = e.ip;
  r.a = e.a;
  r.b = e.b;
  for (const auto& [type, payload] : data) {
    r.event_data(r.insn_size) = payload;
    r.insn[r.insn_size++] = type;
  }
  event_ = r;
  if (e.ip == 0) put_event(interrupts());
}

void FlowRecords::put_event(uint32_t flags) {
  if (!event_) return;
  event_->flags = flags;
  put(*event_);
  event_.reset();
}

}  // namespace asof
