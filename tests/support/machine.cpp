#include "tests/support/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace asof::test {

namespace {

constexpr uint64_t kTruncated = 1;  // PERF_AUX_FLAG_TRUNCATED

}  // namespace

SimCpu::SimCpu(unsigned number, const MachineConfig& config)
    : id(number),
      tsc(config.tsc_start),
      tracer(config.trace),
      truth(config.keep_instructions),
      random(config.seed * 1000003 + number) {}

Machine::Machine(const MachineConfig& config) : config_(config), now_(config.tsc_start) {
  for (unsigned i = 0; i < config.cpus; ++i) cpus_.push_back(std::make_unique<SimCpu>(i, config_));
}

Time Machine::perf_time(uint64_t tsc) const {
  const TimeConvSpec& c = config_.clock;
  const uint64_t quot = tsc >> c.shift;
  const uint64_t rest = tsc & ((1ULL << c.shift) - 1);
  return static_cast<Time>(c.zero + quot * c.mult + (rest * c.mult >> c.shift));
}

SimTask& Machine::add_task(int32_t pid, int32_t tid, std::string comm, Space space, Addr entry,
                           Addr first_return) {
  auto t = std::make_unique<SimTask>();
  t->pid = pid, t->tid = tid, t->comm = std::move(comm), t->space = space;
  t->cr3 = 0x100000ULL + static_cast<uint64_t>(pid) * 0x1000;
  t->kernel_stack = {{StackFrame::Kind::kTrap, entry, true, false, 0},
                     {StackFrame::Kind::kCall, first_return, false, false, 0}};
  tasks_.push_back(std::move(t));
  return *tasks_.back();
}

void Machine::run_task(unsigned cpu, SimTask& task, Addr user_ip) {
  SimCpu& c = *cpus_[cpu];
  task.kernel_stack.clear();
  c.task = &task, c.ip = user_ip, c.user = true, c.halted = false, c.irqs_off = false;
}

void Machine::run_kernel(unsigned cpu, SimTask& task, Addr ip) {
  SimCpu& c = *cpus_[cpu];
  c.task = &task, c.ip = ip, c.user = false, c.halted = false, c.irqs_off = false;
}

void Machine::loop_at(Addr ip, unsigned rounds) {
  auto count = std::make_shared<std::vector<unsigned>>(cpus_.size(), 0U);
  on_branch(ip, [count, rounds](SimCpu& c) {
    unsigned& n = (*count)[c.id];
    n = (n + 1) % rounds;
    return n != 0;
  });
}

void Machine::schedule(uint64_t tsc, std::function<void()> action) {
  events_.emplace(tsc, std::move(action));
}

void Machine::interrupt_at(uint64_t tsc, unsigned cpu, Addr handler) {
  schedule(tsc, [this, cpu, handler] { cpus_[cpu]->interrupts.push_back(handler); });
}

void Machine::run_until(uint64_t tsc) {
  for (;;) {
    SimCpu* first = nullptr;
    for (const auto& c : cpus_) {
      if (!c->halted && (first == nullptr || c->tsc < first->tsc)) first = c.get();
    }
    const uint64_t at = first != nullptr ? std::min(first->tsc, tsc) : tsc;
    if (!events_.empty() && events_.begin()->first <= at && events_.begin()->first < tsc) {
      now_ = std::max(now_, events_.begin()->first);
      auto action = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      action();
      continue;
    }
    if (first == nullptr || first->tsc >= tsc) break;
    now_ = std::max(now_, first->tsc);
    step(*first);
  }
  now_ = std::max(now_, tsc);
}

void Machine::start_trace(unsigned cpu) {
  SimCpu& c = *cpus_[cpu];
  c.tracer.at(c.tsc, c.ip, c.user, c.task ? c.task->cr3 : 0);
  c.tracer.start();
  if (c.aux.empty() && c.task != nullptr) {
    side(c.tsc, cpu, [pid = c.task->pid, tid = c.task->tid](PerfDataWriter& w, const Trailer& t) {
      w.itrace_start(pid, tid, t);
    });
  }
}

