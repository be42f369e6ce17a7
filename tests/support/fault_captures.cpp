#include "tests/support/fault_captures.h"

#include <memory>

#include "tests/support/assembler.h"

namespace asof::test {

namespace {

constexpr Addr kText = 0xffffffff81000000, kModuleRange = 0xffffffffc0000000;
constexpr uint64_t kModuleRangeSize = 0x4000;
constexpr Addr kBpfOutside = 0xffffffffc0400a40, kBpfInside = kModuleRange + 0x2a40;
constexpr Addr kSlotPage = 0xffffffffc0600000, kSecondSlot = kSlotPage + 0x20;
constexpr uint64_t kUs = 2400;  // TSC ticks
constexpr std::array<uint8_t, 8> kTagA = {0x11, 0x11, 0x11, 0x11, 0x22, 0x22, 0x22, 0x22};
constexpr std::array<uint8_t, 8> kTagB = {0x33, 0x33, 0x33, 0x33, 0x44, 0x44, 0x44, 0x44};

// A kernel of a few functions that CPU 0 runs, traced in the kernel only; CPU 1 does nothing but own a ring.
class FaultFixture {
 public:
  explicit FaultFixture(const TracerConfig& trace = {}) : code(kText) {
    config_.trace = trace;
    config_.trace.user = false;
    code.label("_text").function("_stext").straight(0).ret();
    code.function("asm_exc_int3").straight(4).call("exc_int3").straight(6).iret();
    code.function("exc_int3").straight(1).ret();
    // Runs whatever the test passes, one after the other.
    code.function("main_loop").straight(2);
    code.label("next").straight(3).label("dispatch").call_rax().straight(5).jmp8("next");
    // Consumes time: two instructions per iteration.
    code.function("idle")
        .label("idle.next")
        .straight(4)
        .label("idle.loop")
        .jcc8(Cond::kNotEqual, "idle.next")
        .ret();
  }

  // To be called when all code is complete. The calls of main_loop, in order; then idle forever.
  void start(std::vector<Addr> calls) {
    bytes_ = code.finish();
    bytes_.resize((bytes_.size() + 0xfff) / 0x1000 * 0x1000, 0xcc);
    config_.int3_entry = code.address("asm_exc_int3");
    machine = std::make_unique<Machine>(config_);
    machine->memory().load(kKernelSpace, kText, bytes_);
    task_ = &machine->add_task(1, 1, "init", 1, 0x401000, kText);
    task_->kernel_stack.clear();
    calls_ = std::move(calls);
    machine->on_indirect(code.address("dispatch"), [this](SimCpu&) {
      return done_ < calls_.size() ? calls_[done_++] : code.address("idle");
    });
    machine->on_branch(code.address("idle.loop"), [this](SimCpu& c) { return c.tsc < idle_until(c.tsc); });
    machine->run_kernel(0, *task_, code.address("main_loop"));
    machine->start_trace(0);
  }

  // `idle` returns at the next of these instants.
  void wake_at(uint64_t us) { wakes_.push_back(at(us)); }
  uint64_t at(uint64_t us) const { return config_.tsc_start + us * kUs; }

  void with_module_range() {
    module_range_ = true;
    machine->memory().load(kKernelSpace, kModuleRange, std::vector<uint8_t>(kModuleRangeSize, 0));
  }

  FaultCapture finish(const std::string& name, const std::filesystem::path& directory, uint64_t end_us) {
    machine->run_until(at(end_us));
    machine->stop_trace(0);
    CaptureSpec spec;
    spec.reference_override = reference;
    spec.have_sched_switch = false;
    spec.kcore = {{kText, bytes_}};
    if (module_range_) spec.kcore.push_back({kModuleRange, std::vector<uint8_t>(kModuleRangeSize, 0)});
    spec.text_begin = kText, spec.text_end = kText + bytes_.size();
    spec.symbols.push_back({kText, 'T', "_text", ""});
    for (const CodeSymbol& s : code.symbols()) spec.symbols.push_back({s.address, 'T', s.name, ""});
    spec.symbols.push_back({spec.text_end, 'T', "_etext", ""});
    spec.bpf_images = machine->bpf_programs();
    make_perf_data(*machine, spec).write_directory(directory / name, make_kcore_dir(spec));
    FaultCapture f;
    f.name = name;
    f.path = directory / name;
    f.truth = machine->cpu(0).truth.instructions();
    return f;
  }

