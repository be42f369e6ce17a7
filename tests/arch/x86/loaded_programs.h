// Programs that are loaded one after the other at one address, or near it, and their records in a recording.
#pragma once
#include <optional>
#include <vector>

#include "tests/arch/x86/silent_changes.h"

namespace asof::x86::test {

struct ProgramSettings {
  bool any = false;          // the addresses of loaded programs are reused
  bool overlaps = false;     // ... or a part of their range, at times not known exactly
  bool unannounced = false;  // ... and some have no record (classic BPF)
  bool watched = false;      // bytes of some are known only from a watcher, which read them late
};

class LoadedPrograms {
 public:
  LoadedPrograms(Machine& machine, const Program& kernel, SimRandom& random,
                 const std::vector<SimTask*>& tasks, const ProgramSettings& settings, uint64_t seed)
      : machine_(machine), kernel_(kernel), random_(random), tasks_(tasks), settings_(settings), seed_(seed) {
    kernel_.program_rule(machine_, [this] { return live_; });
  }

  // None is called after the end of its KSYMBOL, and its bytes are removed only when no CPU can be in it.
  void schedule(uint64_t start, uint64_t ticks) {
    if (!settings_.any) return;
    constexpr uint64_t kGrace = 1500;
    if (settings_.unannounced) return schedule_reuse(start, ticks);
    uint64_t t = start;
    for (uint64_t i = 0; t < start + ticks; ++i) {
      const Addr at = Program::kProgramAt + (settings_.overlaps ? random_.below(32) : 0);
      Lifetime p{.at = at, .bytes = loaded_program(seed_ * 31 + i, at), .from = t, .until = 0};
      machine_.schedule(t, [this, t, at, bytes = p.bytes] {
        machine_.memory().write(t, kKernelSpace, at, bytes);
        live_ = at;
      });
      t += random_.between(800, 4000);
      p.until = t;
      machine_.schedule(t, [this] { live_.reset(); });
      t += kGrace + random_.below(500);
      lifetimes_.push_back(std::move(p));
    }
  }

  void add_layers(Builder& b) {
    for (const Lifetime& p : lifetimes_) {
      if (!p.announced) continue;
      Layer l;
      l.range = range_of(p.at, p.bytes.size());
      l.bytes = p.bytes;
      l.from = machine_.perf_time(p.from);
      l.until = machine_.perf_time(p.until);
      l.soft_until = true;
      l.rank = kRankEpoch;
      if (settings_.overlaps) blur(l);
      if (settings_.watched && random_.chance(50)) {
        l.from = machine_.perf_time(random_.between(p.from, p.until));
        l.rank = kRankWatched;
      }
      b.add_layer(l);
    }
  }

 private:
  struct Lifetime {
    Addr at = 0;
    Bytes bytes;
    uint64_t from = 0, until = 0;
    bool announced = true;
  };

  // Announced and unannounced ones at random, at the same address, each when the previous one is unused.
  void schedule_reuse(uint64_t start, uint64_t ticks) {
    end_ = start + ticks;
    begin(start + random_.below(1000));
  }
  void begin(uint64_t t) {
    if (t >= end_) return;
    const AddrRange memory = range_of(Program::kProgramAt, 256);
    machine_.schedule(t, [this, memory] {
      when_unused(
          machine_, tasks_, memory, [] { return true; },
          [this] {
            const uint64_t now = machine_.now();
            const bool announced = random_.chance(50);
            Lifetime p{Program::kProgramAt,
                       loaded_program(seed_ * 31 + random_.below(1000), Program::kProgramAt, &kernel_), now,
                       end_, announced};
            machine_.memory().write(now, kKernelSpace, p.at, p.bytes);
            live_ = p.at;
            lifetimes_.push_back(std::move(p));
            const uint64_t until = now + random_.between(300, 3000);
            machine_.schedule(until, [this, until] {
              live_.reset();
              lifetimes_.back().until = until;
              begin(until + random_.between(10, 600));
            });
          });
    });
  }
  // A lifetime that is recorded as too long, at either end.
  void blur(Layer& l) {
    const auto much = [this] { return static_cast<Time>(random_.below(random_.chance(50) ? 500 : 4000)); };
    l.from = random_.chance(15) ? kTimeMin : l.from - much();
    if (random_.chance(50)) {
      constexpr Time kUntilFreed = 2000;
      l.soft_until = false;
      l.until = random_.chance(30) ? kTimeMax : l.until + kUntilFreed + much();
    }
  }

  Machine& machine_;
  const Program& kernel_;
  SimRandom& random_;
  const std::vector<SimTask*>& tasks_;
  ProgramSettings settings_;
  uint64_t seed_;
  uint64_t end_ = 0;
  std::optional<Addr> live_;
  std::vector<Lifetime> lifetimes_;  // none are added once there are layers
};

}  // namespace asof::x86::test
