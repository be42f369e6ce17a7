// What a simulated kernel does to its text while it runs: batches of pokes one after the other, BPF programs,
// trampolines, dispatchers, kprobes. Memory of what is gone is used again when no CPU is in it any more. Each
// does it in the kernel's order and writes the kernel's records, or none where the kernel writes none.
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

// A symbol that /proc/kallsyms has for some time.
struct GeneratedSymbol {
  Addr at = 0;
  std::string name, module;
  uint64_t from = 0, until = ~0ULL;  // TSC
};

// ksym_text.bin (docs/bundle.md): bytes that a watcher reads some time after it learned of a symbol, if that
// is still there then.
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

// What the mechanisms share.
struct Scenery {
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

// Changes of text under text_mutex: one after the other.
class PokeQueue {
 public:
  explicit PokeQueue(const Scenery& s) : s_(s) {}
  using Done = std::function<void()>;

  // Sites are asked for when their turn comes.
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

  const Scenery& s_;
  std::deque<std::pair<std::function<void(const Done&)>, Done>> waiting_;
  bool busy_ = false;
};

// Memory for generated code.
class CodePlaces {
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
  void give_back(Addr place) { busy_.at((place - kBegin) / kSize) = false; }

 private:
  std::array<bool, kCount> busy_{};
};

// BPF programs, and classic ones that nobody announces.
class RecordedPrograms {
 public:
  RecordedPrograms(const Scenery& s, CodePlaces& places, std::vector<GeneratedSymbol>& symbols)
      : s_(s), places_(places), symbols_(symbols) {
    s_.kernel.program_rule(s_.machine, [this]() -> std::optional<Addr> {
      if (live_.empty()) return std::nullopt;
      return live_[s_.random.below(live_.size())];
    });
  }
  void schedule(uint64_t start) {
    if (s_.random.chance(60)) load(true);
    for (uint64_t n = s_.random.between(1, 2); n != 0; --n)
      s_.at(start + s_.random.below(2000), [this] { load(false); });
  }
  const std::vector<BpfProgSpec>& images() const { return images_; }

 private:
  // `early`: before the recording.
  void load(bool early) {
    if (s_.now() >= s_.end) return;
    const auto place = places_.take(s_.random);
    if (!place) return s_.in(300, [this] { load(false); });
    const Addr at = *place + 64 * s_.random.below(3);
    const Bytes bytes = loaded_program(s_.random.next(), at, &s_.kernel);
    const bool announced = s_.random.chance(60);
    BpfProgSpec p;
    p.id = ++last_id_;
    p.tag = {static_cast<uint8_t>(s_.random.below(3)), 1, 2, 3, 4, 5, 6, 7};
    p.name = "p";
    p.functions = {{at, bytes, p.tag}};
    if (early)
      s_.machine.memory().load(kKernelSpace, at, bytes);
    else
      s_.write(at, bytes);
    const size_t symbol = symbols_.size();
    if (announced) {
      symbols_.push_back({at, Machine::bpf_symbol(p, 0), "bpf", early ? 0 : s_.now()});
      announce(early ? 0 : s_.now(), p, true);
      s_.look(kKsymBpf, range_of(at, bytes.size()),
              [this, symbol] { return symbols_.at(symbol).until == ~0ULL; });
      if (s_.random.chance(80)) images_.push_back(p);
    }
    live_.push_back(at);
    s_.in(s_.random.between(300, 4000), [this, at, p, announced, symbol, place = *place] {
      std::erase(live_, at);
      if (announced) {
        symbols_.at(symbol).until = s_.now();
        announce(s_.now(), p, false);
      }
      const AddrRange range = range_of(at, p.functions[0].bytes.size());
      s_.unused(range, [this, range, place] {
        if (s_.random.chance(50)) s_.write(range.begin, Bytes(range.size(), 0xcc));
        s_.in(s_.random.below(600), [this, place] {
          places_.give_back(place);
          load(false);
        });
      });
    });
  }
  // kernel/events/core.c perf_event_bpf_event(): symbols first.
  void announce(uint64_t tsc, const BpfProgSpec& p, bool load) {
    const unsigned cpu = s_.any_cpu();
    s_.machine.side(tsc, cpu, [p, load](PerfDataWriter& w, const Trailer& t) {
      w.ksymbol(p.functions[0].address, static_cast<uint32_t>(p.functions[0].bytes.size()), kKsymBpf,
                load ? kRegister : kUnregister, Machine::bpf_symbol(p, 0), t);
    });
    s_.machine.side(tsc == 0 ? 0 : tsc + 5, cpu, [p, load](PerfDataWriter& w, const Trailer& t) {
      w.bpf_event(load ? kBpfLoad : kBpfUnload, p.id, p.tag, t);
    });
  }

