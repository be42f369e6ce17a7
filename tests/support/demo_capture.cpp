#include "tests/support/demo_capture.h"

#include <algorithm>

#include "tests/support/assembler.h"

namespace asof::test {

namespace {

constexpr Addr kText = 0xffffffff81000000, kModule = 0xffffffffc0000000, kBpf = 0xffffffffc0400a40;
constexpr Addr kUser = 0x401000;
constexpr uint64_t kTicksPerUs = 2400;
constexpr int kStaticSites = 5;

std::string site_label(int n) { return "site" + std::to_string(n); }

// A function's body: straight-line code and a few branches, so that TNT bits distinguish paths.
void body(Assembler& a, const std::string& name, unsigned seed) {
  SimRandom random(seed);
  const unsigned parts = static_cast<unsigned>(random.between(2, 4));
  for (unsigned p = 0; p < parts; ++p) {
    const std::string skip = name + ".l" + std::to_string(p);
    for (unsigned i = 0; i < 3; ++i)
      a.straight(static_cast<unsigned>(random.below(Assembler::kStraightKinds)));
    a.jcc8(p % 2 == 0 ? Cond::kEqual : Cond::kNotEqual, skip);
    for (unsigned i = 0; i < 2; ++i)
      a.straight(static_cast<unsigned>(random.below(Assembler::kStraightKinds)));
    a.label(skip);
  }
}

// A static branch: NOP5 falls through; JMP32 goes to the unlikely part `name`.on, which jumps back.
void static_branch(Assembler& a, int n) {
  a.label(site_label(n)).nop5();
  a.label(site_label(n) + ".back");
}

void unlikely_part(Assembler& a, int n) {
  a.label(site_label(n) + ".on").straight(6).straight(3).call("trace_account");
  a.jcc8(Cond::kSign, site_label(n) + ".skip").straight(5);
  a.label(site_label(n) + ".skip").jmp32(site_label(n) + ".back");
}

void emit_entries(Assembler& a) {
  a.function("_stext").straight(0).ret();
  a.function("entry_SYSCALL_64")
      .straight(7)
      .straight(1)
      .straight(2)
      .call("do_syscall_64")
      .straight(6)
      .sysret();
  a.function("do_syscall_64").endbr64().straight(1).straight(9);
  a.label("syscall_dispatch").call_rax().straight(2).jcc8(Cond::kNotEqual, "do_syscall_64.out").straight(4);
  a.label("do_syscall_64.out").straight(1).ret();
  a.function("asm_exc_int3").straight(4).call("exc_int3").straight(6).iret();
  a.function("exc_int3").straight(1).call("poke_int3_handler").straight(2).ret();
  a.function("poke_int3_handler")
      .straight(1)
      .straight(6)
      .jcc8(Cond::kEqual, "poke_int3_handler.l")
      .straight(3);
  a.label("poke_int3_handler.l").straight(5).ret();
  a.function("asm_sysvec_call_function").straight(4).call("do_sync_core").iret();
  a.function("do_sync_core").straight(1).straight(2).ret();
  a.function("asm_sysvec_apic_timer_interrupt").straight(4).call("update_process_times").straight(6).iret();
  a.function("update_process_times").straight(1);
  body(a, "update_process_times", 77);
  static_branch(a, 4);
  a.straight(2).ret();
  unlikely_part(a, 4);
  a.function("ret_from_fork").straight(6).call("finish_task_switch").straight(6).sysret();
  a.function("finish_task_switch").endbr64().straight(1).straight(2).ret();
  a.function("trace_account").endbr64().straight(1);
  body(a, "trace_account", 5);
  a.ret();
}

void emit_syscalls(Assembler& a) {
  a.function("__x64_sys_getpid").endbr64();
  static_branch(a, 0);
  a.straight(7).straight(6).ret();
  unlikely_part(a, 0);

  a.function("__x64_sys_read").endbr64().straight(1).straight(2);
  static_branch(a, 1);
  a.call("vfs_read").straight(6).ret();
  unlikely_part(a, 1);
  a.function("vfs_read").endbr64().straight(1);
  a.label("vfs_read.next").straight(9).straight(3);
  static_branch(a, 2);
  body(a, "vfs_read", 11);
  a.label("vfs_read.loop").jcc32(Cond::kNotEqual, "vfs_read.next");
  a.straight(13).straight(2).ret();
  unlikely_part(a, 2);

  a.function("__x64_sys_recvfrom").endbr64().straight(1).call("sk_filter").straight(2).jmp32("copy_to_iter");
  a.function("sk_filter").endbr64().straight(4);
  a.label("bpf_dispatch").call_rax().straight(3).jcc8(Cond::kEqual, "sk_filter.drop").straight(6);
  a.label("sk_filter.drop").ret();
  a.function("copy_to_iter").endbr64();
  body(a, "copy_to_iter", 21);
  a.rep_movsb().ret();
  a.function("bpf_prog_none").endbr64().straight(3).ret();

  a.function("__x64_sys_sched_yield").endbr64().straight(1).call("schedule").straight(2).ret();
  a.function("schedule").endbr64().straight(1);
  static_branch(a, 3);
  a.straight(6).mov_cr3_rax().ret();
  unlikely_part(a, 3);

  a.function("__x64_sys_ioctl").endbr64().straight(1).call("demo_ioctl").straight(2).ret();
}

std::vector<uint8_t> module_code(Assembler& a) {
  a.function("demo_ioctl").endbr64().straight(1);
  body(a, "demo_ioctl", 31);
  a.ret();
  return a.finish();
}

Assembler user_program() {
  Assembler a(kUser);
  a.function("_start").endbr64().straight(3);
  a.label("main_loop").call("compute").call("hash_block").straight(5).syscall();
  a.straight(4).jcc8(Cond::kLess, "main_loop").straight(6).jmp8("main_loop");
  a.function("compute").straight(1).straight(2);
  a.label("compute.next").straight(12).straight(11);
  a.label("compute.switch").jmp_rax();
  a.label("compute.case0").straight(3).jmp8("compute.join");
  a.label("compute.case1").straight(9).straight(8).jmp8("compute.join");
  a.label("compute.case2").call("leaf").jmp8("compute.join");
  a.label("compute.join").straight(4);
  a.label("compute.loop").jcc32(Cond::kNotEqual, "compute.next").straight(2).ret();
  a.function("leaf").straight(1).jcc8(Cond::kBelow, "leaf.l").straight(13).label("leaf.l").ret();
  a.function("hash_block").straight(1);
  a.label("hash_block.next").straight(11).straight(6).loop("hash_block.next").ret();
  return a;
}

BpfProgSpec first_program() {
  Assembler a(kBpf);
  a.nop5().straight(1).straight(2).jcc8(Cond::kEqual, "a.l").straight(5).label("a.l").call(kBpf + 0x40);
  a.jcc8(Cond::kNotEqual, "a.m").straight(3).label("a.m").bytes({0xc9}).ret();
  Assembler sub(kBpf + 0x40);
  sub.straight(1)
      .straight(8)
      .jcc8(Cond::kGreater, "s.l")
      .straight(5)
      .straight(4)
      .label("s.l")
      .bytes({0xc9})
      .ret();
  BpfProgSpec p;
  p.id = 11, p.name = "count_packets", p.tag = {0x3a, 0x91, 0x55, 0xe0, 0x12, 0x7f, 0x0c, 0x44};
  p.functions = {{kBpf, a.finish(), p.tag},
                 {kBpf + 0x40, sub.finish(), {0x6d, 0x02, 0xab, 0x19, 0x80, 0x33, 0x5e, 0x21}}};
  return p;
}

BpfProgSpec second_program() {
  Assembler a(kBpf);
  a.nop5().straight(1).straight(8).straight(4);
  a.label("b.next")
      .straight(6)
      .jcc8(Cond::kEqual, "b.out")
      .straight(9)
      .label("b.loop")
      .jcc8(Cond::kBelow, "b.next");
  a.label("b.out").bytes({0xc9}).ret();
  BpfProgSpec p;
  p.id = 12, p.name = "drop_odd", p.tag = {0xf4, 0x28, 0x61, 0x0b, 0x9d, 0xc7, 0x35, 0x80};
  p.functions = {{kBpf, a.finish(), p.tag}};
  return p;
}

class DemoRun {
 public:
  explicit DemoRun(const DemoOptions& options)
      : options_(options), kernel_(kText), module_(kModule), user_(user_program()) {}
  DemoCapture run();