void Machine::stop_trace(unsigned cpu) {
  SimCpu& c = *cpus_[cpu];
  c.tracer.at(c.tsc, c.ip, c.user, c.task ? c.task->cr3 : 0);
  c.tracer.stop();
  flush_aux(cpu);
}

void Machine::flush_aux(unsigned cpu, uint64_t flags) {
  SimCpu& c = *cpus_[cpu];
  const uint64_t end = c.tracer.writer().offset();
  if (end == c.aux_begin && flags == 0) return;
  c.aux.push_back(
      {c.aux_begin, end, flags, std::max(c.tsc, now_), c.task ? c.task->pid : 0, c.task ? c.task->tid : 0});
  c.aux_begin = end;
}

void Machine::lose_trace_at(uint64_t from, uint64_t until, unsigned cpu) {
  schedule(from, [this, cpu] { cpus_[cpu]->losing = true; });
  schedule(until, [this, cpu] {
    SimCpu& c = *cpus_[cpu];
    if (c.losing) throw std::logic_error("no packet was due while the trace should be lost");
    start_trace(cpu);
  });
}

void Machine::overflow_at(uint64_t from, uint64_t until, unsigned cpu) {
  schedule(from, [this, cpu] { cpus_[cpu]->tracer.begin_overflow(); });
  schedule(until, [this, cpu] {
    SimCpu& c = *cpus_[cpu];
    c.tracer.at(c.tsc, c.ip, c.user, c.task ? c.task->cr3 : 0);
    c.tracer.end_overflow();
  });
}

void Machine::sleep_at(uint64_t from, uint64_t until, unsigned cpu, bool deep, uint8_t cbr) {
  schedule(from, [this, until, cpu, deep, cbr] {
    SimCpu& c = *cpus_[cpu];
    if (c.tsc >= until) return;
    c.tracer.at(c.tsc, c.ip, c.user, c.task ? c.task->cr3 : 0);
    c.tsc = until;
    c.tracer.sleep(until, deep, cbr);
  });
}

void Machine::timestamp_at(uint64_t tsc, unsigned cpu) {
  schedule(tsc, [this, tsc, cpu] { cpus_[cpu]->tracer.timestamp(tsc); });
}

bool Machine::needs_packet(const SimInsn& insn) const {
  switch (insn.kind) {
    case SimKind::kStraight:
    case SimKind::kJump:
    case SimKind::kCall:
      return false;
    default:
      return true;
  }
}

void Machine::step(SimCpu& c) {
  c.tracer.at(c.tsc, c.ip, c.user, c.task->cr3);
  const bool traced = c.tracer.traced();
  if (c.was_traced && !traced) c.truth.interrupted();
  c.was_traced = traced;
  if (!c.interrupts.empty() && !c.irqs_off) {
    const Addr handler = c.interrupts.front();
    c.interrupts.pop_front();
    deliver(c, handler, {StackFrame::Kind::kTrap, c.ip, c.user, false, 0});
    return;
  }
  const SimInsn insn = memory_.fetch(c.task->space, c.ip);
  if (insn.kind == SimKind::kInt3) {
    int3(c);
    return;
  }
  if (traced)
    c.truth.instruction(c.ip, insn, is_kernel_address(c.ip) ? kKernelSpace : c.task->space, c.user,
                        perf_time(c.tsc));
  if (c.losing && needs_packet(insn)) {
    // This instruction still follows from the packets that are in the buffer; what it did no longer does.
    c.losing = false;
    c.tracer.lose();
    flush_aux(c.id, kTruncated);
  }
  execute(c, insn);
  c.tsc += c.random.between(config_.min_cost, config_.max_cost);
}

