// Shared by all code that changes a simulated kernel's text: the machine, the watcher, a queue of poke
// batches, memory for generated code. Each change is made in the kernel's order and writes the kernel's
// records, or none where the kernel writes none.
#pragma once
#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/arch/x86/silent_changes.h"
#include "tests/support/capture_builder.h"

namespace asof::x86::test {

using asof::test::BpfProgSpec;
using asof::test::PerfDataWriter;
using asof::test::PokeSite;
using asof::test::Trailer;

// A symbol that is in /proc/kallsyms for some time.
struct GeneratedSymbol {
  Addr at = 0;
  std::string name, module;
  uint64_t from = 0, until = ~0ULL;  // TSC
};

// ksym_text.bin (docs/bundle.md): bytes that a watcher reads some time after it learned of a symbol, if the
// symbol still exists then.
class Watcher {
 public:
  Watcher(Machine& machine, SimRandom& random) : machine_(machine), random_(random) {}
  void look(uint32_t type, AddrRange range, std::function<bool()> there) {
    if (!random_.chance(40)) return;
    machine_.schedule(machine_.now() + random_.below(2000), [this, type, range, there = std::move(there)] {
      if (!there()) return;
      constexpr uint32_t kTimeIsPerfs = 0x80000000;
      out_.u64(static_cast<uint64_t>(machine_.perf_time(machine_.now())));
      out_.u64(range.begin);
      out_.u32(static_cast<uint32_t>(range.size()));
      out_.u32(type | kTimeIsPerfs);
      out_.raw(machine_.memory().read(kKernelSpace, range.begin, range.size()));
    });
  }
  const Bytes& file() const { return out_.bytes(); }

 private:
  Machine& machine_;
  SimRandom& random_;
  asof::test::ByteSink out_{false};
};

// State shared by the mechanisms.
struct RecordedFixture {
  Machine& machine;
  const Program& kernel;
  SimRandom& random;
  const std::vector<SimTask*>& tasks;
  uint64_t end = 0;            // TSC
  Watcher* watcher = nullptr;  // nullptr: none

  uint64_t now() const { return machine.now(); }
  unsigned any_cpu() const { return static_cast<unsigned>(random.below(machine.cpu_count())); }
  void at(uint64_t tsc, std::function<void()> action) const { machine.schedule(tsc, std::move(action)); }
  void in(uint64_t ticks, std::function<void()> action) const { at(now() + ticks, std::move(action)); }
  void write(Addr at, const Bytes& bytes) const { machine.memory().write(now(), kKernelSpace, at, bytes); }
  void look(uint32_t type, AddrRange range, std::function<bool()> there) const {
    if (watcher != nullptr) watcher->look(type, range, std::move(there));
  }
  void unused(AddrRange range, std::function<void()> action) const {
    when_unused(
        machine, tasks, range, [] { return true; }, std::move(action));
  }
};

// KSYMBOL types and flags, BPF_EVENT types (include/uapi/linux/perf_event.h).
enum RecordKind : uint16_t {
  kKsymBpf = 1,
  kKsymOutOfLine = 2,
  kRegister = 0,
  kUnregister = 1,
  kBpfLoad = 1,
  kBpfUnload = 2
};

// Text changes under text_mutex: one after the other.
class PokeQueue {
 public:
  explicit PokeQueue(const RecordedFixture& s) : s_(s) {}
  using Done = std::function<void()>;

  // `sites` is called when the batch begins.
  void poke(
      std::function<std::vector<PokeSite>()> sites, Done done = [] {}) {
    add(
        [this, sites = std::move(sites)](const Done& next) {
          const std::vector<PokeSite> all = sites();
          if (all.empty()) return next();
          s_.machine.poke_batch(s_.now(), s_.any_cpu(), all,
                                {.int3_to_tail = s_.random.between(50, 600),
                                 .between_records = 20,
                                 .tail_to_head = s_.random.between(50, 600)});
          s_.in(10, [this, next] { wait(next); });
        },
        std::move(done));
  }
  void add(std::function<void(const Done&)> change, Done done) {
    waiting_.emplace_back(std::move(change), std::move(done));
    if (!busy_) start();
  }

 private:
  void wait(const Done& next) {
    if (!s_.machine.poking()) return next();
    s_.in(50, [this, next] { wait(next); });
  }
  void start() {
    if (waiting_.empty()) return;
    busy_ = true;
    auto [change, done] = std::move(waiting_.front());
    waiting_.pop_front();
    change([this, done = std::move(done)] {
      busy_ = false;
      done();
      if (!busy_) start();
    });
  }

  const RecordedFixture& s_;
  std::deque<std::pair<std::function<void(const Done&)>, Done>> waiting_;
  bool busy_ = false;
};

// Memory for generated code.
class CodeSlots {
 public:
  static constexpr Addr kBegin = Program::kProgramAt;
  static constexpr uint64_t kSize = 256, kCount = 4;

  std::optional<Addr> take(SimRandom& random) {
    const size_t first = random.below(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      const size_t n = (first + i) % kCount;
      if (busy_.at(n)) continue;
      busy_.at(n) = true;
      return kBegin + n * kSize;
    }
    return std::nullopt;
  }
  void give_back(Addr slot) { busy_.at((slot - kBegin) / kSize) = false; }

 private:
  std::array<bool, kCount> busy_{};
};

}  // namespace asof::x86::test
