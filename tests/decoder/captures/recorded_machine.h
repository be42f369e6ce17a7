// RecordedMachine: a random program on the simulated machine whose kernel changes its text by all its
// mechanisms, and the recording that perf makes of it: perf.data with its rings, a copy of kcore made after
// the rings were opened, images of BPF programs, files of processes.
#pragma once
#include <filesystem>
#include <memory>

#include "tests/decoder/captures/recorded_probes.h"
#include "tests/decoder/captures/recorded_programs.h"

namespace asof::x86::test {

using asof::test::MachineConfig;
using asof::test::SideEvent;

struct RecordedSettings {
  uint64_t seed = 0;
  unsigned cpus = 1;
  uint64_t ticks = 20'000;
  bool coarse_time = false;
  asof::test::TracerConfig::Mismatch mismatch = asof::test::TracerConfig::Mismatch::kClears;
  // What the kernel and the processes do.
  bool static_branches = false, static_calls = false, programs = false, trampolines = false,
       dispatcher = false, probes = false, modules = false, processes = false, user_writes = false,
       uprobes = false;
  // Properties of the recording.
  enum class Losses : uint8_t {
    kNone,
    kReported,   // LOST records
    kAtTheEnd,   // of the first CPU's ring, after its last AUX record: LOST_SAMPLES counts them
    kOverwrite,  // the first records, without any notice
  } losses = Losses::kNone;
  bool jump_table = false;  // is in the copy of kcore
  bool sync_known = false;  // kallsyms has do_sync_core
  bool end_copy = false;
  bool watched = false;      // bytes of announced symbols are read later
  bool no_pokes = false;     // TEXT_POKE was not asked for
  bool other_clock = false;  // perf record -k
  bool one_ring = false;     // only the first of several CPUs was recorded
};

class RecordedMachine {
 public:
  explicit RecordedMachine(const RecordedSettings& settings)
      : settings_(settings),
        random_(settings.seed * 7919 + 1),
        kernel_(settings.seed, false, features(settings)),
        user_(settings.seed + 1, true, {.unseen = settings.user_writes, .probes = settings.uprobes}),
        other_(settings.seed + 2, true) {
    configure();
    if (settings.watched) watcher_.emplace(*machine_, random_);
    fixture_.emplace(RecordedFixture{*machine_, kernel_, random_, tasks_, start() + settings.ticks,
                                     watcher_ ? &*watcher_ : nullptr});
    queue_.emplace(*fixture_);
    processes();
    change_text();
    const uint64_t copied = start() + random_.below(kBefore);
    machine_->schedule(copied, [this] { copy(spec_.kcore, spec_.symbols); });
    if (settings.losses == RecordedSettings::Losses::kAtTheEnd) {
      stopped_ = random_.between(start() + kBefore + 500, fixture_->end);
      machine_->schedule(stopped_, [this] { machine_->stop_trace(0); });
    }
    machine_->run_until(fixture_->end);
    for (unsigned i = stopped_ == 0 ? 0 : 1; i < settings.cpus; ++i) machine_->stop_trace(i);
    describe();
  }
  const Machine& machine() const { return *machine_; }
  // `directory`/perf.data and `directory`/symfs, and the second copy if there is one.
  void write(const std::filesystem::path& directory) const {
    const std::filesystem::path data = directory / "perf.data";
    make_perf_data(*machine_, spec_).write_directory(data, make_kcore_dir(spec_));
    for (const asof::test::UserProgram& p : spec_.programs)
      asof::test::write_bytes(directory / "symfs" / std::filesystem::path(p.path).relative_path(),
                              make_executable(p.elf));
    if (watcher_) asof::test::write_bytes(data / "ksym_text.bin", watcher_->file());
    if (!settings_.end_copy) return;
    const asof::test::DirectoryParts end = make_kcore_dir(end_);
    asof::test::write_bytes(data / "kcore.end", end.kcore);
    asof::test::write_text(data / "kallsyms.end", end.kallsyms);
    asof::test::write_text(data / "modules.end", end.modules);
  }