void Machine::deliver(SimCpu& c, Addr handler, StackFrame frame) {
  if (handler == 0) throw std::logic_error("no handler for an interrupt");
  frame.irqs_off = c.irqs_off;
  const bool from = c.tracer.traced();
  c.tracer.transfer(handler, false, true);
  if (from || c.tracer.config().kernel) c.truth.async();
  c.task->kernel_stack.push_back(frame);
  c.ip = handler, c.user = false, c.irqs_off = true;
  c.tsc += config_.max_cost * 8;
}

void Machine::int3(SimCpu& c) {
  const Addr a = c.ip;
  StackFrame frame{StackFrame::Kind::kTrap, a, c.user, false, 0};
  const auto site = int3_sites_.find(a);
  if (site != int3_sites_.end() && !c.user) {
    ++int3_hits_;
    emulate(c, site->second, frame);
  } else {
    const auto rule = traps_.find(a);
    if (rule == traps_.end()) throw std::logic_error(fmt::format("INT3 at {:#x} without a handler", a));
    frame.ip = rule->second(c);
  }
  deliver(c, config_.int3_entry, frame);
}

// arch/x86/kernel/alternative.c poke_int3_handler(): what the new bytes would do.
void Machine::emulate(SimCpu& c, const std::vector<uint8_t>& b, StackFrame& frame) {
  const Addr a = c.ip;
  const auto relative = [&](size_t at, size_t width, size_t length) {
    uint64_t d = 0;
    for (size_t i = 0; i < width; ++i) d |= static_cast<uint64_t>(b[at + i]) << (8 * i);
    const int64_t disp = width == 1 ? static_cast<int8_t>(d) : static_cast<int32_t>(d);
    return a + length + static_cast<Addr>(disp);
  };
  const bool nop = (b[0] == 0x0f && b[1] == 0x1f) || (b[0] == 0x66 && b[1] == 0x90);
  if (b[0] == 0xe9) {
    frame.ip = relative(1, 4, 5);
  } else if (b[0] == 0xeb) {
    frame.ip = relative(1, 1, 2);
  } else if (b[0] == 0xe8) {
    frame.ip = relative(1, 4, 5);
    frame.pushed = a + 5;
  } else if (b[0] == 0xc3) {
    if (c.task->kernel_stack.empty()) throw std::logic_error("emulated RET on an empty stack");
    frame.ip = c.task->kernel_stack.back().ip;
    c.task->kernel_stack.pop_back();
  } else if (nop) {
    frame.ip = a + b.size();
  } else if (b[0] == 0x0f && (b[1] & 0xf0) == 0x80) {
    const auto rule = branches_.find(a);
    const bool taken = rule != branches_.end() ? rule->second(c) : c.random.chance(50);
    frame.ip = taken ? relative(2, 4, 6) : a + 6;
  } else {
    throw std::logic_error(fmt::format("INT3 at {:#x}: cannot emulate {:02x}", a, b[0]));
  }
}

void Machine::near_call(SimCpu& c, Addr return_address) {
  if (c.user) {
    c.task->user_stack.push_back(return_address);
  } else {
    c.task->kernel_stack.push_back({StackFrame::Kind::kCall, return_address, false, false, 0});
  }
}

void Machine::do_ret(SimCpu& c) {
  Addr to = 0;
  if (c.user) {
    if (c.task->user_stack.empty())
      throw std::logic_error(fmt::format("RET on an empty stack at {:#x}", c.ip));
    to = c.task->user_stack.back();
    c.task->user_stack.pop_back();
  } else {
    auto& stack = c.task->kernel_stack;
    if (stack.empty() || stack.back().kind != StackFrame::Kind::kCall) {
      throw std::logic_error(fmt::format("RET without a CALL at {:#x}", c.ip));
    }
    to = stack.back().ip;
    stack.pop_back();
  }
  c.tracer.ret(to);
  c.ip = to;
}

