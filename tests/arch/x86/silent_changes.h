// Changes of text without a record, as real kernels make them: modules reloaded, memory of unloaded programs
// reused by unannounced code, sites patched while records are lost, user text written.
#pragma once
#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tests/arch/x86/module_text.h"

namespace asof::x86::test {

using asof::test::SimTask;

// True if a CPU is in `range` or a task will return to it.
inline bool in_use(const Machine& m, std::span<SimTask* const> tasks, AddrRange range) {
  for (unsigned i = 0; i < m.cpu_count(); ++i)
    if (range.contains(m.cpu(i).ip)) return true;
  return std::ranges::any_of(tasks, [range](const SimTask* t) {
    return std::ranges::any_of(t->kernel_stack, [range](const auto& f) { return range.contains(f.ip); });
  });
}

// Memory is reused when no CPU or task is in it.
inline void when_unused(Machine& m, const std::vector<SimTask*>& tasks, AddrRange range,
                        std::function<bool()> also, std::function<void()> action) {
  if (!in_use(m, tasks, range) && also()) return action();
  m.schedule(m.now() + 20, [&m, &tasks, range, also = std::move(also), action = std::move(action)] {
    when_unused(m, tasks, range, also, action);
  });
}

// One module after the other at one address: the same, or another of its kind, with its static branches in
// their initial state.
class Modules {
 public:
  Modules(Machine& machine, const Program& kernel, SimRandom& random, const std::vector<SimTask*>& tasks)
      : machine_(machine), kernel_(kernel), random_(random), tasks_(tasks), shape_(random.next()) {
    now_ = next();
    machine_.memory().load(kKernelSpace, ModuleText::kRange.begin, now_.bytes);
    first_ = now_.bytes;
  }
  void schedule(uint64_t start, uint64_t ticks) {
    for (uint64_t t = start + random_.below(ticks); t < start + ticks; t += random_.between(1'000, ticks))
      machine_.schedule(t, [this] { replace(); });
  }
  // Switches some of the current static branches.
  void switch_keys(std::vector<asof::test::PokeSite>& batch) {
    for (const auto& [at, on] : now_.sites) {
      if (!random_.chance(60)) continue;
      const bool is_on = machine_.memory().byte(kKernelSpace, at) == 0xe9;
      batch.push_back({at, is_on ? asof::test::nop5_bytes() : asof::test::jmp32_bytes(at, on)});
    }
  }
  // As a copy of memory shows it, made at `read` (TSC) or before the run.
  void add_layer(Builder& b, std::optional<uint64_t> read) {
    Layer l;
    l.range = ModuleText::kRange;
    if (read) {
      first_ = machine_.memory().read_at(*read, kKernelSpace, l.range.begin, l.range.size());
      l.observed = machine_.perf_time(*read);
    }
    l.bytes = first_;
    l.replaceable = l.unsure = true;
    b.add_layer(l);
  }

 private:
  ModuleText next() {
    if (random_.chance(10)) shape_ = random_.next();
    return ModuleMaker(shape_, random_.next(), kernel_).make(machine_);
  }
  bool no_poke_under_way() const {
    return std::ranges::none_of(now_.sites, [this](const auto& site) {
      const uint8_t first = machine_.memory().byte(kKernelSpace, site.first);
      return first == 0xcc;
    });
  }
  void replace() {
    when_unused(
        machine_, tasks_, ModuleText::kRange, [this] { return no_poke_under_way(); },
        [this] {
          const bool same = random_.chance(30);
          Bytes bytes = same ? now_.bytes : Bytes();
          if (!same) {
            now_ = next();
            bytes = now_.bytes;
          }
          machine_.memory().write(machine_.now(), kKernelSpace, ModuleText::kRange.begin, bytes);
        });
  }

  Machine& machine_;
  const Program& kernel_;
  SimRandom& random_;
  const std::vector<SimTask*>& tasks_;
  uint64_t shape_;
  ModuleText now_;
  Bytes first_;
};

// Changes sites of `program` without a record, each once, at or after `from`. Returns the addresses and times
// (TSC).
inline std::vector<std::pair<Addr, uint64_t>> change_unseen(Machine& machine, const Program& program,
                                                            Space space, SimRandom& random, uint64_t from,
                                                            uint64_t until) {
  std::vector<std::pair<Addr, uint64_t>> out;
  if (from >= until) return out;
  for (const Program::Unseen& u : program.unseen()) {
    if (!random.chance(50)) continue;
    const uint64_t t = random.between(from, until);
    out.emplace_back(u.at, t);
    machine.schedule(t, [&machine, t, space, at = u.at, bytes = program.state(u, true)] {
      machine.memory().write(t, space, at, bytes);
    });
  }
  return out;
}

}  // namespace asof::x86::test
