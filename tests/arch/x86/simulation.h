// Simulation: a random program on the simulated machine, and what a capture of it gives a decoder.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/arch/x86/text_recording.h"

namespace asof::x86::test {

using asof::test::Executed;
using asof::test::MachineConfig;

struct Settings {
  uint64_t seed = 0;
  unsigned cpus = 1;
  uint64_t ticks = 20'000;
  uint64_t pokes = 0;
  bool coarse_time = false;  // told at sync points only
  bool silent_mtc = false;   // ... and there are MTCs all the same, without a TMA
  bool overflows = false;
  Time clock_error = 200;
  RecordingSettings recording = {};
  bool programs = false;  // loaded programs give their address to others
  bool overlaps = false;  // ... or a part of their range, and nobody knows exactly when
  bool switches = false;  // of the task: to another thread of it, and to a process without text
  bool anchors = false;   // the kernel's patching code is known by address
  asof::test::TracerConfig::Mismatch mismatch = asof::test::TracerConfig::Mismatch::kClears;
};

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
    if (settings.silent_mtc) {
      c.trace.mtc = true;
      c.trace.tma = false;
    }
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
  std::vector<Segment> segments(unsigned cpu) const { return arch_->split(streams_[cpu], cpu); }
  std::unique_ptr<SegmentDecoder> decoder(DecodeOptions o = {}) const {
    o.clock_error = settings_.clock_error;
    return arch_->decoder(streams_, *text_, o);
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
  // What is decoded from now on.
  void replace_trace(unsigned cpu, Bytes trace) {
    replaced_ = std::move(trace);
    streams_[cpu].pieces[0].bytes = replaced_;
  }
  const Bytes& trace(unsigned cpu) const { return machine_->cpu(cpu).tracer.writer().bytes(); }
  const std::vector<Executed>& truth(unsigned cpu) const { return machine_->cpu(cpu).truth.instructions(); }
  uint64_t hits() const { return machine_->int3_hits(); }
  bool has_cyc() const { return config_.has_cyc; }
  Time perf(uint64_t tsc) const { return machine_->perf_time(tsc); }

 private:
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
      batches_.emplace_back(t, static_cast<unsigned>(random_.below(settings_.cpus)));
      machine_->poke_batch(t, batches_.back().second, batch,
                           {.int3_to_tail = random_.between(50, 600),
                            .between_records = 20,
                            .tail_to_head = random_.between(50, 600)});
      t += 4000 + random_.below(2000);
    }
  }
  // One program after the other at one address, or not far from it. None is called from its KSYMBOL's end on,
  // and its bytes go only when no CPU can be in it any more.
  void programs(uint64_t start) {
    constexpr uint64_t kGrace = 1500;
    uint64_t t = start;
    for (uint64_t i = 0; t < start + settings_.ticks; ++i) {
      const Addr at = Program::kProgramAt + (settings_.overlaps ? random_.below(32) : 0);
      LoadedProgram p{.at = at, .bytes = loaded_program(settings_.seed * 31 + i, at), .from = t, .until = 0};
      machine_->schedule(t, [this, t, at, bytes = p.bytes] {
        machine_->memory().write(t, kKernelSpace, at, bytes);
        program_live_ = at;
      });
      t += random_.between(800, 4000);
      p.until = t;
      machine_->schedule(t, [this] { program_live_.reset(); });
      t += kGrace + random_.below(500);
      loaded_.push_back(std::move(p));
    }
  }
  // A life that is known too long, at either end.
  void blur(Layer& l) {
    const auto much = [this] { return static_cast<Time>(random_.below(random_.chance(50) ? 500 : 4000)); };
    l.from = random_.chance(15) ? kTimeMin : l.from - much();
    if (random_.chance(50)) {
      constexpr Time kUntilFreed = 2000;
      l.soft_until = false;
      l.until = random_.chance(30) ? kTimeMax : l.until + kUntilFreed + much();
    }
  }
  void add_programs(Builder& b) {
    for (const LoadedProgram& p : loaded_) {
      Layer l;
      l.range = range_of(p.at, p.bytes.size());
      l.bytes = p.bytes;
      l.from = perf(p.from);
      l.until = perf(p.until);
      l.soft_until = true;
      if (settings_.overlaps) blur(l);
      l.rank = kRankEpoch;
      b.add_layer(l);
    }
  }
  // The store as a capture would give it: the text before the run, and the records of the pokes.
  void store() {
    Builder b;
    recording_.emplace(*machine_, settings_.recording, random_, settings_.ticks);
    recording_->read_pokes(batches_);
    recording_->add_kernel(b, kernel_);
    space_ = b.add_space();
    Layer l;
    l.space = space_;
    l.range = range_of(user_.base(), user_.bytes().size());
    l.bytes = user_.bytes();
    asof::test::add_with_holes(b, l, settings_.recording.holes, random_);
    if (settings_.switches) other_space_ = b.add_space();
    add_programs(b);
    recording_->add_changes(b, kernel_);
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
      for (uint64_t n = settings_.switches ? 2 * random_.between(1, 4) : 0, n0 = n; n > 0; --n) {
        const Time at = perf(c.tsc_start + settings_.ticks * (n0 - n + 1) / (n0 + 1));
        s.contexts.push_back({at, 101, 101, n % 4 == 2 ? other_space_ : space_});
      }
      s.bounds = {perf(c.tsc_start), perf(c.tsc_start + settings_.ticks + 100'000)};
      streams_.push_back(s);
    }
    arch_ = make_arch(config_);
  }

  Settings settings_;
  SimRandom random_;
  Program kernel_, user_;
  std::unique_ptr<Machine> machine_;
  struct LoadedProgram {
    Addr at;
    Bytes bytes;
    uint64_t from, until;
  };
  std::vector<std::pair<uint64_t, unsigned>> batches_;  // begin, CPU
  std::optional<TextRecording> recording_;              // holds bytes of the store
  std::vector<LoadedProgram> loaded_;
  std::optional<Addr> program_live_;
  std::optional<TextStore> text_;
  Space space_ = kNoSpace, other_space_ = kNoSpace;
  Config config_;
  std::vector<Stream> streams_;
  Bytes replaced_;
  std::unique_ptr<Arch> arch_;
};

}  // namespace asof::x86::test
