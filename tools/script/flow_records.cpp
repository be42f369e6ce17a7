#include "tools/script/flow_records.h"

#include <algorithm>
#include <utility>

#include "arch/chunk_items.h"
#include "decoder/model/task_of.h"
#include "tools/decode/decode_style.h"
#include "tools/output/diagnostics.h"
#include "tools/output/tally.h"

namespace asof {
namespace {

using RecordKind = ScriptRecord::Kind;

uint32_t flags_of(const Block& b) {
  if (b.kind == BranchKind::kJumpInd) return kFlagBranch | kFlagIndirect;
  if (b.kind == BranchKind::kCallInd) return kFlagBranch | kFlagCall | kFlagIndirect;
  const std::string_view word = branch_flags(b);
  if (word == "jcc") return kFlagBranch | kFlagConditional;
  if (word == "call") return kFlagBranch | kFlagCall;
  if (word == "return") return kFlagBranch | kFlagReturn;
  if (word == "int") return kFlagBranch | kFlagCall | kFlagInterrupt;
  if (word == "iret") return kFlagBranch | kFlagReturn | kFlagInterrupt;
  if (word == "syscall") return kFlagBranch | kFlagCall | kFlagSyscallret;
  if (word == "sysret") return kFlagBranch | kFlagReturn | kFlagSyscallret;
  return word.empty() ? 0 : uint32_t{kFlagBranch};
}

std::optional<RecordKind> kind_of(EventKind kind) {
  switch (kind) {
    case EventKind::kTsxBegin:
    case EventKind::kTsxCommit:
    case EventKind::kTsxAbort:
      return RecordKind::kTransaction;
    case EventKind::kPtwrite:
      return RecordKind::kPtwrite;
    case EventKind::kMwait:
      return RecordKind::kMwait;
    case EventKind::kPwre:
      return RecordKind::kPwre;
    case EventKind::kExstop:
      return RecordKind::kExstop;
    case EventKind::kPwrx:
      return RecordKind::kPwrx;
    default:
      return std::nullopt;
  }
}

uint64_t perf_error(const Gap& gap) {
  if (gap.code == Code::kTraceOverflow) return kPerfOverflowError;
  switch (family_of(gap.code)) {
    case CodeFamily::kText:
      return kPerfTextError;
    case CodeFamily::kFlow:
      return kPerfFlowError;
    case CodeFamily::kData:
      return kPerfDataError;
    default:
      return kPerfLossError;
  }
}

// Near ones leave the interrupt flag as it is.
bool is_far(BranchKind kind) {
  return kind == BranchKind::kFarCall || kind == BranchKind::kFarRet || kind == BranchKind::kFarJump;
}

// Blocks have the flag of the processor's transaction in their steps.
uint32_t transaction(const Step& s) { return (s.flags & Step::kTransaction) != 0 ? uint32_t{kFlagInTx} : 0U; }

}  // namespace

void FlowRecords::add_ipc(ScriptRecord& r, Ipc& last) const {
  if ((!counted_ && !itrace_.approx_ipc) || now_.cycles == last.cycles) return;
  r.cycles = now_.cycles - last.cycles;
  r.instructions = now_.instructions - last.instructions;
  last = now_;
}

void FlowRecords::put(const ScriptRecord& r) {
  if (r.time != kTimeMin && !itrace_.timeless) out_->at(serves_samples() ? user_return_.of(r.time) : r.time);
  r.append_to(out_->text);
}

ScriptRecord FlowRecords::record(RecordKind kind, Time t, Space space) {
  ScriptRecord r;
  r.kind = kind;
  r.time = t;
  r.space = r.to_space = space;
  r.cpu = stream_->cpu;
  const ContextChange* const task =
      walk_.flows() ? walk_.task(space) : task_of(*stream_, t, space, stream_->context_at(t));
  r.pid = task == nullptr ? -1 : task->pid;
  r.tid = task == nullptr ? stream_->tid : task->tid;
  return r;
}

void FlowRecords::flush_waiting(Addr target, Space space) {
  if (!waiting_) return;
  add_ipc(*waiting_, last_instruction_);
  waiting_->addr = target;
  waiting_->to_space = space;
  put(*waiting_);
  waiting_.reset();
}

void FlowRecords::branch(Time t, Space from_space, Addr from, Space to_space, Addr to, uint32_t flags,
                         const Step* last) {
  const bool shown = itrace_.shows_branch(flags);
  const bool followed = follow_all_ || (follow_ && (flags & (kCallFlags | kReturnFlags)) != 0);
  // An interrupt that ended the trace has said so.
  if ((from == 0 && to == 0) || (!shown && !followed)) return;
  ScriptRecord r = record(RecordKind::kBranch, t, from != 0 ? from_space : to_space);
  r.shown = shown;
  r.flags = flags;
  r.to_space = to_space;
  r.ip = from;
  r.addr = to;
  if ((from == 0 || is_kernel_address(from)) && to != 0 && !is_kernel_address(to)) user_return_.back(t, cbr_);
  if (shown) add_ipc(r, last_branch_);
  if (last != nullptr) {
    const Block& b = *last->block;
    const uint8_t size = b.lengths[b.count - 1];
    r.insn_size = static_cast<uint8_t>(std::min<size_t>(size, r.insn.size()));
    r.mode = b.mode;
    std::copy_n(b.bytes + b.size - size, r.insn_size, r.insn.begin());
  }
  put(r);
}

void FlowRecords::leave(Addr to, Space space, uint32_t more) {
  if (!last_ || !took_branch(*last_)) return flush_waiting(0, space);
  const Block& b = *last_->block;
  const Addr from = b.end() - b.lengths[b.count - 1];
  const bool switches = is_far(b.kind) && (to == 0 || (change_ && change_->ip == to));
  const uint32_t flags =
      with_interrupts(flags_of(b) | transaction(*last_) | more, last_->time, b.space, from, to, switches);
  if (waiting_) waiting_->flags |= flags & (kFlagIntrToggle | kFlagTraceEnd);
  flush_waiting(to, space);
  branch(last_->time, b.space, from, space, to, flags, &*last_);
}

void FlowRecords::instruction(const Step& s, uint32_t number) {
  const Block& b = *s.block;
  uint32_t offset = 0;
  for (uint32_t i = 0; i < number; ++i) offset += b.lengths[i];
  ScriptRecord r = record(RecordKind::kInstructions, s.time, b.space);
  r.ip = b.ip + offset;
  r.period = since_;
  r.insn_size = static_cast<uint8_t>(std::min<size_t>(b.lengths[number], r.insn.size()));
  r.mode = b.mode;
  std::copy_n(b.bytes + offset, r.insn_size, r.insn.begin());
  since_ = 0;
  const bool last = number + 1 == b.count;
  if (last) r.flags = flags_of(b);
  r.flags |= transaction(s) | (number == 0 && first_ != 0 && !last ? first_ : interrupts());
  if (last && (took_branch(s) || now_.cycles != 0)) {
    waiting_ = r;  // shown with its target, and with cycles that were counted when it had run
  } else {
    put(r);
  }
}

void FlowRecords::code(const Step& s) {
  if (s.count == 0) return;
  ScriptRecord r = record(RecordKind::kCode, s.time, s.block->space);
  r.shown = false;
  r.a = code_->add(*s.block);
  r.b = s.count;
  put(r);
}

void FlowRecords::instructions(const Step& s) {
  const auto period = static_cast<Time>(itrace_.period);
  if (itrace_.by_time) {
    if (s.time != kTimeMin && !due_) due_ = saturating_add(s.time - s.time % period, period);
    const bool now = due_ && s.time >= *due_ && s.count != 0;
    if (now) {
      ++since_;
      due_ = saturating_add(s.time - s.time % period, period);
      instruction(s, 0);
    }
    since_ += s.count - (now ? 1 : 0);
    return;
  }
  uint32_t done = 0;
  while (s.count - done >= itrace_.period - since_) {
    done += static_cast<uint32_t>(itrace_.period - since_);
    since_ = itrace_.period;
    instruction(s, done - 1);
  }
  since_ += s.count - done;
}

void FlowRecords::step(const Step& s) {
  const bool follows = last_ && (s.flags & (Step::kAfterGap | Step::kAsyncEntry)) == 0;
  if (follows) {
    leave(s.block->ip, s.block->space, 0);
  } else {
    flush_waiting(0, kKernelSpace);
  }
  first_ = 0;
  aborts_ = false;
  put_event(interrupts());
  if (change_) {  // by an instruction that is no branch: perf gives it to the one at the address of the FUP
    if (interrupts_on_) first_ = interrupts() | kFlagIntrToggle;
    ScriptRecord r = record(RecordKind::kIflag, s.time, s.block->space);
    r.ip = change_->ip;
    r.flags = first_;
    switch_interrupts(r, false);
  }
  counted_ = false;
  walk_.step(s);
  if (code_ != nullptr) code(s);
  if (itrace_.instructions) instructions(s);
  now_.instructions += s.count;
  user_return_.ran(s.time, s.count);
  last_ = s;
}

void FlowRecords::flow_event(const Event& e) {
  const Space space = last_ ? last_->block->space : kKernelSpace;
  if (e.kind == EventKind::kTraceStart) {
    flush_waiting(0, space);
    last_.reset();
    walk_.event(e);
    const uint32_t flags = with_interrupts(kFlagBranch | kFlagTraceBegin, e.time, space_of(e), 0, e.ip, true);
    branch(e.time, kKernelSpace, 0, space_of(e), e.ip, flags, nullptr);
  } else if (e.kind == EventKind::kTraceStop) {
    if (last_ && took_branch(*last_)) {
      leave(0, space, kFlagTraceEnd);
    } else {
      flush_waiting(0, space);
      const uint32_t flags =
          with_interrupts(kFlagBranch | kFlagAsync | kFlagTraceEnd, e.time, space_of(e), e.ip, 0, true);
      branch(e.time, space_of(e), e.ip, kKernelSpace, 0, flags, nullptr);
    }
    last_.reset();
    walk_.interrupt();
  } else if (e.kind == EventKind::kAsync) {
    leave(e.ip, space_of(e), 0);
    uint32_t flags = kFlagAsync | (e.a == 0 ? uint32_t{kFlagTraceEnd} : kFlagCall | kFlagInterrupt);
    if (std::exchange(aborts_, false)) flags = kFlagTxAbort;
    flags = with_interrupts(kFlagBranch | flags, e.time, space_of(e), e.ip, e.a, true);
    branch(e.time, space_of(e), e.ip, is_kernel_address(e.a) ? kKernelSpace : space_of(e), e.a, flags,
           nullptr);
    last_.reset();
  }
}

Space FlowRecords::space_of(const Event& e) const {
  if (is_kernel_address(e.ip)) return kKernelSpace;
  if (last_ && !is_kernel_address(last_->block->ip)) return last_->block->space;
  if (next_ != nullptr && !is_kernel_address(next_->block->ip)) return next_->block->space;
  const ContextChange* const task = stream_->context_at(e.time);
  return task == nullptr ? kNoSpace : task->space;
}

// perf shows the ratio that a sync group says, and others that packets say, where it is another than before.
void FlowRecords::sync_point(const Event& e) {
  if (e.b != 0) {
    event_trace_ = true;
    interrupts_on_ = e.b == kInterruptsOn;
    change_.reset();
  }
  if (itrace_.power) {
    ScriptRecord r = record(RecordKind::kPsb, e.time, e.ip == 0 ? kKernelSpace : space_of(e));
    r.ip = e.ip;
    r.a = e.offset;
    put(r);
  }
  if (e.a != 0) cbr(e, e.a);
}

void FlowRecords::cbr(const Event& e, uint64_t ratio) {
  if (std::exchange(cbr_, ratio) == ratio || !itrace_.power) return;
  ScriptRecord r = record(RecordKind::kCbr, e.time, e.ip == 0 ? kKernelSpace : space_of(e));
  r.ip = e.ip;
  r.a = ratio;
  put(r);
}

bool FlowRecords::side_event(const Event& e) {
  switch (e.kind) {
    case EventKind::kEvd:
      if (event_data_.size() < ScriptRecord::kMostData) event_data_.emplace_back(e.a, e.b);
      return true;
    case EventKind::kCfe:
      interrupt_event(e);
      return true;
    case EventKind::kBbp:
    case EventKind::kBip:
    case EventKind::kBep:
      if (auto sample = pebs_.take(e); sample && itrace_.pebs) {
        ScriptRecord r = record(RecordKind::kPebs, sample->time, e.ip == 0 ? kKernelSpace : space_of(e));
        if (is_kernel_address(sample->ip)) r.space = kKernelSpace;
        r.ip = sample->ip;
        r.addr = sample->addr;
        r.period = sample->period;
        r.a = sample->event;
        r.b = sample->latency;
        put(r);
      }
      return true;
    default:
      return false;
  }
}

void FlowRecords::event(const Event& e) {
  if (e.kind != EventKind::kTraceStart) walk_.event(e);
  if (e.kind == EventKind::kCycles) {
    now_.cycles += e.a;
    counted_ = true;
    if (e.b != 0) last_branch_ = last_instruction_ = now_;  // what ran before was not counted
    return;
  }
  if (e.kind == EventKind::kPsb) return sync_point(e);
  if (e.kind == EventKind::kCbr) return cbr(e, e.a);
  if (e.kind == EventKind::kExecMode) return interrupt_flag(e);
  if (side_event(e)) return;
  if (e.kind == EventKind::kTsxAbort) aborts_ = true;
  if (const auto kind = kind_of(e.kind)) {
    const bool power = *kind != RecordKind::kTransaction && *kind != RecordKind::kPtwrite;
    const bool wanted = *kind == RecordKind::kTransaction ? itrace_.transactions
                        : power                           ? itrace_.power
                                                          : itrace_.ptwrite;
    if (wanted) {
      ScriptRecord r = record(*kind, e.time, e.ip == 0 ? kKernelSpace : space_of(e));
      r.ip = e.ip;
      r.a = e.a;
      r.b = e.b;
      put(r);
    }
    return;
  }
  flow_event(e);
}

void FlowRecords::gap(const Gap& gap) {
  put_event(interrupts());
  flush_waiting(0, kKernelSpace);
  last_.reset();
  change_.reset();
  interrupts_on_.reset();
  walk_.interrupt();
  ScriptRecord r = record(RecordKind::kLoss, known_time(gap.time), kKernelSpace);
  r.ip = gap.ip;
  r.shown = false;
  if (follow_ || follow_all_) put(r);
  if (!itrace_.errors || !is_error_code(gap.code)) return;
  r.kind = RecordKind::kError;
  r.shown = true;
  r.a = perf_error(gap);
  const bool left_out =
      (r.a == kPerfOverflowError && itrace_.no_overflows) || (r.a == kPerfLossError && itrace_.no_losses);
  if (!left_out) put(r);
}

void FlowRecords::take(const Chunk& chunk, TimedText& out) {
  out_ = &out;
  ChunkItems items(chunk);
  const auto items_before = [&](size_t index) {
    items.before(
        index, [&](const Gap& g) { gap(g); }, [&](const Event& e) { event(e); });
  };
  for (auto s = chunk.steps.begin(); s != chunk.steps.end(); ++s) {
    next_ = &*s;
    items_before(s.position());
    step(*s);
  }
  next_ = nullptr;
  items_before(SIZE_MAX);
}

void finish_flows(std::vector<FlowRecords>& flows, Merger& merger) {
  for (size_t i = 0; i < flows.size(); ++i) {
    TimedText records;
    flows[i].finish(records);
    if (!records.text.empty()) merger.add(i, std::move(records), kTimeMin);
  }
}

}  // namespace asof
