// Simulation: a random program on the simulated machine, and what a capture of it gives a decoder.
#pragma once
#include <fmt/format.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/arch/x86/scene.h"
#include "tests/support/machine.h"

namespace asof::x86::test {

using asof::test::Executed;
using asof::test::Machine;
using asof::test::MachineConfig;
using asof::test::SimCpu;
using asof::test::SimRandom;

inline constexpr Addr kText = 0xffffffff81000000;
inline constexpr Addr kUser = 0x401000;
inline constexpr int kFunctions = 8;
inline constexpr Cond kConds[] = {Cond::kEqual, Cond::kNotEqual, Cond::kLess, Cond::kSign, Cond::kBelow};

// A program of functions that call each other downwards: loops, branches, indirect calls and jumps, static
// branches, system calls. Function 0 runs for ever.
class Program {
 public:
  Program(uint64_t seed, bool user, bool calls_programs = false)
      : random_(seed), a_(user ? kUser : kText), user_(user), calls_programs_(calls_programs) {
    if (!user) entries();
    for (int f = 0; f < kFunctions; ++f) function(f);
    bytes_ = a_.finish();
    bytes_.resize((bytes_.size() + 15) / 16 * 16 + 16, 0xcc);
  }

  Addr entry() const { return a_.address("f0"); }
  Addr base() const { return a_.base(); }
  Addr address(const std::string& n) const { return a_.address(n); }
  const Bytes& bytes() const { return bytes_; }
  const std::vector<Addr>& sites() const { return sites_; }
  Addr on(size_t site) const { return a_.address(fmt::format("on{}", site)); }

  void rules(Machine& m) const {
    for (const auto& [label, targets] : indirect_) {
      std::vector<Addr> to;
      for (const std::string& t : targets) to.push_back(a_.address(t));
      m.on_indirect(a_.address(label), [to](SimCpu& c) { return to[c.random.below(to.size())]; });
    }
    for (const auto& [label, rounds] : loops_) m.loop_at(a_.address(label), rounds);
  }
  // The place of loaded programs, of kProgramSize bytes; `live` says whether one is there now.
  static constexpr Addr kProgramAt = 0xffffffffc0001000;
  void program_rule(Machine& m, std::function<bool()> live) const {
    if (!calls_programs_) return;
    const Addr other = a_.address("tick");
    m.on_indirect(a_.address("program"),
                  [other, live = std::move(live)](SimCpu&) { return live() ? kProgramAt : other; });
  }

 private:
  void entries() {
    a_.function("int3").straight(1).straight(4).iret();
    a_.function("sync").straight(2).iret();
    a_.function("timer").straight(3).call("tick").straight(1).iret();
    a_.function("tick").straight(2).jcc8(Cond::kEqual, "tick.l").straight(5).label("tick.l").ret();
    a_.function("syscall").straight(6).call("f1").straight(2).sysret();
  }
  unsigned any() { return static_cast<unsigned>(random_.below(Assembler::kStraightKinds)); }
  void filler(uint64_t most) {
    for (uint64_t i = random_.below(most + 1); i != 0; --i) a_.straight(any());
  }
  std::string label(const char* what) { return fmt::format("{}{}{}", user_ ? "u" : "k", what, next_++); }