 private:
  void load();
  void rules();
  void start();
  void changes();
  void describe();
  Addr k(const std::string& label) const { return kernel_.address(label); }
  uint64_t at_us(uint64_t us) const { return machine_->config().tsc_start + us * kTicksPerUs; }

  DemoOptions options_;
  Assembler kernel_, module_, user_;
  std::vector<uint8_t> kernel_bytes_, module_bytes_, user_bytes_;
  std::unique_ptr<Machine> machine_;
  std::vector<SimTask*> tasks_;
  Addr filter_ = 0;  // what sk_filter() calls
  DemoCapture demo_;
};

void DemoRun::load() {
  kernel_.label("_text");
  module_bytes_ = module_code(module_);
  kernel_.define("demo_ioctl", module_.address("demo_ioctl"));
  emit_entries(kernel_);
  emit_syscalls(kernel_);
  kernel_bytes_ = kernel_.finish();
  kernel_bytes_.resize((kernel_bytes_.size() + 0xfff) / 0x1000 * 0x1000, 0xcc);
  module_bytes_.resize(0x1000);
  user_bytes_ = user_.finish();

  MachineConfig c;
  c.min_cost = 4, c.max_cost = 14;
  c.seed = options_.seed;
  c.trace = options_.trace;
  c.syscall_entry = k("entry_SYSCALL_64");
  c.int3_entry = k("asm_exc_int3");
  c.sync_entry = k("asm_sysvec_call_function");
  machine_ = std::make_unique<Machine>(c);
  SimMemory& m = machine_->memory();
  m.load(kKernelSpace, kText, kernel_bytes_);
  m.load(kKernelSpace, kModule, module_bytes_);
  const std::vector<uint8_t> free_pack(0x1000, 0xcc);
  m.load(kKernelSpace, kBpf & ~0xfffULL, free_pack);
  for (Space space = 1; space <= 3; ++space) m.load(space, kUser, user_bytes_);
}

void DemoRun::rules() {
  const Addr compute[] = {user_.address("compute.case0"), user_.address("compute.case1"),
                          user_.address("compute.case2")};
  machine_->on_indirect(user_.address("compute.switch"),
                        [compute](SimCpu& c) { return compute[c.random.below(3)]; });
  machine_->loop_at(user_.address("compute.loop"), 5);
  machine_->loop_at(k("vfs_read.loop"), 4);
  machine_->on_indirect(k("bpf_dispatch"), [this](SimCpu&) { return filter_; });
  machine_->on_indirect(k("syscall_dispatch"), [this](SimCpu& c) {
    switch (c.random.below(8)) {
      case 0:
        return k("__x64_sys_getpid");
      case 1:
      case 2:
        return k("__x64_sys_read");
      case 3:
        return k("__x64_sys_ioctl");
      case 4:
        // CPU 0 goes back and forth between two tasks, CPU 1 has one.
        if (c.id == 0) c.next_task = c.task == tasks_[0] ? tasks_[1] : tasks_[0];
        return k("__x64_sys_sched_yield");
      default:
        return k("__x64_sys_recvfrom");
    }
  });
}

void DemoRun::start() {
  filter_ = k("bpf_prog_none");
  for (int i = 0; i < 3; ++i) {
    tasks_.push_back(&machine_->add_task(1201 + i, 1201 + i, "worker", static_cast<Space>(i + 1), kUser,
                                         k("ret_from_fork")));
  }
  machine_->run_task(0, *tasks_[0], kUser);
  machine_->run_task(1, *tasks_[2], kUser);
  machine_->start_trace(0);
  machine_->start_trace(1);
  for (uint64_t us = 7; us < 120; us += 19) {
    machine_->interrupt_at(at_us(us), 0, k("asm_sysvec_apic_timer_interrupt"));
    machine_->interrupt_at(at_us(us) + 5000, 1, k("asm_sysvec_apic_timer_interrupt"));
  }
  // perf empties the buffers now and then.
  for (const uint64_t us : {33, 81}) {
    machine_->schedule(at_us(us), [this] { machine_->flush_aux(0), machine_->flush_aux(1); });
  }
}

void DemoRun::changes() {
  std::vector<PokeSite> on, off;
  for (int n = 0; n < kStaticSites; ++n) {
    const Addr site = k(site_label(n));
    demo_.static_sites.push_back(site);
    on.push_back({site, jmp32_bytes(site, k(site_label(n) + ".on"))});
    off.push_back({site, nop5_bytes()});
  }
  machine_->poke_batch(at_us(25), 0, on);
  machine_->poke_batch(at_us(60), 1, off);

  machine_->load_bpf(at_us(12), 0, first_program());
  machine_->schedule(at_us(14), [this] { filter_ = kBpf; });
  // Detached, then unregistered while the other CPU may still be in it; the memory is freed some time later.
  machine_->schedule(at_us(70), [this] { filter_ = k("bpf_prog_none"); });
  machine_->unload_bpf(at_us(70) + 300, 0, 11, 6 * kTicksPerUs);
  machine_->load_bpf(at_us(80), 1, second_program());
  machine_->schedule(at_us(82), [this] { filter_ = kBpf; });

  machine_->lose_trace_at(at_us(95), at_us(102), 1);
}

void DemoRun::describe() {
  CaptureSpec& s = demo_.spec;
  s.kcore = {{kText, kernel_bytes_}, {kModule, module_bytes_}};
  s.text_begin = kText, s.text_end = kText + kernel_bytes_.size();
  s.hostname = "demo", s.os_release = "6.1.0-demo";
  s.symbols.push_back({kText, 'T', "_text", ""});
  for (const CodeSymbol& y : kernel_.symbols()) s.symbols.push_back({y.address, 'T', y.name, ""});
  s.symbols.push_back({s.text_end, 'T', "_etext", ""});
  for (const CodeSymbol& y : module_.symbols()) s.symbols.push_back({y.address, 't', y.name, "demo"});
  s.modules.push_back({"demo", kModule, 0x1000});
  UserProgram p;
  p.path = "/opt/demo/worker";
  p.elf.address = kUser;
  p.elf.text = user_bytes_;
  for (const CodeSymbol& y : user_.symbols()) p.elf.symbols.push_back({y.name, y.address, y.size});
  for (unsigned i = 0; i < 20; ++i) p.elf.build_id.push_back(static_cast<uint8_t>(0xd0 + 7 * i));
  p.pids = {1201, 1202, 1203};
  s.programs.push_back(p);
  s.bpf_images = machine_->bpf_programs();
}

DemoCapture DemoRun::run() {
  load();
  rules();
  start();
  if (options_.changes) changes();
  describe();
  machine_->run_until(at_us(120));
  machine_->stop_trace(0);
  machine_->stop_trace(1);
  demo_.bpf_address = kBpf;
  // The rules point into this object, but nothing runs any more.
  demo_.machine = std::move(machine_);
  return std::move(demo_);
}

}  // namespace

DemoCapture make_demo(const DemoOptions& options) { return DemoRun(options).run(); }

void write_demo(const std::filesystem::path& directory) {
  const DemoCapture demo = make_demo();
  write_capture(*demo.machine, demo.spec, directory, "demo capture, made by tests/support/make_demo");
}

}  // namespace asof::test