 private:
  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kBefore = 4'000;          // ticks from the rings' beginning to the trace's
  static constexpr Addr kTable = 0xffffffff82000000;  // of jump labels
  static constexpr Addr kModulePage = Program::kModuleAt & ~(kPage - 1);
  static constexpr Addr kGenerated = CodeSlots::kBegin & ~(kPage - 1), kGeneratedEnd = 0xffffffffc0007000;

  static Features features(const RecordedSettings& s) {
    Features f;
    f.programs = s.programs, f.modules = s.modules, f.unseen = s.static_calls, f.switches = s.processes;
    f.ret0 = s.static_calls, f.uprobes = s.uprobes;
    f.fentry = s.trampolines, f.probes = s.probes;
    f.dispatcher = s.dispatcher ? Dispatcher::kAt : 0;
    return f;
  }
  static Bytes whole_pages(Bytes b) {
    b.resize((b.size() + kPage - 1) / kPage * kPage, 0xcc);
    return b;
  }
  uint64_t start() const { return machine_->config().tsc_start; }

  void configure() {
    MachineConfig c;
    c.cpus = settings_.cpus;
    c.seed = settings_.seed;
    c.trace.user = settings_.user_writes || settings_.uprobes || settings_.processes || random_.chance(60);
    c.trace.return_compression = random_.chance(70);
    c.trace.mtc = !settings_.coarse_time;
    c.trace.cyc = !settings_.coarse_time && random_.chance(30);
    c.trace.long_tnt = random_.chance(50);
    c.trace.mismatch = settings_.mismatch;
    c.trace.psb_bytes = static_cast<uint32_t>(random_.between(64, 700));
    c.syscall_entry = kernel_.address("syscall");
    c.int3_entry = kernel_.address("int3");
    c.sync_entry = kernel_.address("sync");
    machine_ = std::make_unique<Machine>(c);
    asof::test::SimMemory& m = machine_->memory();
    m.load(kKernelSpace, kernel_.base(), whole_pages(kernel_.bytes()));
    m.load(kKernelSpace, kGenerated, Bytes(kGeneratedEnd - kGenerated, 0xcc));
    m.load(kKernelSpace, kModulePage, Bytes(kPage, 0xcc));
    m.load(1, user_.base(), user_.bytes());
    m.load(2, other_.base(), other_.bytes());
    kernel_.rules(*machine_);
    if (settings_.processes) {
      other_.rules(*machine_);
      user_.rules(*machine_, &other_, 1);
    } else {
      user_.rules(*machine_);
    }
  }

  // One on each CPU, or two that alternate.
  void processes() {
    for (unsigned i = 0; i < settings_.cpus; ++i) {
      const int pid = 100 + static_cast<int>(i);
      SimTask& task = machine_->add_task(pid, pid, "u", 1, user_.entry(), 0);
      if (random_.chance(50))
        machine_->run_task(i, task, user_.entry());
      else
        machine_->run_kernel(i, task, kernel_.entry());
      tasks_.push_back(&task);
      machine_->side(0, i, [pid](PerfDataWriter& w, const Trailer& t) { w.comm(pid, pid, "u", false, t); });
      if (settings_.processes) take_turns(i, task);
      machine_->schedule(start() + kBefore, [this, i] { machine_->start_trace(i); });
      for (uint64_t t = start(); (t += random_.between(500, 6000)) < fixture_->end;)
        machine_->interrupt_at(t, i, kernel_.address("timer"));
    }
  }
  void take_turns(unsigned cpu, SimTask& first) {
    const int pid = 200 + static_cast<int>(cpu);
    SimTask& second = machine_->add_task(pid, pid, "o", 2, other_.entry(), kernel_.address("fresh"));
    tasks_.push_back(&second);
    for (uint64_t t = start() + random_.between(500, 3000); t < fixture_->end;
         t += random_.between(1000, 4000)) {
      machine_->schedule(t, [this, cpu, &first, &second] {
        SimCpu& c = machine_->cpu(cpu);
        c.next_task = c.task == &first ? &second : &first;
        c.interrupts.push_back(kernel_.address("resched"));
      });
    }
  }

