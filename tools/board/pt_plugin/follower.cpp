#include "tools/board/pt_plugin/follower.h"

namespace asof::pt {

namespace {

constexpr size_t kHeldWhileLosing = 4096;

}  // namespace

// An address that is only known from an interruption there.
Place Follower::place(uint64_t ip, Cause cause) const {
  const bool user = ip >> 63 == 0;
  return {ip, user, user ? user_exec_ : Exec::k64, cause == Cause::kInterrupt || here_.interrupts};
}

void Follower::block(const CodeBlock& block, const Place& here, uint64_t begun, uint64_t tsc) {
  if (block_ != nullptr) finish(here, Cause::kFlow, begun, tsc);
  wake(tsc);
  if (!unit_.tracing()) return;
  unit_.boundary(here, tsc);
  note(0);
  block_ = &block;
  here_ = here;
  begun_ = begun;
  tsc_ = unit_.now();
  if (here.user) user_exec_ = here.exec;
}

void Follower::interruption(const Interruption& i, const Place& to, bool exception, uint64_t begun,
                            uint64_t tsc) {
  const Cause cause = exception ? Cause::kException : Cause::kInterrupt;
  const Place from = place(i.from, cause);
  if (block_ != nullptr) finish(from, cause, begun, tsc);
  wake(tsc);
  if (!unit_.tracing()) return;
  unit_.boundary(from, tsc);
  note(0);
  const bool was = unit_.flow();
  unit_.interrupt(i, to, tsc);
  entry_flags_ = machine::kLogException | (unit_.flow() && !was ? machine::kLogStart : 0);
  note(was || unit_.flow() ? 1 : 0);
}

// `count` instructions of the block have retired and are logged if they were traced.
void Follower::retire(unsigned count, uint32_t flags) {
  if (count == 0) return;
  if (unit_.flow()) {
    log_.block({here_.ip, block_->number, 0, static_cast<uint16_t>(count), 0,
                entry_flags_ | flags | (here_.user ? machine::kLogUser : 0) |
                    (here_.exec == Exec::k32 ? machine::kLogCode32 : 0),
                tsc_});
  }
  entry_flags_ = 0;
}

// The current block ends before `next`.
void Follower::finish(const Place& next, Cause cause, uint64_t begun, uint64_t tsc) {
  const uint64_t n = begun - begun_;
  const CodeBlock& block = *block_;
  if (n == 0 || n > block.count()) {
    // Nothing began: an interruption before the first instruction.
    if (n != 0 || next.ip != here_.ip) ++unexplained_;
    block_ = nullptr;
    return;
  }
  const unsigned last = static_cast<unsigned>(n) - 1;
  const bool whole = n == block.count();
  const bool is_branch = whole && block.last.kind == Insn::kBranch;
  const uint64_t last_ip = address(last), after = address(last + 1);
  // The same address again: not retired, unless a direct branch leads to itself. (A call may be begun anew, too; an
  // indirect branch to itself is not told from that, but no program has one.)
  const bool again = next.ip == last_ip && !(is_branch && block.last.to_itself);
  const bool branched = is_branch && !again;
  uint32_t flags = 0;
  if (branched && awaits(block.last.flow)) flags = machine::kLogAwaits;
  if (!branched && cause != Cause::kFlow) flags = machine::kLogNoBranch;
  retire(again ? last : last + 1, flags);
  block_ = nullptr;
  if (again) return;
  if (is_branch) {
    const bool was = unit_.flow();
    unit_.branch({block.last.flow, last_ip, after}, next, tsc);
    const bool left = was && !unit_.flow(), entered = !was && unit_.flow();
    if (entered) entry_flags_ |= machine::kLogStart;
    note(left || entered || (was && awaits(block.last.flow)) ? 1 : 0);
  } else if (whole && block.last.kind == Insn::kMovCr3) {
    const bool was = unit_.flow();
    unit_.mov_cr3(new_cr3_, next, tsc);
    if (!was && unit_.flow()) entry_flags_ |= machine::kLogStart;
    note(was != unit_.flow() ? 1 : 0);
    log_.mark(machine::Mark::kContext, new_cr3_, unit_.written(), tsc);
  } else if (whole && block.last.kind == Insn::kFlags && next.ip == after) {
    interrupt_flag(next, tsc);  // STI and POPF end a block
  } else if (next.ip != after) {
    ++unexplained_;
  }
}

void Follower::write_ctl(uint64_t value, uint64_t ip, const Place& next, uint64_t cr3, uint64_t begun,
                         uint64_t tsc) {
  const bool was = unit_.ctl() & kTraceEn;
  if (block_ != nullptr && begun > begun_) {
    // The WRMSR itself does not count: tracing ends at it.
    const unsigned index = static_cast<unsigned>(begun - begun_) - 1;
    if (index <= block_->count()) retire(index, machine::kLogNoBranch);
  }
  block_ = nullptr;
  const bool flow = unit_.flow();
  unit_.write_ctl(value, ip, next, cr3, tsc);
  const bool is = unit_.ctl() & kTraceEn;
  if (was && !is) {
    note(flow ? 1 : 0);
    log_.lose(unit_.shown(), true);
    was_losing_ = false;
    log_.mark(machine::Mark::kOff, value, unit_.written(), tsc);
  } else if (!was && is) {
    log_.mark(machine::Mark::kOn, value, unit_.written(), tsc);
    entry_flags_ = machine::kLogStart;
    // The count of expected outcomes starts from what was told before this.
    note(unit_.flow() ? 1 : 0);
  }
}

void Follower::ptwrite(uint64_t ip, uint64_t value, bool eight_bytes, uint64_t tsc) {
  unit_.ptwrite(ip, value, eight_bytes, tsc);
  note(0);
}

void Follower::interrupt_flag(const Place& next, uint64_t tsc) {
  unit_.interrupt_flag(next, tsc);
  note(0);
}

void Follower::sleep(Sleep how, uint64_t ip, uint32_t hints, uint32_t extensions, uint64_t tsc) {
  unit_.sleep(how, ip, hints, extensions, tsc);
  asleep_ = true;
  note(0);
}

void Follower::wake(uint64_t tsc) {
  if (!asleep_) return;
  asleep_ = false;
  unit_.wake(tsc);
  note(0);
}

// After each event: the log learns what has been told, lost and synchronised. `expected`: outcomes of this event.
void Follower::note(uint64_t expected) {
  for (; expected != 0; --expected) log_.expect();
  log_.settle(unit_.flushed());
  log_.settle(unit_.shown());
  note_marks();
}

void Follower::note_marks() {
  if (unit_.losing() && !was_losing_) {
    log_.mark(unit_.status() & kStopped ? machine::Mark::kStopped : machine::Mark::kOverflow, 0,
              unit_.written(), unit_.now());
  } else if (!unit_.losing() && was_losing_) {
    log_.lose(unit_.shown(), false);
    log_.mark(machine::Mark::kResume, 0, unit_.written(), unit_.now());
    entry_flags_ |= machine::kLogStart;
  } else if (unit_.losing() && log_.held() > kHeldWhileLosing) {
    log_.lose(unit_.shown(), unit_.status() & kStopped);
    log_.expect();  // nothing more can be known
  }
  was_losing_ = unit_.losing();
  const bool stopped = !was_losing_ && (unit_.status() & kStopped);
  if (stopped && !was_stopped_) log_.mark(machine::Mark::kStopped, 0, unit_.written(), unit_.now());
  was_stopped_ = stopped;
  if (unit_.syncs() == syncs_) return;
  syncs_ = unit_.syncs();
  log_.mark(machine::Mark::kSync, unit_.sync_tsc(), unit_.sync_at(), unit_.now());
}

}  // namespace asof::pt
