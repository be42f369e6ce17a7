// Probes of a simulated kernel: INT3 in its own text, recorded, and in the text of processes, not recorded.
#pragma once
#include <map>
#include <vector>

#include "tests/decoder/captures/recorded_fixture.h"

namespace asof::x86::test {

// arch/x86/kernel/kprobes/core.c: arm_kprobe() records after its write, disarm_kprobe() before; the slot's
// bytes are recorded without the old ones.
class Kprobes {
 public:
  static constexpr Addr kSlots = 0xffffffffc0006000;
  static constexpr uint64_t kSlotSize = 32, kMostSlots = 2;

  Kprobes(const RecordedFixture& s, PokeQueue& queue, std::vector<GeneratedSymbol>& symbols)
      : s_(s), queue_(queue), symbols_(symbols) {}
  void schedule(uint64_t start) {
    if (s_.kernel.probes().empty()) return;
    for (uint64_t slot = 0; slot < kMostSlots; ++slot)
      s_.at(start + s_.random.below(6000), [this, slot] { arm(slot); });
  }

 private:
  void arm(uint64_t slot) {
    if (s_.now() >= s_.end) return;
    const Program::Probe& p = s_.kernel.probes()[s_.random.below(s_.kernel.probes().size())];
    if (s_.machine.memory().byte(kKernelSpace, p.at) == 0xcc || std::ranges::count(armed_, p.at) != 0)
      return s_.in(200, [this, slot] { arm(slot); });
    armed_.push_back(p.at);
    const Addr at = kSlots + slot * kSlotSize;
    Bytes text = p.insn;
    const Bytes back = asof::test::jmp32_bytes(at + p.insn.size(), p.at + p.insn.size());
    text.insert(text.end(), back.begin(), back.end());
    const unsigned cpu = s_.any_cpu();
    if (!page_) {
      page_ = true;
      symbols_.push_back({kSlots, "kprobe_insn_page", "__builtin__kprobes", s_.now()});
      s_.machine.side(s_.now(), cpu, [](PerfDataWriter& w, const Trailer& t) {
        w.ksymbol(kSlots, 4096, kKsymOutOfLine, kRegister, "kprobe_insn_page", t);
      });
    }
    s_.write(at, text);
    s_.machine.record_poke(s_.now() + 1, cpu, at, {}, text);
    s_.machine.on_int3(p.at, [at](SimCpu&) { return at; });
    queue_.add(
        [this, &p, cpu](const PokeQueue::Done& next) {
          s_.write(p.at, {0xcc});
          s_.in(sync(), [this, &p, cpu, next] {
            s_.machine.record_poke(s_.now(), cpu, p.at, {p.insn[0]}, {0xcc});
            next();
          });
        },
        [this, &p, slot] { s_.in(s_.random.between(100, 5000), [this, &p, slot] { disarm(p, slot); }); });
  }
  void disarm(const Program::Probe& p, uint64_t slot) {
    queue_.add(
        [this, &p](const PokeQueue::Done& next) {
          s_.machine.record_poke(s_.now(), s_.any_cpu(), p.at, {0xcc}, {p.insn[0]});
          s_.in(sync(), [this, &p, next] {
            s_.write(p.at, {p.insn[0]});
            next();
          });
        },
        [this, &p, slot] {
          s_.in(100, [this, &p, slot] {
            s_.unused(range_of(kSlots + slot * kSlotSize, kSlotSize), [this, &p, slot] {
              std::erase(armed_, p.at);
              s_.in(s_.random.below(2000), [this, slot] { arm(slot); });
            });
          });
        });
  }

  // Between the write and its record, all CPUs are made to synchronise.
  uint64_t sync() const { return s_.random.between(5, s_.random.chance(20) ? 3000 : 300); }

  const RecordedFixture& s_;
  PokeQueue& queue_;
  std::vector<GeneratedSymbol>& symbols_;
  std::vector<Addr> armed_;
  bool page_ = false;
};

// kernel/events/uprobes.c: INT3 in a process's text, without a record; the instruction runs in a slot of a
// [uprobes] page, followed by a trap, or is only emulated.
class Uprobes {
 public:
  static constexpr Addr kSlots = 0x7ffff000;

  Uprobes(const RecordedFixture& s, const Program& user) : s_(s), user_(user) {
    s_.machine.on_instruction(s_.kernel.address("debug.top"), [this](SimCpu& c) {
      Addr& back = c.task->kernel_stack.back().ip;
      if (const auto next = resume_at_.find(back); next != resume_at_.end()) back = next->second;
    });
  }
  void schedule(uint64_t start) {
    for (const Program::Probe& p : user_.probes()) {
      if (s_.random.chance(40)) s_.at(start + s_.random.below(12'000), [this, &p] { insert(p); });
    }
  }

 private:
  void insert(const Program::Probe& p) {
    const Addr next = p.at + p.insn.size(), slot = kSlots + 64 * resume_at_.size();
    if (!mapped_) {
      mapped_ = true;
      for (const SimTask* t : s_.tasks) {
        s_.machine.side(s_.now(), s_.any_cpu(), [pid = t->pid](PerfDataWriter& w, const Trailer& at) {
          w.mmap2({.pid = pid, .tid = pid, .addr = kSlots, .len = 4096, .filename = "[uprobes]"}, at);
        });
      }
    }
    if (s_.random.chance(50)) {
      s_.machine.on_int3(p.at, [next](SimCpu&) { return next; });
    } else {
      s_.machine.memory().write(s_.now(), 1, slot, p.insn);
      resume_at_[slot + p.insn.size()] = next;
      s_.machine.on_int3(p.at, [slot](SimCpu&) { return slot; });
      s_.machine.on_instruction(slot,
                                [this](SimCpu& c) { c.interrupts.push_front(s_.kernel.address("debug")); });
    }
    s_.machine.memory().write(s_.now(), 1, p.at, Bytes{0xcc});
    s_.in(s_.random.between(200, 8000),
          [this, &p] { s_.machine.memory().write(s_.now(), 1, p.at, Bytes{p.insn[0]}); });
  }

  const RecordedFixture& s_;
  const Program& user_;
  std::map<Addr, Addr> resume_at_;  // where the trap of a slot returns to
  bool mapped_ = false;
};

}  // namespace asof::x86::test
