// Code that a simulated kernel loads and rewrites: BPF programs, trampolines, dispatchers. Freed memory is
// reused when no CPU is executing in it any more.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tests/decoder/captures/recorded_fixture.h"

namespace asof::x86::test {

// BPF programs, and classic ones that are not announced.
class RecordedPrograms {
 public:
  RecordedPrograms(const RecordedFixture& s, CodeSlots& slots, std::vector<GeneratedSymbol>& symbols)
      : s_(s), slots_(slots), symbols_(symbols) {
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
    const auto slot = slots_.take(s_.random);
    if (!slot) return s_.in(300, [this] { load(false); });
    const Addr at = *slot + 64 * s_.random.below(3);
    if (s_.random.chance(50)) shape_ = s_.random.next();
    const Bytes bytes = loaded_program(shape_, at, &s_.kernel, &s_.random);
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
    s_.in(s_.random.between(300, 4000), [this, at, p, announced, symbol, slot = *slot] {
      std::erase(live_, at);
      if (announced) {
        symbols_.at(symbol).until = s_.now();
        announce(s_.now(), p, false);
      }
      const AddrRange range = range_of(at, p.functions[0].bytes.size());
      s_.unused(range, [this, range, slot] {
        if (s_.random.chance(50)) s_.write(range.begin, Bytes(range.size(), 0xcc));
        s_.in(s_.random.below(600), [this, slot] {
          slots_.give_back(slot);
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

  const RecordedFixture& s_;
  CodeSlots& slots_;
  std::vector<GeneratedSymbol>& symbols_;
  uint64_t shape_ = 0;  // of the last program
  std::vector<Addr> live_;
  std::vector<BpfProgSpec> images_;
  uint32_t last_id_ = 0;
};

// ftrace trampolines, whose bytes are in TEXT_POKE, and those of BPF, whose bytes are in no record: one after
// the other, each called from the entries of some functions. arch/x86/kernel/ftrace.c create_trampoline(),
// kernel/trace/ftrace.c ftrace_trampoline_free().
class Trampolines {
 public:
  Trampolines(const RecordedFixture& s, PokeQueue& queue, CodeSlots& slots,
              std::vector<GeneratedSymbol>& symbols)
      : s_(s), queue_(queue), slots_(slots), symbols_(symbols) {}
  void schedule(uint64_t start) {
    s_.at(start + s_.random.below(6000), [this] { begin(); });
  }

 private:
  void begin() {
    if (s_.now() >= s_.end) return;
    const auto slot = slots_.take(s_.random);
    if (!slot) return s_.in(300, [this] { begin(); });
    slot_ = *slot;
    of_bpf_ = s_.random.chance(30);
    Assembler a(slot_);
    for (uint64_t n = s_.random.between(1, 3); n != 0; --n)
      a.straight(static_cast<unsigned>(s_.random.below(Assembler::kStraightKinds)));
    if (s_.random.chance(50)) a.jcc8(kConds[s_.random.below(5)], "out");
    a.call(s_.kernel.address("tick")).label("out").straight(1).ret();
    bytes_ = a.finish();
    s_.write(slot_, bytes_);
    const std::string name = of_bpf_ ? fmt::format("bpf_trampoline_{}", ++count_) : "ftrace_trampoline";
    symbols_.push_back({slot_, name, of_bpf_ ? "bpf" : "__builtin__ftrace", s_.now()});
    ksymbol(s_.now(), kRegister);
    s_.look(of_bpf_ ? kKsymBpf : kKsymOutOfLine, range_of(slot_, bytes_.size()),
            [this, symbol = symbols_.size() - 1] { return symbols_.at(symbol).until == ~0ULL; });
    if (!of_bpf_) s_.machine.record_poke(s_.now() + 1, cpu_, slot_, {}, bytes_);
    called_.clear();
    queue_.poke(
        [this] {
          std::vector<PokeSite> out;
          for (const Addr at : s_.kernel.fentries()) {
            if (!s_.random.chance(40)) continue;
            called_.push_back(at);
            out.push_back({at, asof::test::call_bytes(at, slot_)});
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
        [this] { s_.unused(range_of(slot_, bytes_.size()), [this] { free(); }); });
  }
  void free() {
    for (GeneratedSymbol& y : symbols_)
      if (y.at == slot_ && y.until == ~0ULL) y.until = s_.now();
    if (!of_bpf_) s_.machine.record_poke(s_.now(), cpu_, slot_, bytes_, {});
    ksymbol(s_.now() + 1, kUnregister);
    s_.in(10, [this] {
      if (s_.random.chance(50)) s_.write(slot_, Bytes(bytes_.size(), 0xcc));
      slots_.give_back(slot_);
      s_.in(s_.random.between(100, 4000), [this] { begin(); });
    });
  }
  void ksymbol(uint64_t tsc, uint16_t flags) {
    if (flags == kRegister) cpu_ = s_.any_cpu();
    const std::string name = of_bpf_ ? fmt::format("bpf_trampoline_{}", count_) : "ftrace_trampoline";
    const auto size = static_cast<uint32_t>(of_bpf_ ? 4096 : bytes_.size());
    s_.machine.side(tsc, cpu_,
                    [at = slot_, size, type = of_bpf_ ? kKsymBpf : kKsymOutOfLine, flags, name](
                        PerfDataWriter& w, const Trailer& t) { w.ksymbol(at, size, type, flags, name, t); });
  }

  const RecordedFixture& s_;
  PokeQueue& queue_;
  CodeSlots& slots_;
  std::vector<GeneratedSymbol>& symbols_;
  Addr slot_ = 0;
  bool of_bpf_ = false;
  unsigned cpu_ = 0, count_ = 0;
  Bytes bytes_;
  std::vector<Addr> called_;
};

// kernel/bpf/dispatcher.c bpf_dispatcher_update(): the unused half is written, then the caller is poked to
// call it.
class Dispatcher {
 public:
  static constexpr Addr kAt = 0xffffffffc0004000;
  static constexpr uint64_t kHalf = 2048;

  Dispatcher(const RecordedFixture& s, PokeQueue& queue, std::vector<GeneratedSymbol>& symbols)
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

  const RecordedFixture& s_;
  PokeQueue& queue_;
  bool second_ = false;
};

}  // namespace asof::x86::test