  void function(int f) {
    a_.function(fmt::format("f{}", f));
    if (random_.chance(50)) a_.endbr64();
    const std::string top = label("top");
    a_.label(top);
    for (uint64_t part = random_.between(1, 5); part != 0; --part) piece(f);
    if (f == 0 && calls_programs_) a_.label("program").call_rax();
    if (f == 0) {
      // A loop that leaves no trace would not tell how often it ran.
      a_.jcc32(kConds[random_.below(5)], top).jmp32(top);
    } else {
      a_.ret();
    }
    for (const size_t site : pending_sites_) unlikely(site, f);
    pending_sites_.clear();
  }
  void piece(int f) {
    filler(4);
    switch (random_.below(user_ ? 8 : 7)) {
      case 0: {
        const std::string skip = label("skip");
        random_.chance(50) ? a_.jcc8(kConds[random_.below(5)], skip)
                           : a_.jcc32(kConds[random_.below(5)], skip);
        filler(3);
        a_.label(skip);
        return;
      }
      case 1: {
        const std::string again = label("again"), branch = label("loop");
        a_.label(again);
        filler(3);
        a_.straight(any()).label(branch).jcc8(Cond::kNotEqual, again);
        loops_.emplace_back(branch, static_cast<unsigned>(random_.between(2, 6)));
        return;
      }
      case 2:
        if (f + 1 < kFunctions)
          a_.call(fmt::format("f{}", random_.between(static_cast<uint64_t>(f) + 1, kFunctions - 1)));
        return;
      case 3: {
        if (f + 1 >= kFunctions) return;
        const std::string at = label("icall");
        a_.label(at).call_rax();
        std::vector<std::string> to;
        for (int i = f + 1; i < kFunctions; ++i) to.push_back(fmt::format("f{}", i));
        indirect_.emplace_back(at, to);
        return;
      }
      case 4: {
        const std::string at = label("ijump"), x = label("case"), y = label("case"), z = label("join");
        a_.label(at).jmp_rax().label(x);
        filler(2);
        a_.jmp8(z).label(y);
        filler(2);
        a_.label(z);
        indirect_.emplace_back(at, std::vector<std::string>{x, y});
        return;
      }
      case 5: {  // "call next"
        const std::string next = label("next");
        if (random_.chance(30)) {
          // The return address stays on the stack; only the simulated one must be taken off again.
          a_.straight(any());
          return;
        }
        a_.jmp8(next).fill(0xcc, random_.below(4)).label(next);
        return;
      }
      case 6:
        if (!user_) {
          const size_t site = sites_.size();
          sites_.push_back(a_.here());
          a_.nop5().label(fmt::format("back{}", site));
          pending_sites_.push_back(site);
        }
        return;
      default:
        a_.syscall();
    }
  }
  void unlikely(size_t site, int f) {
    a_.label(fmt::format("on{}", site));
    filler(2);
    if (random_.chance(50)) {
      const std::string skip = label("skip");
      a_.jcc8(kConds[random_.below(5)], skip).straight(any()).label(skip);
    } else if (f + 1 < kFunctions && random_.chance(60)) {
      a_.call(fmt::format("f{}", f + 1));
    }
    a_.jmp32(fmt::format("back{}", site));
  }

