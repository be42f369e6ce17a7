// EtmMachine: simulated arm64 CPUs that run a program of A64 words, their trace units, and text that changes
// while they run, in the way aarch64_insn_patch_text_nosync() changes it: a store at one instant, maintenance
// complete a little later, and no notification of other CPUs. Until its first context synchronisation event
// (exception entry, exception return, ISB) after that, a CPU may execute the old or the new word at each
// visit (Arm ARM B2.2.5, concurrent modification and execution of instructions).
//
// CPUs do not interact, so each runs alone. Nothing depends on the host: the same configuration gives the
// same trace.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tests/support/etm_asm.h"
#include "tests/support/etm_unit.h"
#include "tests/support/sim_random.h"

namespace asof::test {

// One word that ran.
struct A64Executed {
  Addr ip = 0;
  uint32_t word = 0;
  uint64_t time = 0;
  bool shown = false;    // a P0 element or exception after it is in the trace
  bool async = false;    // an exception was taken before it
  bool restart = false;  // the trace starts here, or starts again
};

// Where the trace has a synchronisation point, and how many instructions ran before it.
struct EtmSyncPoint {
  uint64_t offset = 0;
  size_t executed = 0;
};

// A change of one word.
struct EtmChange {
  Addr addr = 0;
  uint32_t old_word = 0, new_word = 0;
  uint64_t written = 0;   // the store
  uint64_t complete = 0;  // maintenance done, on the writer
  int writer = -1;        // CPU; -1: one that is not traced
};

// A word changed under stop_machine: every CPU is in the callback at that instant.
struct EtmStop {
  Addr addr = 0;
  uint32_t old_word = 0, new_word = 0;
  uint64_t called = 0;   // CPUs are interrupted from here on
  uint64_t written = 0;  // the store; all CPUs have arrived
};

struct EtmMachineConfig {
  uint64_t seed = 1;
  uint64_t start = 1'000'000'000;       // ns
  uint32_t min_cost = 1, max_cost = 9;  // ns per instruction
  bool keep_executed = true;            // else EtmCpu::executed() is empty
  EtmUnitConfig unit{};
  Addr vector = 0;  // of interrupts and SVC; code that ends in ERET
  // Code to which CPUs go for stop_machine: it calls the callback and ends in ERET; and the callback's ISB,
  // at which they wait.
  Addr stopper = 0, stop_isb = 0;
};

class EtmCpu;

class EtmMachine {
 public:
  using BranchRule = std::function<bool(EtmCpu&)>;
  using TargetRule = std::function<Addr(EtmCpu&)>;

  explicit EtmMachine(const EtmMachineConfig& config) : config_(config) {}

  const EtmMachineConfig& config() const { return config_; }
  void load(Addr base, std::vector<uint32_t> words);
  // Sorted by time for each address, each based on the word that the one before left.
  void change(const EtmChange& c) { changes_[c.addr].push_back(c); }
  // Without a rule, a conditional branch is taken half of the time, at random.
  void on_branch(Addr ip, BranchRule rule) { branches_[ip] = std::move(rule); }
  void on_indirect(Addr ip, TargetRule rule) { targets_[ip] = std::move(rule); }
  void loop_at(Addr ip, unsigned rounds);  // taken n - 1 times, then not
  // Where a BRK's handler returns to.
  void on_brk(Addr ip, TargetRule rule) { traps_[ip] = std::move(rule); }

  // By time.
  void stop_machine(const EtmStop& s) { stops_.push_back(s); }
  const std::vector<EtmStop>& stops() const { return stops_; }
  const std::map<Addr, std::vector<EtmChange>>& changes() const { return changes_; }
  // The word at the start.
  uint32_t word_at(Addr a) const;

 private:
  friend class EtmCpu;
  EtmMachineConfig config_;
  std::map<Addr, std::vector<uint32_t>> text_;
  std::map<Addr, std::vector<EtmChange>> changes_;
  std::vector<EtmStop> stops_;
  std::unordered_map<Addr, BranchRule> branches_;
  std::unordered_map<Addr, TargetRule> targets_, traps_;
};

class EtmCpu {
 public:
  EtmCpu(EtmMachine& machine, int id);

  void start(Addr ip);
  // Events for the first instruction boundary at or after `time`.
  void interrupt_at(uint64_t time) { todo_.emplace(time, Todo::kInterrupt); }
  void stop_at(uint64_t from, uint64_t until) { pause(from, until, Todo::kStop); }
  void overflow_at(uint64_t from, uint64_t until) { pause(from, until, Todo::kOverflow); }
  void run_until(uint64_t time);
  void finish() { unit_.finish(); }

  uint64_t now() const { return now_; }
  SimRandom& random() { return random_; }
  const EtmUnit& unit() const { return unit_; }
  EtmUnit& unit() { return unit_; }
  const std::vector<A64Executed>& executed() const { return executed_; }
  const std::vector<EtmSyncPoint>& sync_points() const { return sync_points_; }
  std::map<Addr, unsigned>& rounds() { return rounds_; }

 private:
  enum class Todo : uint8_t { kInterrupt, kStop, kOverflow, kStart };
  void pause(uint64_t from, uint64_t until, Todo what);
  void handle_due();
  void writers_due();
  bool stop_due();
  uint32_t fetch(Addr a);
  void step();
  void execute(const A64Insn& insn, Addr next);
  void enter(uint16_t type, Addr from, Addr return_to) {
    enter(type, from, return_to, machine_.config_.vector);
  }
  void enter(uint16_t type, Addr from, Addr return_to, Addr vector);
  void shown();
  void note_sync();
  void synchronised() { last_sync_ = now_; }

  EtmMachine& machine_;
  int id_;
  SimRandom random_;
  EtmUnit unit_;
  uint64_t now_;
  uint64_t last_sync_ = 0;  // context synchronisation event
  Addr ip_ = 0;
  std::vector<Addr> calls_, traps_;
  std::multimap<uint64_t, Todo> todo_;
  std::multimap<uint64_t, const EtmChange*> own_;  // changes this CPU makes
  std::map<Addr, unsigned> rounds_;
  size_t stops_ = 0;         // that have begun on this CPU
  size_t stopped_from_ = 0;  // exceptions to return from, outside the stopper
  bool stopped_ = false;
  std::vector<A64Executed> executed_;
  std::vector<EtmSyncPoint> sync_points_;
  size_t shown_ = 0;
  bool async_ = false, restart_ = true;  // before the next instruction
};

}  // namespace asof::test
