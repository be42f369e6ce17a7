// Simulation: a random program on the simulated machine, and what a capture of it gives a decoder.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/x86/patch_rules.h"
#include "arch/x86/reference_sum.h"
#include "tests/arch/x86/loaded_programs.h"
#include "tests/arch/x86/text_recording.h"

namespace asof::x86::test {

using asof::test::Executed;
using asof::test::MachineConfig;

struct Settings {
  uint64_t seed = 0;
  unsigned cpus = 1;
  uint64_t ticks = 20'000;
  uint64_t pokes = 0;
  bool coarse_time = false;  // at sync points only
  bool silent_mtc = false;   // ... but with MTCs, without a TMA
  bool overflows = false;
  Time clock_error = 200;
  RecordingSettings recording = {};
  bool programs = false;     // the addresses of loaded programs are reused
  bool overlaps = false;     // ... or a part of their range, at times not known exactly
  bool unannounced = false;  // ... and some have no record
  bool watched = false;      // ... and the bytes of some are read late
  bool modules = false;      // reloaded without a record
  bool unseen = false;       // sites are patched while records are lost
  bool user_writes = false;  // user text is written from some time on
  bool processes = false;    // two alternate on each CPU, with different text at the same addresses
  bool no_time = false;      // nothing converts the trace's time to that of the records
  bool switches = false;     // task switches: to another thread of the task, and to a process without text
  bool guests = false;       // run on the CPUs
  bool sleeps = false;       // the CPUs sleep; cycles are not counted then
  bool anchors = false;      // the kernel's patching code is known by address
  asof::test::TracerConfig::Mismatch mismatch = asof::test::TracerConfig::Mismatch::kClears;
};

// Runs a machine and decodes what its CPUs wrote.
class Simulation {
 public:
  explicit Simulation(const Settings& settings)
      : settings_(settings),
        random_(settings.seed * 7919 + 1),
        kernel_(settings.seed, false,
                {settings.programs, settings.modules, settings.unseen, settings.processes, settings.guests}),
        user_(settings.seed + 1, true, {.unseen = settings.user_writes}),
        other_(settings.seed + 2, true) {
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
    c.trace.cyc = c.trace.cyc || settings.sleeps;
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
    if (settings.guests) run_guests();
    user_.rules(*machine_);
    programs_.emplace(
        *machine_, kernel_, random_, tasks_,
        ProgramSettings{settings.programs, settings.overlaps, settings.unannounced, settings.watched},
        settings.seed);
    const uint64_t start = c.tsc_start;
    for (unsigned i = 0; i < c.cpus; ++i) {
      auto& task =
          machine_->add_task(100 + static_cast<int>(i), 100 + static_cast<int>(i), "t", 1, user_.entry(), 0);
      if (random_.chance(50))
        machine_->run_task(i, task, user_.entry());
      else
        machine_->run_kernel(i, task, kernel_.entry());
      tasks_.push_back(&task);
      if (settings.processes) switch_processes(i, task);
      machine_->start_trace(i);
      uint64_t t = start;
      while ((t += random_.between(500, 6000)) < start + settings.ticks)
        machine_->interrupt_at(t, i, kernel_.address("timer"));
      if (settings.sleeps) sleeps(i, start);
      if (settings.overflows && random_.chance(40)) {
        const uint64_t from = start + random_.below(settings.ticks / 2);
        machine_->overflow_at(from, from + random_.between(10, 800), i);
      }
    }
    programs_->schedule(start, settings_.ticks);
    if (settings_.modules)
      modules_.emplace(*machine_, kernel_, random_, tasks_).schedule(start, settings_.ticks);
    silent_changes(start);
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
  ReferenceSums reference_sums() const { return ReferenceSums(config_, streams_, *text_); }
  // As decode(), with other trace bytes; also returns `segments`.
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
  // The trace that is decoded from now on.
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
  void silent_changes(uint64_t start) {
    const uint64_t end = start + settings_.ticks;
    if (settings_.unseen) unseen_ = change_unseen(*machine_, kernel_, kKernelSpace, random_, start, end);
    if (!settings_.user_writes) return;
    user_sure_until_ = start + random_.below(settings_.ticks);
    change_unseen(*machine_, user_, 1, random_, user_sure_until_ + 10, end);
  }
  // The two tasks of a CPU alternate.
  void switch_processes(unsigned cpu, SimTask& first) {
    if (cpu == 0) {
      machine_->memory().load(2, other_.base(), other_.bytes());
      other_.rules(*machine_);
      user_.rules(*machine_, &other_, 1);
    }
    SimTask& second = machine_->add_task(200 + static_cast<int>(cpu), 200 + static_cast<int>(cpu), "o", 2,
                                         other_.entry(), kernel_.address("fresh"));
    tasks_.push_back(&second);
    const uint64_t start = machine_->config().tsc_start;
    for (uint64_t t = start + random_.between(500, 3000); t < start + settings_.ticks;
         t += random_.between(1000, 4000)) {
      machine_->schedule(t, [this, cpu, &first, &second] {
        SimCpu& c = machine_->cpu(cpu);
        c.next_task = c.task == &first ? &second : &first;
        c.interrupts.push_back(kernel_.address("resched"));
      });
    }
  }
  // A batch of the module's static branches, and of the kernel's.
  void switch_keys(uint64_t t, unsigned cpu, std::vector<asof::test::PokeSite> batch,
                   const asof::test::PokeTiming& timing) {
    machine_->schedule(t, [this, t, cpu, batch, timing] {
      std::vector<asof::test::PokeSite> all = batch;
      modules_->switch_keys(all);
      machine_->poke_batch(t, cpu, all, timing);
    });
  }
  // Guests also have text at the host's addresses.
  void run_guests() {
    guest_addresses_ = {kernel_.address("f0"), kernel_.address("f1"), kernel_.address("tick"),
                        kernel_.address("vmexit"), 0xffffffffb0000000};
    machine_->on_instruction(kernel_.address("vmresume"), [this](SimCpu& c) {
      const uint64_t until = c.tsc + random_.between(50, 1500);
      c.tracer.guest(until, kernel_.address("vmexit"), guest_addresses_, c.random);
      c.tsc = until;
    });
  }
  void sleeps(unsigned cpu, uint64_t start) {
    const uint8_t rates[] = {8, 24, 24, 34};  // of the core; 24 is the TSC's
    for (uint64_t t = start + random_.below(3000); t < start + settings_.ticks;
         t += random_.between(800, 4000)) {
      const uint64_t until = t + random_.between(50, 2500);
      machine_->sleep_at(t, until, cpu, random_.chance(60), rates[random_.below(4)]);
      t = until;
    }
  }
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
      const asof::test::PokeTiming timing{.int3_to_tail = random_.between(50, 600),
                                          .between_records = 20,
                                          .tail_to_head = random_.between(50, 600)};
      if (modules_)
        switch_keys(t, batches_.back().second, batch, timing);
      else
        machine_->poke_batch(t, batches_.back().second, batch, timing);
      t += 4000 + random_.below(2000);
    }
  }
  // The store as built from a capture: the text before the run, and the records of the pokes.
  void store() {
    Builder b;
    b.set_patch_rules(x86::kPatchRules);
    recording_.emplace(*machine_, settings_.recording, random_, settings_.ticks);
    recording_->read_pokes(batches_);
    for (const auto& [at, tsc] : unseen_)
      recording_->lose_change(at, tsc, static_cast<uint32_t>(random_.below(settings_.cpus)));
    recording_->add_kernel(b, kernel_);
    space_ = b.add_space();
    Layer l;
    l.space = space_;
    l.range = range_of(user_.base(), user_.bytes().size());
    l.bytes = user_.bytes();
    if (settings_.user_writes) {
      l.until = perf(user_sure_until_);
      b.add_layer(l);
      l.from = l.until + 1;
      l.until = kTimeMax;
      l.unsure = true;
    }
    asof::test::add_with_holes(b, l, settings_.recording.holes, random_);
    if (settings_.switches || settings_.processes) other_space_ = b.add_space();
    if (settings_.processes) {
      Layer o;
      o.space = other_space_;
      o.range = range_of(other_.base(), other_.bytes().size());
      o.bytes = other_.bytes();
      b.add_layer(o);
    }
    programs_->add_layers(b);
    if (modules_) {
      const uint64_t read = machine_->config().tsc_start + random_.below(settings_.ticks);
      modules_->add_layer(b, settings_.recording.dated_copy ? std::optional(read) : std::nullopt);
    }
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
    config_.no_ret_compression = !c.trace.return_compression && settings_.seed % 4 != 0;
    if (settings_.anchors) config_.do_sync_core = kernel_.address("sync");
    TimeConversion t;
    t.shift = static_cast<uint16_t>(c.clock.shift);
    t.mult = static_cast<uint32_t>(c.clock.mult);
    t.zero = c.clock.zero;
    if (!settings_.no_time) config_.time = t;
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
      if (settings_.processes) add_contexts(s, i);
      s.bounds = {perf(c.tsc_start), perf(c.tsc_start + settings_.ticks + 100'000)};
      streams_.push_back(s);
    }
    arch_ = make_arch(config_);
  }
  // Records of the switches, which lie between the side-band events of the two tasks.
  void add_contexts(Stream& s, unsigned cpu) const {
    int32_t running = 0;
    for (const auto& e : machine_->side_events()) {
      if (e.cpu != cpu) continue;
      if (running != 0 && e.tid != running)
        s.contexts.push_back({perf(e.tsc - 1), e.pid, e.tid, e.tid >= 200 ? other_space_ : space_});
      running = e.tid;
    }
  }

  std::vector<Addr> guest_addresses_;
  Settings settings_;
  SimRandom random_;
  Program kernel_, user_, other_;
  std::unique_ptr<Machine> machine_;
  std::vector<SimTask*> tasks_;
  std::vector<std::pair<uint64_t, unsigned>> batches_;  // begin, CPU
  std::optional<TextRecording> recording_;              // holds bytes of the store
  std::optional<LoadedPrograms> programs_;
  std::optional<Modules> modules_;
  std::vector<std::pair<Addr, uint64_t>> unseen_;  // changed sites of the kernel, and when (TSC)
  uint64_t user_sure_until_ = 0;                   // TSC
  std::optional<TextStore> text_;
  Space space_ = kNoSpace, other_space_ = kNoSpace;
  Config config_;
  std::vector<Stream> streams_;
  Bytes replaced_;
  std::unique_ptr<Arch> arch_;
};

}  // namespace asof::x86::test
