// Machine: a small simulated x86-64 multiprocessor whose text changes while it runs. It executes real code
// bytes as far as control flow is concerned: straight-line instructions are skipped; outcomes of conditional
// branches and targets of indirect ones come from rules or a seeded source of numbers; calls and returns use
// real stacks; SYSCALL, SYSRET, IRET, INT3, MOV CR3 and interrupts have their real effect. Every CPU has its
// trace unit (PtTracer) and its Truth.
//
// Text changes follow the kernel: arch/x86/kernel/alternative.c text_poke_bp_batch() (INT3, sync, tail and
// record, sync, first byte, sync) with poke_int3_handler()'s emulation; kernel/bpf and kernel/events/core.c
// for the records.
//
// Time is the TSC. Nothing depends on the host: the same configuration gives the same capture.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/support/perf_data_writer.h"
#include "tests/support/pt_tracer.h"
#include "tests/support/sim_memory.h"
#include "tests/support/sim_random.h"
#include "tests/support/truth.h"

namespace asof::test {

class Machine;

struct MachineConfig {
  unsigned cpus = 2;
  uint64_t seed = 1;
  uint64_t tsc_start = 2'400'000'000;
  uint32_t min_cost = 2, max_cost = 9;  // TSC ticks per instruction
  TracerConfig trace;
  TimeConvSpec clock{.shift = 31, .mult = 894784853, .zero = 5'000'000'000};  // 2.4 GHz
  Addr syscall_entry = 0;
  Addr int3_entry = 0;
  Addr sync_entry = 0;            // IPI handler that serialises; 0: batches only wait
  bool keep_instructions = true;  // in Truth
};

// One entry of a kernel stack.
struct StackFrame {
  enum class Kind : uint8_t { kCall, kTrap } kind = Kind::kCall;
  Addr ip = 0;            // target of RET, IRET or SYSRET
  bool user = false;      // trap from user mode
  bool irqs_off = false;  // state to restore
  Addr pushed = 0;        // INT3 emulation of a CALL: return address to push when the trap ends
};

struct SimTask {
  int32_t pid = 0, tid = 0;
  std::string comm;
  Space space = 0;
  uint64_t cr3 = 0;
  std::vector<Addr> user_stack;
  std::vector<StackFrame> kernel_stack;
};

struct AuxChunk {
  uint64_t begin = 0, end = 0;  // stream offsets
  uint64_t flags = 0;           // PERF_AUX_FLAG_*
  uint64_t tsc = 0;             // when it was handed over
  int32_t pid = 0, tid = 0;     // task that ran then
};

struct SimCpu {
  SimCpu(unsigned id, const MachineConfig& config);

  unsigned id;
  uint64_t tsc;
  Addr ip = 0;
  bool user = false;
  bool halted = true;
  bool irqs_off = false;
  SimTask* task = nullptr;
  SimTask* next_task = nullptr;  // taken at the next MOV CR3
  PtTracer tracer;
  Truth truth;
  SimRandom random;
  std::deque<Addr> interrupts;  // handlers of pending ones
  bool was_traced = false;
  bool losing = false;  // the buffer is full at the next instruction that needs a packet
  std::vector<AuxChunk> aux;
  uint64_t aux_begin = 0;
};

// A record of the side-band: written by `emit` when the capture is put together.
struct SideEvent {
  uint64_t tsc = 0;
  unsigned cpu = 0;
  int32_t pid = 0, tid = 0;
  std::function<void(PerfDataWriter&, const Trailer&)> emit;
  bool poke = false;  // TEXT_POKE
};

struct PokeSite {
  Addr addr = 0;
  std::vector<uint8_t> new_bytes;
  std::vector<uint8_t> emulate{};  // emulated while INT3 is at the site; empty: new_bytes
};

// TSC ticks between the steps of a poke batch.
struct PokeTiming {
  uint64_t int3_to_tail = 4000;
  uint64_t between_records = 60;
  uint64_t tail_to_head = 4000;
};

class Machine {
 public:
  using BranchRule = std::function<bool(SimCpu&)>;
  using TargetRule = std::function<Addr(SimCpu&)>;

  explicit Machine(const MachineConfig& config);

  const MachineConfig& config() const { return config_; }
  SimMemory& memory() { return memory_; }
  SimCpu& cpu(unsigned n) { return *cpus_[n]; }
  const SimCpu& cpu(unsigned n) const { return *cpus_[n]; }
  unsigned cpu_count() const { return static_cast<unsigned>(cpus_.size()); }
  uint64_t now() const { return now_; }
  Time perf_time(uint64_t tsc) const;

  // Tasks. A new one starts in user mode at `entry` when it is first switched to: the RET of the switch goes
  // to `first_return` (kernel code that ends in SYSRET or IRET).
  SimTask& add_task(int32_t pid, int32_t tid, std::string comm, Space space, Addr entry, Addr first_return);
  // Starts a CPU in user mode (at the task's entry) or in the kernel.
  void run_task(unsigned cpu, SimTask& task, Addr user_ip);
  void run_kernel(unsigned cpu, SimTask& task, Addr ip);