  void change_text() {
    if (settings_.dispatcher) dispatcher_.emplace(*fixture_, *queue_, symbols_).schedule(start());
    if (settings_.programs) programs_.emplace(*fixture_, slots_, symbols_).schedule(start());
    if (settings_.trampolines) trampolines_.emplace(*fixture_, *queue_, slots_, symbols_).schedule(start());
    if (settings_.probes) probes_.emplace(*fixture_, *queue_, symbols_).schedule(start());
    if (settings_.modules)
      modules_.emplace(*machine_, kernel_, random_, tasks_).schedule(start(), settings_.ticks);
    if (settings_.static_branches || settings_.static_calls || settings_.modules) keys(start() + 100);
    if (settings_.user_writes) write_user_text();
    if (settings_.uprobes) uprobes_.emplace(*fixture_, user_).schedule(start());
  }
  // Static branches and calls, several at a time.
  void keys(uint64_t from) {
    machine_->schedule(from + random_.between(500, 6000), [this] {
      if (machine_->now() >= fixture_->end) return;
      queue_->poke([this] { return some_keys(); }, [this] { keys(machine_->now()); });
    });
  }
  std::vector<PokeSite> some_keys() {
    std::vector<PokeSite> out;
    const auto& sites = kernel_.sites();
    on_.resize(sites.size()), on_call_.resize(kernel_.unseen().size());
    for (size_t i = 0; settings_.static_branches && i < sites.size(); ++i) {
      if (!random_.chance(50)) continue;
      on_[i] = !on_[i];
      out.push_back(
          {sites[i], on_[i] ? asof::test::jmp32_bytes(sites[i], kernel_.on(i)) : asof::test::nop5_bytes()});
    }
    for (size_t i = 0; i < kernel_.unseen().size(); ++i) {
      const Program::Unseen& u = kernel_.unseen()[i];
      if (!random_.chance(40)) continue;
      on_call_[i] = !on_call_[i];
      if (kernel_.state(u, on_call_[i]) != kernel_.state(u, !on_call_[i]))
        out.push_back({u.at, kernel_.state(u, on_call_[i]), kernel_.emulated(u, on_call_[i])});
    }
    if (modules_) modules_->switch_keys(out);
    return out;
  }
  // mprotect() twice, and changes starting with the first.
  void write_user_text() {
    const uint64_t writable = start() + random_.below(settings_.ticks);
    const auto protect = [this](uint64_t tsc, uint32_t prot) {
      machine_->schedule(tsc, [this, tsc, prot] {
        for (unsigned i = 0; i < settings_.cpus; ++i) {
          machine_->side(tsc, i, [this, i, prot](PerfDataWriter& w, const Trailer& t) {
            asof::test::MmapSpec m = map_of(user_program("u", user_, 100), 100 + static_cast<int32_t>(i));
            m.prot = prot;
            w.mmap2(m, t);
          });
        }
      });
    };
    protect(writable, 7);
    change_unseen(*machine_, user_, 1, random_, writable + 10, fixture_->end);
    if (random_.chance(50)) protect(writable + random_.below(settings_.ticks), 5);
  }

  asof::test::UserProgram user_program(const std::string& name, const Program& p, int32_t first_pid) const {
    asof::test::UserProgram u;
    u.path = "/bin/" + name;
    u.elf.address = p.base();
    u.elf.text = p.bytes();
    u.elf.build_id.assign(20, static_cast<uint8_t>(name[0]));
    for (unsigned i = 0; i < settings_.cpus; ++i) u.pids.push_back(first_pid + static_cast<int32_t>(i));
    return u;
  }
  static asof::test::MmapSpec map_of(const asof::test::UserProgram& p, int32_t pid) {
    return {.pid = pid,
            .tid = pid,
            .addr = p.elf.address,
            .len = (p.elf.text.size() + kPage - 1) / kPage * kPage,
            .pgoff = kPage,
            .filename = p.path,
            .build_id = p.elf.build_id};
  }