  SimRandom random_;
  Assembler a_;
  bool user_;
  bool calls_programs_;
  Bytes bytes_;
  std::vector<Addr> sites_;
  std::vector<size_t> pending_sites_;
  std::vector<std::pair<std::string, std::vector<std::string>>> indirect_;
  std::vector<std::pair<std::string, unsigned>> loops_;
  int next_ = 0;
};

struct Settings {
  uint64_t seed = 0;
  unsigned cpus = 1;
  uint64_t ticks = 20'000;
  uint64_t pokes = 0;
  bool coarse_time = false;
  bool overflows = false;
  Time clock_error = 200;
  // What a recording can lack.
  bool loses_records = false;  // a run of TEXT_POKE records, and LOST says so
  bool breaks_chain = false;   // one record is missing without a word, and a later one tells
  bool programs = false;       // loaded programs give their address to others
  bool anchors = false;        // the kernel's patching code is known by address
  asof::test::TracerConfig::Mismatch mismatch = asof::test::TracerConfig::Mismatch::kClears;
};

// A loaded program: a few branches and sites of none, told apart by what its branches are.
inline Bytes loaded_program(uint64_t seed) {
  constexpr size_t kSize = 128;
  SimRandom random(seed);
  Assembler a(Program::kProgramAt);
  a.function("p");
  for (uint64_t parts = random.between(1, 4); parts != 0; --parts) {
    for (uint64_t n = random.below(3); n != 0; --n)
      a.straight(static_cast<unsigned>(random.below(Assembler::kStraightKinds)));
    const std::string skip = fmt::format("s{}", parts);
    if (random.chance(60)) a.jcc8(kConds[random.below(5)], skip).straight(0);
    a.label(skip);
  }
  a.ret();
  Bytes out = a.finish();
  out.resize(kSize, 0xcc);
  return out;
}

// Runs a machine and decodes what its CPUs wrote.
class Simulation {
 public:
  explicit Simulation(const Settings& settings)
      : settings_(settings),
        random_(settings.seed * 7919 + 1),
        kernel_(settings.seed, false, settings.programs),
        user_(settings.seed + 1, true) {
    MachineConfig c;
    c.cpus = settings.cpus;
    c.seed = settings.seed;
    c.trace.user = random_.chance(70);
    c.trace.kernel = !c.trace.user || random_.chance(80);
    if (settings.pokes != 0) c.trace.kernel = true;
    c.trace.return_compression = random_.chance(70);
    c.trace.mtc = !settings.coarse_time && (settings.pokes != 0 || random_.chance(80));
    c.trace.cyc = !settings.coarse_time && random_.chance(40);
    c.trace.long_tnt = random_.chance(50);
    c.trace.mismatch = settings.mismatch;
    c.trace.psb_bytes = static_cast<uint32_t>(random_.between(64, 700));
    c.syscall_entry = kernel_.address("syscall");
    c.int3_entry = kernel_.address("int3");
    c.sync_entry = kernel_.address("sync");
    machine_ = std::make_unique<Machine>(c);
    machine_->memory().load(kKernelSpace, kernel_.base(), kernel_.bytes());
    machine_->memory().load(1, user_.base(), user_.bytes());
    kernel_.rules(*machine_);
    user_.rules(*machine_);
    const uint64_t start = c.tsc_start;
    for (unsigned i = 0; i < c.cpus; ++i) {
      auto& task =
          machine_->add_task(100 + static_cast<int>(i), 100 + static_cast<int>(i), "t", 1, user_.entry(), 0);
      if (random_.chance(50))
        machine_->run_task(i, task, user_.entry());
      else
        machine_->run_kernel(i, task, kernel_.entry());
      machine_->start_trace(i);
      uint64_t t = start;
      while ((t += random_.between(500, 6000)) < start + settings.ticks)
        machine_->interrupt_at(t, i, kernel_.address("timer"));
      if (settings.overflows && random_.chance(40)) {
        const uint64_t from = start + random_.below(settings.ticks / 2);
        machine_->overflow_at(from, from + random_.between(10, 800), i);
      }
    }
    kernel_.program_rule(*machine_, [this] { return program_live_; });
    if (settings.programs) programs(start);
    pokes(start);
    machine_->run_until(start + settings.ticks);
    for (unsigned i = 0; i < c.cpus; ++i) machine_->stop_trace(i);
    store();
    streams();
  }

  Decoded decode(unsigned cpu, DecodeOptions o = {}) {
    o.clock_error = settings_.clock_error;
    const auto arch = make_arch(config_);
    const auto decoder = arch->decoder(streams_, *text_, o);
    Decoded d;
    for (const Segment& s : arch->split(streams_[cpu], cpu)) decoder->decode(s, d);
    return d;
  }
  Decoded decode_alone(unsigned cpu) {
    DecodeOptions o;
    o.clock_error = settings_.clock_error;
    const auto arch = make_arch(config_);
    Decoded d;
    for (const Segment& s : arch->split(streams_[cpu], cpu)) arch->decoder(streams_, *text_, o)->decode(s, d);
    return d;
  }
  // As decode(), with other trace bytes; `segments` comes back too.
  Decoded decode_bytes(unsigned cpu, const Bytes& trace, std::vector<Segment>& segments) {
    std::vector<Stream> streams = streams_;
    streams[cpu].pieces[0].bytes = trace;
    const auto arch = make_arch(config_);
    const auto decoder = arch->decoder(streams, *text_, {});
    segments = arch->split(streams[cpu], cpu);
    Decoded d;
    for (const Segment& s : segments) decoder->decode(s, d);
    return d;
  }
  const Bytes& trace(unsigned cpu) const { return machine_->cpu(cpu).tracer.writer().bytes(); }
  const std::vector<Executed>& truth(unsigned cpu) const { return machine_->cpu(cpu).truth.instructions(); }
  uint64_t hits() const { return machine_->int3_hits(); }
  Time perf(uint64_t tsc) const { return machine_->perf_time(tsc); }