void Machine::trap_return(SimCpu& c) {
  auto& stack = c.task->kernel_stack;
  if (stack.empty() || stack.back().kind != StackFrame::Kind::kTrap) {
    throw std::logic_error(fmt::format("return from a trap without one at {:#x}", c.ip));
  }
  const StackFrame f = stack.back();
  stack.pop_back();
  c.tracer.transfer(f.ip, f.user, false);
  // The handler wrote the return address into the gap it had left on the stack: the processor executed no
  // CALL.
  if (f.pushed != 0) stack.push_back({StackFrame::Kind::kCall, f.pushed, false, false, 0});
  c.ip = f.ip, c.user = f.user, c.irqs_off = f.irqs_off;
}

void Machine::switch_task(SimCpu& c, Addr next_ip) {
  SimTask* prev = c.task;
  SimTask* next = c.next_task != nullptr ? c.next_task : prev;
  c.next_task = nullptr;
  c.tracer.mov_cr3(next->cr3);
  c.ip = next_ip;
  if (next == prev) return;
  const int32_t prev_pid = prev->pid, prev_tid = prev->tid, next_pid = next->pid, next_tid = next->tid;
  side(c.tsc, c.id, [next_pid, next_tid](PerfDataWriter& w, const Trailer& t) {
    w.context_switch_cpu_wide(true, false, next_pid, next_tid, t);
  });
  c.task = next;
  side(c.tsc + 1, c.id, [prev_pid, prev_tid](PerfDataWriter& w, const Trailer& t) {
    w.context_switch_cpu_wide(false, false, prev_pid, prev_tid, t);
  });
}

void Machine::execute(SimCpu& c, const SimInsn& insn) {
  const Addr next = c.ip + insn.length;
  switch (insn.kind) {
    case SimKind::kStraight:
      c.ip = next;
      if (const auto rule = instructions_.find(next - insn.length); rule != instructions_.end())
        rule->second(c);
      return;
    case SimKind::kJump:
      c.ip = insn.target;
      return;
    case SimKind::kCond: {
      const auto rule = branches_.find(c.ip);
      const bool taken = rule != branches_.end() ? rule->second(c) : c.random.chance(50);
      c.tracer.cond(taken);
      c.ip = taken ? insn.target : next;
      return;
    }
    case SimKind::kCall:
      c.tracer.call(next, insn.target);
      near_call(c, next);
      c.ip = insn.target;
      return;
    case SimKind::kCallIndirect:
    case SimKind::kJumpIndirect: {
      const auto rule = targets_.find(c.ip);
      if (rule == targets_.end())
        throw std::logic_error(fmt::format("no rule for the indirect branch at {:#x}", c.ip));
      const Addr to = rule->second(c);
      if (insn.kind == SimKind::kCallIndirect) {
        c.tracer.call_indirect(next, to);
        near_call(c, next);
      } else {
        c.tracer.jump_indirect(to);
      }
      c.ip = to;
      return;
    }
    case SimKind::kRet:
      do_ret(c);
      return;
    case SimKind::kSyscall:
      if (!c.user) throw std::logic_error("SYSCALL in the kernel");
      c.task->kernel_stack.push_back({StackFrame::Kind::kTrap, next, true, false, 0});
      c.tracer.transfer(config_.syscall_entry, false, false);
      c.ip = config_.syscall_entry, c.user = false;
      return;
    case SimKind::kSysret:
    case SimKind::kIret:
      trap_return(c);
      return;
    case SimKind::kMovCr3:
      switch_task(c, next);
      return;
    case SimKind::kPtwrite:
      c.tracer.ptwrite(c.random.next());
      c.ip = next;
      return;
    case SimKind::kInt3:
      break;
  }
  throw std::logic_error("INT3 does not retire");
}

void Machine::side(uint64_t tsc, unsigned cpu, std::function<void(PerfDataWriter&, const Trailer&)> emit) {
  const SimTask* task = cpus_[cpu]->task;
  side_.push_back({tsc, cpu, task ? task->pid : 0, task ? task->tid : 0, std::move(emit)});
}

}  // namespace asof::test