  const Scenery& s_;
  CodePlaces& places_;
  std::vector<GeneratedSymbol>& symbols_;
  std::vector<Addr> live_;
  std::vector<BpfProgSpec> images_;
  uint32_t last_id_ = 0;
};

// ftrace trampolines, whose bytes TEXT_POKE has, and those of BPF, whose bytes are nowhere: one after the
// other, each called from the beginnings of some functions. arch/x86/kernel/ftrace.c create_trampoline(),
// kernel/trace/ftrace.c ftrace_trampoline_free().
class Trampolines {
 public:
  Trampolines(const Scenery& s, PokeQueue& queue, CodePlaces& places, std::vector<GeneratedSymbol>& symbols)
      : s_(s), queue_(queue), places_(places), symbols_(symbols) {}
  void schedule(uint64_t start) {
    s_.at(start + s_.random.below(6000), [this] { begin(); });
  }

 private:
  void begin() {
    if (s_.now() >= s_.end) return;
    const auto place = places_.take(s_.random);
    if (!place) return s_.in(300, [this] { begin(); });
    place_ = *place;
    of_bpf_ = s_.random.chance(30);
    Assembler a(place_);
    for (uint64_t n = s_.random.between(1, 3); n != 0; --n)
      a.straight(static_cast<unsigned>(s_.random.below(Assembler::kStraightKinds)));
    if (s_.random.chance(50)) a.jcc8(kConds[s_.random.below(5)], "out");
    a.call(s_.kernel.address("tick")).label("out").straight(1).ret();
    bytes_ = a.finish();
    s_.write(place_, bytes_);
    const std::string name = of_bpf_ ? fmt::format("bpf_trampoline_{}", ++count_) : "ftrace_trampoline";
    symbols_.push_back({place_, name, of_bpf_ ? "bpf" : "__builtin__ftrace", s_.now()});
    ksymbol(s_.now(), kRegister);
    s_.look(of_bpf_ ? kKsymBpf : kKsymOutOfLine, range_of(place_, bytes_.size()),
            [this, symbol = symbols_.size() - 1] { return symbols_.at(symbol).until == ~0ULL; });
    if (!of_bpf_) s_.machine.record_poke(s_.now() + 1, cpu_, place_, {}, bytes_);
    called_.clear();
    queue_.poke(
        [this] {
          std::vector<PokeSite> out;
          for (const Addr at : s_.kernel.fentries()) {
            if (!s_.random.chance(40)) continue;
            called_.push_back(at);
            out.push_back({at, asof::test::call_bytes(at, place_)});
          }
          return out;
        },
        [this] { s_.in(s_.random.between(200, 6000), [this] { remove(); }); });
  }
  void remove() {
    queue_.poke(
        [this] {
          std::vector<PokeSite> out;
          for (const Addr at : called_) out.push_back({at, asof::test::nop5_bytes()});
          return out;
        },
        [this] { s_.unused(range_of(place_, bytes_.size()), [this] { free(); }); });
  }
  void free() {
    for (GeneratedSymbol& y : symbols_)
      if (y.at == place_ && y.until == ~0ULL) y.until = s_.now();
    if (!of_bpf_) s_.machine.record_poke(s_.now(), cpu_, place_, bytes_, {});
    ksymbol(s_.now() + 1, kUnregister);
    s_.in(10, [this] {
      if (s_.random.chance(50)) s_.write(place_, Bytes(bytes_.size(), 0xcc));
      places_.give_back(place_);
      s_.in(s_.random.between(100, 4000), [this] { begin(); });
    });
  }
  void ksymbol(uint64_t tsc, uint16_t flags) {
    if (flags == kRegister) cpu_ = s_.any_cpu();
    const std::string name = of_bpf_ ? fmt::format("bpf_trampoline_{}", count_) : "ftrace_trampoline";
    const auto size = static_cast<uint32_t>(of_bpf_ ? 4096 : bytes_.size());
    s_.machine.side(tsc, cpu_,
                    [at = place_, size, type = of_bpf_ ? kKsymBpf : kKsymOutOfLine, flags, name](
                        PerfDataWriter& w, const Trailer& t) { w.ksymbol(at, size, type, flags, name, t); });
  }