  Assembler code;
  std::unique_ptr<Machine> machine;
  uint64_t reference = ~0ULL;

 private:
  // Called while idling: the first wake-up after the one that ended the last sleep.
  uint64_t idle_until(uint64_t now) {
    while (woken_ < wakes_.size() && asleep_ && now >= wakes_[woken_]) ++woken_, asleep_ = false;
    if (!asleep_) {
      asleep_ = true;
      return 0;
    }
    return woken_ < wakes_.size() ? wakes_[woken_] : ~0ULL;
  }

  MachineConfig config_;
  std::vector<uint8_t> bytes_;
  SimTask* task_ = nullptr;
  std::vector<Addr> calls_;
  size_t done_ = 0;
  std::vector<uint64_t> wakes_;
  size_t woken_ = 0;
  bool asleep_ = true;
  bool module_range_ = false;
};

TracerConfig without_timing() {
  TracerConfig t;
  t.mtc = false;
  t.psb_bytes = 1 << 20;
  return t;
}

BpfProgSpec program_with_sub(Addr base) {
  Assembler a(base);
  a.nop5().straight(1).straight(2).jcc8(Cond::kEqual, "l").straight(5).label("l").call(base + 0x40);
  a.bytes({0xc9}).ret();
  Assembler sub(base + 0x40);
  sub.straight(1).straight(8).jcc8(Cond::kGreater, "l").straight(4).label("l").bytes({0xc9}).ret();
  BpfProgSpec p;
  p.id = 99, p.name = "main", p.tag = kTagA;
  p.functions = {{base, a.finish(), kTagA}, {base + 0x40, sub.finish(), kTagB}};
  return p;
}

BpfProgSpec plain_program(uint32_t id, Addr base, bool second) {
  Assembler a(base);
  a.nop5();
  if (second) a.jcc8(Cond::kEqual, "l").label("l");
  a.straight(5).ret();
  BpfProgSpec p;
  p.id = id, p.name = second ? "second" : "first", p.tag = second ? kTagB : kTagA;
  p.functions = {{base, a.finish(), p.tag}};
  return p;
}

// A static branch whose two paths differ at their first packet.
void add_site_function(Assembler& code) {
  code.function("site_function").label("site").nop5();
  code.straight(3).jcc8(Cond::kEqual, "site.l").straight(2).label("site.l").ret();
  code.function("site_on").straight(4).label("site_on.dispatch").call_rax().ret();
  code.function("target").straight(9).ret();
}

}  // namespace

FaultCapture bpf_sub_program(const std::filesystem::path& directory) {
  FaultFixture fixture;
  const Addr idle = fixture.code.address("idle");
  fixture.start({idle, kBpfOutside, kBpfOutside, kBpfOutside});
  fixture.wake_at(10);
  fixture.machine->load_bpf(fixture.at(5), 0, program_with_sub(kBpfOutside));
  FaultCapture f = fixture.finish("sub", directory, 15);
  f.site = kBpfOutside;
  return f;
}

FaultCapture bpf_inside_kcore(const std::filesystem::path& directory, bool load) {
  FaultFixture fixture;
  while (fixture.code.here() < kText + 0x1100) fixture.code.int3();
  fixture.code.function("other_page").straight(8).jcc8(Cond::kEqual, "op.l").straight(5).label("op.l").ret();
  const Addr idle = fixture.code.address("idle"), other = fixture.code.address("other_page");
  fixture.start(load ? std::vector<Addr>{idle, kBpfInside, other, other}
                     : std::vector<Addr>{idle, other, other});
  fixture.with_module_range();
  fixture.wake_at(10);
  if (load) fixture.machine->load_bpf(fixture.at(5), 0, plain_program(99, kBpfInside, false));
  // Makes perf load its kernel maps before the program is loaded, as any earlier record of kernel text does.
  fixture.machine->record_poke(fixture.at(2), 0, kText + 0xf00, {0xcc}, {0xcc});
  FaultCapture f = fixture.finish(load ? "inside_kcore" : "inside_kcore_control", directory, 15);
  f.site = kBpfInside;
  f.perf_is_right = !load;
  return f;
}

FaultCapture bpf_reload(const std::filesystem::path& directory, bool lost) {
  FaultFixture fixture;
  const Addr idle = fixture.code.address("idle");
  fixture.start({idle, kBpfOutside, kBpfOutside, idle, kBpfOutside, kBpfOutside});
  fixture.wake_at(10), fixture.wake_at(30);
  fixture.machine->load_bpf(fixture.at(5), 0, plain_program(99, kBpfOutside, false));
  fixture.machine->unload_bpf(fixture.at(15), 0, 99, 2 * kUs, !lost);
  if (lost) {
    fixture.machine->side(fixture.at(24), 0, [](PerfDataWriter& w, const Trailer& t) { w.lost(201, 2, t); });
  }
  fixture.machine->load_bpf(fixture.at(25), 0, plain_program(100, kBpfOutside, true));
  FaultCapture f = fixture.finish(lost ? "reload_lost" : "reload_control", directory, 40);
  f.site = kBpfOutside;
  f.perf_is_right = !lost;
  return f;
}

FaultCapture poke_without_timing(const std::filesystem::path& directory, bool timed_control) {
  FaultFixture fixture(timed_control ? TracerConfig{} : without_timing());
  add_site_function(fixture.code);
  const Addr idle = fixture.code.address("idle"), visit = fixture.code.address("site_function");
  const Addr site = fixture.code.address("site"), target = fixture.code.address("target");
  fixture.start({visit, visit, idle, visit, visit, visit});
  fixture.wake_at(30);
  fixture.machine->on_indirect(fixture.code.address("site_on.dispatch"),
                               [target](SimCpu&) { return target; });
  fixture.machine->poke_batch(fixture.at(15), 1,
                              {{site, jmp32_bytes(site, fixture.code.address("site_on"))}});
  FaultCapture f = fixture.finish(timed_control ? "poke_control" : "poke_window", directory, 35);
  f.site = site;
  f.perf_is_right = timed_control;
  return f;
}

FaultCapture poke_while_standing(const std::filesystem::path& directory) {
  FaultFixture fixture(without_timing());
  // The CPU goes to sleep at the branch before the site, after its outcome is decided.
  fixture.code.function("standing").straight(4).label("standing.j").jcc8(Cond::kBelow, "site");
  add_site_function(fixture.code);
  const Addr standing = fixture.code.address("standing"), site = fixture.code.address("site");
  const Addr target = fixture.code.address("target"), visit = fixture.code.address("site_function");
  fixture.start({visit, standing, visit});
  fixture.machine->on_indirect(fixture.code.address("site_on.dispatch"),
                               [target](SimCpu&) { return target; });
  const uint64_t awake = fixture.at(30);
  fixture.machine->on_branch(fixture.code.address("standing.j"), [awake](SimCpu& c) {
    c.tsc = awake;
    return true;
  });
  fixture.machine->poke_batch(fixture.at(15), 1,
                              {{site, jmp32_bytes(site, fixture.code.address("site_on"))}});
  fixture.machine->timestamp_at(awake, 0);
  FaultCapture f = fixture.finish("poke_standing", directory, 35);
  f.site = site;
  return f;
}

FaultCapture poke_wrong_old_bytes(const std::filesystem::path& directory) {
  FaultFixture fixture;
  add_site_function(fixture.code);
  const Addr idle = fixture.code.address("idle"), visit = fixture.code.address("site_function");
  const Addr site = fixture.code.address("site"), target = fixture.code.address("target");
  fixture.start({visit, idle, visit});
  fixture.wake_at(30);
  fixture.machine->on_indirect(fixture.code.address("site_on.dispatch"),
                               [target](SimCpu&) { return target; });
  const std::vector<uint8_t> jump = jmp32_bytes(site, fixture.code.address("site_on"));
  fixture.machine->write_text(fixture.at(15), site, jump);
  fixture.machine->record_poke(fixture.at(15), 1, site, {0xe9, 0x10, 0x20, 0x30, 0x40}, jump);
  FaultCapture f = fixture.finish("wrong_old", directory, 35);
  f.site = site;
  return f;
}

FaultCapture zero_reference(const std::filesystem::path& directory) {
  FaultFixture fixture;
  add_site_function(fixture.code);
  const Addr idle = fixture.code.address("idle"), visit = fixture.code.address("site_function");
  fixture.start({visit, idle, visit});
  fixture.wake_at(5);
  fixture.reference = 0;
  return fixture.finish("zero_reference", directory, 10);
}

FaultCapture old_slot_page(const std::filesystem::path& directory) {
  FaultFixture fixture;
  fixture.code.function("probed").label("probe1").straight(2).label("probe1.next").straight(3);
  fixture.code.jcc8(Cond::kEqual, "probed.l").straight(5).label("probed.l");
  fixture.code.label("probe2").straight(1).label("probe2.next").straight(9).ret();
  const Addr idle = fixture.code.address("idle"), probed = fixture.code.address("probed");
  const Addr probe1 = fixture.code.address("probe1"), probe2 = fixture.code.address("probe2");
  fixture.start({idle, probed, probed, idle, probed, probed});
  fixture.wake_at(10), fixture.wake_at(30);
  SimMemory& memory = fixture.machine->memory();
  constexpr Addr slot1 = kSlotPage, slot2 = kSecondSlot;
  const auto slot_bytes = [&](Addr slot, std::vector<uint8_t> insn, Addr next) {
    const std::vector<uint8_t> jump = jmp32_bytes(slot + insn.size(), next);
    insn.insert(insn.end(), jump.begin(), jump.end());
    return insn;
  };
  memory.load(kKernelSpace, slot1,
              slot_bytes(slot1, memory.read(kKernelSpace, probe1, 3), fixture.code.address("probe1.next")));
  const std::vector<uint8_t> second =
      slot_bytes(slot2, memory.read(kKernelSpace, probe2, 1), fixture.code.address("probe2.next"));
  fixture.machine->on_int3(probe1, [](SimCpu&) { return kSlotPage; });
  fixture.machine->on_int3(probe2, [](SimCpu&) { return kSecondSlot; });

  // The page has had a name since before the recording.
  fixture.machine->out_of_line(0, 0, kSlotPage, 0x1000, "kprobe_insn_page");
  // The first probe is armed again; its slot is older than the recording.
  const std::vector<uint8_t> first1 = memory.read(kKernelSpace, probe1, 1),
                             first2 = memory.read(kKernelSpace, probe2, 1);
  fixture.machine->write_text(fixture.at(3), probe1, {0xcc});
  fixture.machine->record_poke(fixture.at(4), 1, probe1, first1, {0xcc});
  // The second probe is recorded with its slot.
  fixture.machine->record_poke(fixture.at(20), 1, slot2, {}, second);
  fixture.machine->write_text(fixture.at(20) + 100, slot2, second);
  fixture.machine->write_text(fixture.at(22), probe2, {0xcc});
  fixture.machine->record_poke(fixture.at(23), 1, probe2, first2, {0xcc});
  FaultCapture f = fixture.finish("old_slot_page", directory, 40);
  f.site = slot1;
  f.unknown = {slot1, slot1 + 3};
  return f;
}

}  // namespace asof::test