 private:
  struct PokeFact {
    Addr addr;
    Bytes old_bytes, new_bytes;
    Time time;
  };
  void pokes(uint64_t start) {
    if (settings_.pokes == 0 || kernel_.sites().empty()) return;
    // Batches one after the other, so that no site is in two at a time.
    std::vector<bool> on(kernel_.sites().size());
    uint64_t t = start + 1000;
    for (uint64_t i = 0; i < settings_.pokes && t + 3000 < start + settings_.ticks; ++i) {
      std::vector<asof::test::PokeSite> batch;
      for (size_t s = 0; s < on.size(); ++s) {
        if (!random_.chance(60)) continue;
        const Addr at = kernel_.sites()[s];
        batch.push_back({at, on[s] ? asof::test::nop5_bytes() : asof::test::jmp32_bytes(at, kernel_.on(s))});
        on[s] = !on[s];
      }
      if (batch.empty()) continue;
      machine_->poke_batch(t, static_cast<unsigned>(random_.below(settings_.cpus)), batch,
                           {.int3_to_tail = random_.between(50, 600),
                            .between_records = 20,
                            .tail_to_head = random_.between(50, 600)});
      t += 4000 + random_.below(2000);
    }
  }
  // One program after the other at one address. None is called from its KSYMBOL's end on, and its bytes go
  // only when no CPU can be in it any more.
  void programs(uint64_t start) {
    constexpr uint64_t kGrace = 1500;
    uint64_t t = start;
    for (uint64_t i = 0; t < start + settings_.ticks; ++i) {
      LoadedProgram p{.bytes = loaded_program(settings_.seed * 31 + i), .from = t, .until = 0};
      machine_->schedule(t, [this, t, bytes = p.bytes] {
        machine_->memory().write(t, kKernelSpace, Program::kProgramAt, bytes);
        program_live_ = true;
      });
      t += random_.between(800, 4000);
      p.until = t;
      machine_->schedule(t, [this] { program_live_ = false; });
      t += kGrace + random_.below(500);
      loaded_.push_back(std::move(p));
    }
  }
  void add_programs(Builder& b) {
    for (const LoadedProgram& p : loaded_) {
      Layer l;
      l.range = range_of(Program::kProgramAt, p.bytes.size());
      l.bytes = p.bytes;
      l.from = perf(p.from);
      l.until = perf(p.until);
      l.soft_until = true;
      l.rank = kRankEpoch;
      b.add_layer(l);
    }
  }
  // Leaves records out: some of a run of them, and LOST tells; or one, where the next of that site tells.
  void lose_records(Builder& b) {
    if (settings_.loses_records && facts_.size() > 2) {
      const size_t first = random_.below(facts_.size());
      const size_t last = std::min(facts_.size() - 1, first + random_.below(6));
      const Time after = first == 0 ? perf(machine_->config().tsc_start) : facts_[first - 1].time;
      const Time until = last + 1 == facts_.size()
                             ? perf(machine_->config().tsc_start + settings_.ticks + 100'000)
                             : facts_[last + 1].time;
      // A site none of whose records is left looks like text that never changes: no decoder can know better.
      std::vector<PokeFact> kept;
      const auto lost = [&](size_t i) {
        const auto other = [&](const PokeFact& f) { return f.addr == facts_[i].addr; };
        return i >= first && i <= last &&
               (std::any_of(kept.begin(), kept.end(), other) ||
                std::any_of(facts_.begin() + static_cast<std::ptrdiff_t>(last) + 1, facts_.end(), other));
      };
      for (size_t i = 0; i < facts_.size(); ++i) {
        if (!lost(i)) kept.push_back(facts_[i]);
      }
      if (kept.size() != facts_.size()) b.add_lost({0, after, until, facts_.size() - kept.size()});
      facts_ = std::move(kept);
    }
    if (!settings_.breaks_chain || facts_.empty()) return;
    const size_t missing = random_.below(facts_.size());
    const Addr site = facts_[missing].addr;
    const auto here = [site](const PokeFact& f) { return f.addr == site; };
    const auto at = facts_.begin() + static_cast<std::ptrdiff_t>(missing);
    const bool before = std::any_of(facts_.begin(), at, here),
               after = std::any_of(at + 1, facts_.end(), here);
    if (before && after) facts_.erase(at);
  }
  // The store as a capture would give it: the text before the run, and the records of the pokes.
  void store() {
    Builder b;
    Layer l;
    l.range = range_of(kernel_.base(), kernel_.bytes().size());
    l.bytes = kernel_.bytes();
    b.add_layer(l);
    space_ = b.add_space();
    l.space = space_;
    l.range = range_of(user_.base(), user_.bytes().size());
    l.bytes = user_.bytes();
    b.add_layer(l);
    add_programs(b);
    // A record's old bytes are those before the INT3, its time that of the write of the tail; the write log
    // has both.
    std::map<Addr, Bytes> current;
    for (const auto& w : machine_->memory().writes()) {
      if (w.new_bytes.size() != 4) continue;  // tails of five-byte sites
      const Addr at = w.addr - 1;
      Bytes old_bytes = current.contains(at) ? current[at] : asof::test::nop5_bytes();
      const bool to_nop = old_bytes[0] == 0xe9;
      Bytes now = {static_cast<uint8_t>(to_nop ? 0x0f : 0xe9)};
      now.insert(now.end(), w.new_bytes.begin(), w.new_bytes.end());
      facts_.push_back({at, old_bytes, now, perf(w.tsc)});
      current[at] = now;
    }
    lose_records(b);
    for (const PokeFact& f : facts_) {
      Poke p;
      p.addr = f.addr;
      p.time = f.time;
      p.old_bytes = f.old_bytes;
      p.new_bytes = f.new_bytes;
      b.add_poke(p);
    }
    text_.emplace(std::move(b).build());
  }
  void streams() {
    const MachineConfig& c = machine_->config();
    config_.mtc_freq = c.trace.mtc_freq;
    config_.tsc_ctc_n = c.trace.tsc_ctc_n;
    config_.tsc_ctc_d = c.trace.tsc_ctc_d;
    config_.max_nonturbo = c.trace.cbr;
    config_.has_cyc = c.trace.cyc;
    if (settings_.anchors) config_.do_sync_core = kernel_.address("sync");
    TimeConversion t;
    t.shift = static_cast<uint16_t>(c.clock.shift);
    t.mult = static_cast<uint32_t>(c.clock.mult);
    t.zero = c.clock.zero;
    config_.time = t;
    for (unsigned i = 0; i < c.cpus; ++i) {
      Stream s;
      s.cpu = static_cast<int32_t>(i);
      StreamPiece p;
      p.bytes = machine_->cpu(i).tracer.writer().bytes();
      p.reference = c.tsc_start;
      s.pieces = {p};
      s.contexts = {{kTimeMin, 100, 100, space_}};
      s.bounds = {perf(c.tsc_start), perf(c.tsc_start + settings_.ticks + 100'000)};
      streams_.push_back(s);
    }
  }

  Settings settings_;
  SimRandom random_;
  Program kernel_, user_;
  std::unique_ptr<Machine> machine_;
  struct LoadedProgram {
    Bytes bytes;
    uint64_t from, until;
  };
  std::vector<PokeFact> facts_;
  std::vector<LoadedProgram> loaded_;
  bool program_live_ = false;
  std::optional<TextStore> text_;
  Space space_ = kNoSpace;
  Config config_;
  std::vector<Stream> streams_;
};

}  // namespace asof::x86::test