  // Current text and names.
  void copy(std::vector<asof::test::CoreSegment>& segments, std::vector<asof::test::KernelSymbol>& names) {
    const auto add = [&](Addr from, Addr until) {
      segments.push_back({from, machine_->memory().read(kKernelSpace, from, until - from)});
    };
    const Addr text_end = kernel_.base() + whole_pages(kernel_.bytes()).size();
    add(kernel_.base(), text_end);
    add(kGenerated, kGeneratedEnd);
    if (settings_.modules) add(kModulePage, kModulePage + kPage);
    names.push_back({kernel_.base(), 'T', "_text"});
    names.push_back({kernel_.base(), 'T', "_stext"});
    for (const CodeSymbol& y : kernel_.symbols())
      names.push_back({y.address, 't', settings_.sync_known && y.name == "sync" ? "do_sync_core" : y.name});
    names.push_back({text_end, 'T', "_etext"});
    if (settings_.jump_table) add_jump_table(segments, names);
    for (unsigned f = 0; settings_.modules && f < Program::kModuleFunctions; ++f)
      names.push_back({Program::kModuleAt + f * Program::kModuleSpacing, 't', fmt::format("m{}", f), "mod"});
    for (const GeneratedSymbol& y : symbols_) {
      if (y.from <= machine_->now() && machine_->now() < y.until)
        names.push_back({y.at, 't', y.name, y.module});
    }
    std::ranges::stable_sort(names, {}, &asof::test::KernelSymbol::address);
  }
  // include/linux/jump_label.h struct jump_entry.
  void add_jump_table(std::vector<asof::test::CoreSegment>& segments,
                      std::vector<asof::test::KernelSymbol>& names) const {
    Bytes table;
    const auto put = [&table](uint64_t v, size_t size) {
      for (size_t i = 0; i < size; ++i) table.push_back(static_cast<uint8_t>(v >> (8 * i)));
    };
    for (size_t i = 0; i < kernel_.sites().size(); ++i) {
      put(kernel_.sites()[i] - (kTable + table.size()), 4);
      put(kernel_.on(i) - (kTable + table.size()), 4);
      put(kPage, 8);
    }
    names.push_back({kTable, 'D', "__start___jump_table"});
    names.push_back({kTable + table.size(), 'D', "__stop___jump_table"});
    if (!table.empty()) segments.push_back({kTable, whole_pages(table)});
  }