  const Scenery& s_;
  PokeQueue& queue_;
  CodePlaces& places_;
  std::vector<GeneratedSymbol>& symbols_;
  Addr place_ = 0;
  bool of_bpf_ = false;
  unsigned cpu_ = 0, count_ = 0;
  Bytes bytes_;
  std::vector<Addr> called_;
};

// kernel/bpf/dispatcher.c bpf_dispatcher_update(): the half that is not in use is written, then the caller is
// poked to it.
class Dispatcher {
 public:
  static constexpr Addr kAt = 0xffffffffc0004000;
  static constexpr uint64_t kHalf = 2048;

  Dispatcher(const Scenery& s, PokeQueue& queue, std::vector<GeneratedSymbol>& symbols)
      : s_(s), queue_(queue) {
    s_.machine.memory().load(kKernelSpace, kAt, text(kAt));
    symbols.push_back({kAt, "bpf_dispatcher_xdp", "bpf"});
    s_.machine.side(0, 0, [](PerfDataWriter& w, const Trailer& t) {
      w.ksymbol(kAt, 4096, kKsymBpf, kRegister, "bpf_dispatcher_xdp", t);
    });
  }
  void schedule(uint64_t start) {
    s_.at(start + s_.random.below(5000), [this] { update(); });
  }

 private:
  Bytes text(Addr at) {
    Assembler a(at);
    const auto function = [this] { return s_.kernel.address(fmt::format("f{}", s_.random.between(5, 7))); };
    for (uint64_t n = s_.random.between(1, 3); n != 0; --n) a.jcc32(kConds[s_.random.below(5)], function());
    if (s_.random.chance(50)) a.straight(static_cast<unsigned>(s_.random.below(3)));
    a.jmp32(function());
    Bytes out = a.finish();
    out.resize(64, 0xcc);
    return out;
  }
  void update() {
    if (s_.now() >= s_.end) return;
    const Addr half = kAt + (second_ ? 0 : kHalf);
    s_.unused(range_of(half, 64), [this, half] {
      s_.look(kKsymBpf, range_of(kAt, 4096), [] { return true; });
      s_.write(half, text(half));
      second_ = !second_;
      queue_.poke(
          [this, half] {
            const Addr at = s_.kernel.address("dispatch");
            return std::vector<PokeSite>{{at, asof::test::call_bytes(at, half)}};
          },
          [this] { s_.in(s_.random.between(200, 5000), [this] { update(); }); });
    });
  }

  const Scenery& s_;
  PokeQueue& queue_;
  bool second_ = false;
};

// arch/x86/kernel/kprobes/core.c: arm_kprobe() records after its write, disarm_kprobe() before; the slot's
// bytes are recorded without what was there before.
class Kprobes {
 public:
  static constexpr Addr kSlots = 0xffffffffc0006000;
  static constexpr uint64_t kSlotSize = 32, kMostSlots = 2;

  Kprobes(const Scenery& s, PokeQueue& queue, std::vector<GeneratedSymbol>& symbols)
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

  // Between the write and its record all CPUs are made to synchronise.
  uint64_t sync() const { return s_.random.between(5, s_.random.chance(20) ? 3000 : 300); }

  const Scenery& s_;
  PokeQueue& queue_;
  std::vector<GeneratedSymbol>& symbols_;
  std::vector<Addr> armed_;
  bool page_ = false;
};

}  // namespace asof::x86::test