  // Branch outcomes. Without a rule, a conditional branch is taken half of the time, at random, and an
  // indirect one is an error of the test.
  void on_branch(Addr ip, BranchRule rule) { branches_[ip] = std::move(rule); }
  void on_indirect(Addr ip, TargetRule rule) { targets_[ip] = std::move(rule); }
  // An additional effect of a plain instruction.
  void on_instruction(Addr ip, std::function<void(SimCpu&)> rule) { instructions_[ip] = std::move(rule); }
  // An INT3 that stays (a kprobe, the end of its slot): where its handler returns to. Sites in a poke batch
  // take precedence.
  void on_int3(Addr ip, TargetRule rule) { traps_[ip] = std::move(rule); }
  // Taken n - 1 times, then not, per CPU: the branch at the end of a loop of n iterations.
  void loop_at(Addr ip, unsigned rounds);

  // Scheduled actions, in TSC order and before any instruction at or after `tsc`.
  void schedule(uint64_t tsc, std::function<void()> action);
  void interrupt_at(uint64_t tsc, unsigned cpu, Addr handler);

  // Runs until every CPU's clock has reached `tsc` and everything scheduled before it has happened.
  void run_until(uint64_t tsc);

  // Tracing.
  void start_trace(unsigned cpu);
  void stop_trace(unsigned cpu);
  // Hands over the bytes so far as one AUX chunk.
  void flush_aux(unsigned cpu, uint64_t flags = 0);
  // The buffer is full from `from` on (at the first instruction that needs a packet); tracing restarts at
  // `until`.
  void lose_trace_at(uint64_t from, uint64_t until, unsigned cpu);
  void overflow_at(uint64_t from, uint64_t until, unsigned cpu);
  // The CPU executes nothing from `from` until `until` (PtTracer::sleep).
  void sleep_at(uint64_t from, uint64_t until, unsigned cpu, bool deep, uint8_t cbr);
  // A single TSC packet, as after a sleep.
  void timestamp_at(uint64_t tsc, unsigned cpu);

  // Side-band.
  void side(uint64_t tsc, unsigned cpu, std::function<void(PerfDataWriter&, const Trailer&)> emit);
  const std::vector<SideEvent>& side_events() const { return side_; }
  void record_poke(uint64_t tsc, unsigned cpu, Addr addr, std::vector<uint8_t> old_bytes,
                   std::vector<uint8_t> new_bytes);

  // text_poke_bp_batch() begun at `tsc` by `cpu`.
  void poke_batch(uint64_t tsc, unsigned cpu, std::vector<PokeSite> sites, const PokeTiming& timing = {});
  // Is a batch in progress? True from its first write on.
  bool poking() const { return !int3_sites_.empty(); }
  // Bytes stored at once, with or without a record: kprobes, slots, silent changes.
  void write_text(uint64_t tsc, Addr addr, std::vector<uint8_t> bytes);

  // BPF: the image is written, followed by KSYMBOL for each function and BPF_EVENT. Unload: KSYMBOL
  // (unregister) for each function and BPF_EVENT; the memory stays until it is filled with INT3 `grace` ticks
  // later.
  void load_bpf(uint64_t tsc, unsigned cpu, const BpfProgSpec& program);
  void unload_bpf(uint64_t tsc, unsigned cpu, uint32_t id, uint64_t grace, bool record = true);
  const std::vector<BpfProgSpec>& bpf_programs() const { return bpf_; }
  // KSYMBOL of out-of-line code (kprobe slots, trampolines).
  void out_of_line(uint64_t tsc, unsigned cpu, Addr addr, uint32_t size, std::string name,
                   bool unregister = false);
  static std::string bpf_symbol(const BpfProgSpec& program, size_t function);

  // INT3 visits in poke windows so far.
  uint64_t int3_hits() const { return int3_hits_; }

 private:
  struct Batch;
  void step(SimCpu& c);
  void execute(SimCpu& c, const SimInsn& insn);
  void deliver(SimCpu& c, Addr handler, StackFrame frame);
  void int3(SimCpu& c);
  void emulate(SimCpu& c, const std::vector<uint8_t>& insn, StackFrame& frame);
  void do_ret(SimCpu& c);
  void trap_return(SimCpu& c);
  void switch_task(SimCpu& c, Addr next_ip);
  void poke_step(const std::shared_ptr<Batch>& batch);
  void sync_then(uint64_t earliest, unsigned writer, std::function<void()> next);
  void near_call(SimCpu& c, Addr return_address);
  bool needs_packet(const SimInsn& insn) const;

  MachineConfig config_;
  SimMemory memory_;
  std::vector<std::unique_ptr<SimCpu>> cpus_;
  std::vector<std::unique_ptr<SimTask>> tasks_;
  std::unordered_map<Addr, BranchRule> branches_;
  std::map<Addr, std::function<void(SimCpu&)>> instructions_;
  std::unordered_map<Addr, TargetRule> targets_;
  std::unordered_map<Addr, TargetRule> traps_;
  std::multimap<uint64_t, std::function<void()>> events_;
  std::vector<SideEvent> side_;
  std::map<Addr, std::vector<uint8_t>> int3_sites_;  // sites being patched: bytes to emulate
  std::vector<BpfProgSpec> bpf_;
  uint64_t now_ = 0;
  uint64_t int3_hits_ = 0;
};

}  // namespace asof::test