  void describe() {
    if (settings_.end_copy) copy(end_.kcore, end_.symbols);
    if (settings_.modules) {
      spec_.modules.push_back({"mod", kModulePage, kPage});
      end_.modules = spec_.modules;
    }
    spec_.text_begin = kernel_.base();
    spec_.text_end = kernel_.base() + whole_pages(kernel_.bytes()).size();
    spec_.programs.push_back(user_program("u", user_, 100));
    if (settings_.processes) spec_.programs.push_back(user_program("o", other_, 200));
    if (programs_) spec_.bpf_images = programs_->images();
    spec_.asks_for_pokes = !settings_.no_pokes;
    if (settings_.other_clock) {
      spec_.sideband_flags |= asof::test::attr_flag::kUseClockid;
      spec_.record_clock_ahead = random_.between(100, 3'000);
    }
    if (settings_.losses == RecordedSettings::Losses::kOverwrite)
      spec_.sideband_flags |= asof::test::attr_flag::kWriteBackward;
    if (settings_.one_ring) spec_.recorded_cpus = 1;
    spec_.side_events = recorded();
  }

  // What remains of the rings.
  std::vector<SideEvent> recorded() {
    using Losses = RecordedSettings::Losses;
    std::vector<SideEvent> all = machine_->side_events(), out;
    std::ranges::stable_sort(all, {}, &SideEvent::tsc);
    if (settings_.no_pokes) std::erase_if(all, [](const SideEvent& e) { return e.poke; });
    for (unsigned cpu = 0; cpu < settings_.cpus; ++cpu) {
      std::vector<SideEvent> ring;
      std::ranges::copy_if(all, std::back_inserter(ring), [cpu](const SideEvent& e) { return e.cpu == cpu; });
      switch (settings_.losses) {
        case Losses::kNone:
          break;
        case Losses::kReported:
          ring = with_losses(ring);
          break;
        case Losses::kAtTheEnd:
          if (cpu == 0) lose_end(ring);
          break;
        case Losses::kOverwrite: {
          const auto first = std::ranges::find_if(ring, [](const SideEvent& e) { return e.tsc != 0; });
          ring.erase(first, first + some_of(ring.end() - first));
        }
      }
      out.insert(out.end(), ring.begin(), ring.end());
    }
    return out;
  }
  // A LOST record has the time of the record that follows it.
  std::vector<SideEvent> with_losses(const std::vector<SideEvent>& ring) {
    std::vector<SideEvent> out;
    uint64_t lost = 0;
    bool losing = false;
    for (const SideEvent& e : ring) {
      losing = e.tsc != 0 && random_.chance(losing ? 60 : 12);
      if (losing) {
        ++lost;
        continue;
      }
      if (lost != 0) {
        SideEvent report = e;
        report.emit = [lost, cpu = e.cpu](PerfDataWriter& w, const Trailer& t) {
          w.lost(201 + cpu, lost, t);
        };
        out.push_back(report);
      }
      lost = 0;
      out.push_back(e);
    }
    if (lost != 0) {  // written before the last AUX record
      SideEvent report{fixture_->end, ring.back().cpu, 0, 0, {}};
      report.emit = [lost, cpu = report.cpu](PerfDataWriter& w, const Trailer& t) {
        w.lost(201 + cpu, lost, t);
      };
      out.push_back(report);
    }
    return out;
  }
  // perf counts lost records when it ends.
  void lose_end(std::vector<SideEvent>& ring) {
    const auto after = std::ranges::find_if(ring, [this](const SideEvent& e) { return e.tsc > stopped_; });
    const auto begin = after + some_of(ring.end() - after);
    const auto lost = static_cast<uint64_t>(ring.end() - begin);
    if (lost == 0) return;
    ring.erase(begin, ring.end());
    ring.push_back({fixture_->end + 100'000, 0, 0, 0,
                    [lost](PerfDataWriter& w, const Trailer& t) { w.lost_samples(lost, t); }});
  }
  std::ptrdiff_t some_of(std::ptrdiff_t all) {
    return static_cast<std::ptrdiff_t>(random_.below(static_cast<uint64_t>(all) + 1));
  }

  RecordedSettings settings_;
  SimRandom random_;
  Program kernel_, user_, other_;
  std::unique_ptr<Machine> machine_;
  std::vector<SimTask*> tasks_;
  std::optional<Watcher> watcher_;
  std::optional<RecordedFixture> fixture_;
  std::optional<PokeQueue> queue_;
  CodeSlots slots_;
  std::vector<GeneratedSymbol> symbols_;
  std::optional<Dispatcher> dispatcher_;
  std::optional<RecordedPrograms> programs_;
  std::optional<Trampolines> trampolines_;
  std::optional<Kprobes> probes_;
  std::optional<Modules> modules_;
  std::optional<Uprobes> uprobes_;
  std::vector<bool> on_, on_call_;
  uint64_t stopped_ = 0;  // TSC; the first CPU's trace, before the others'
  asof::test::CaptureSpec spec_, end_;
};

}  // namespace asof::x86::test
