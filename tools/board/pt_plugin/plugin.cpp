// pt_plugin: gives the CPUs of an x86-64 machine that stock QEMU emulates (TCG, -icount shift=0) Intel PT.
//
// The guest finds it in CPUID, programs it through its MSRs, and gets packets in its memory and an NMI when a region
// that asks for one is full. What executed goes into a log, apart from the packets (log_format.h).
//
// Two boots with the same seed and initrd: one CPU runs the same instructions at the same times. With more, QEMU's main
// loop ends a CPU's turn at times of the host, so that the CPUs alternate differently.
//
// Options: ram=FILE (the guest's memory: memory-backend-file, share=on, below 2 GiB), out=DIRECTORY (the log),
// buffer=BYTES,drain=BYTES (an internal buffer that overflows: its size, and the bytes that leave it in 1,000 ticks of
// the TSC; without it, it never does), verbose=1 (accesses to MSRs on stderr).
#include "tools/board/pt_plugin/plugin.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace asof::pt {

Plugin* plugin;

namespace {

void on_exit(void*) { plugin->finish(); }
void on_reset(void*) { plugin->register_all(); }

// The interrupt of a full region: a message to the CPU's APIC, delivered as NMI, as the kernel sets LVTPC. The
// emulator runs this between two blocks, when no CPU is current; the message needs one for its address space.
void send_nmi(CPUState* cpu, void* data) {
  static GByteArray* message = g_byte_array_new();
  const uint32_t nmi = 4 << 8;
  g_byte_array_set_size(message, sizeof nmi);
  std::memcpy(message->data, &nmi, sizeof nmi);
  const uint64_t apic = 0xfee00000 | reinterpret_cast<uintptr_t>(data) << 12;
  CPUState* const before = std::exchange(current_cpu, cpu);
  if (qemu_plugin_write_memory_hwaddr(apic, message) != 0) die("cannot send an NMI");
  current_cpu = before;
}

std::span<uint8_t> map_ram(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR);
  struct stat st {};
  if (fd < 0 || fstat(fd, &st) != 0) die("cannot open the guest's memory");
  const auto size = static_cast<size_t>(st.st_size);
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) die("cannot map the guest's memory");
  return {static_cast<uint8_t*>(at), size};
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 0; i < argc; ++i) {
    const std::string_view a = argv[i];
    const auto value = [&] { return argv[i] + a.find('=') + 1; };
    if (a.starts_with("ram=")) o.ram = value();
    if (a.starts_with("out=")) o.out = value();
    if (a.starts_with("buffer="))
      o.unit.buffer_bytes = static_cast<uint32_t>(std::strtoul(value(), nullptr, 0));
    if (a.starts_with("drain=")) o.unit.drain = static_cast<uint32_t>(std::strtoul(value(), nullptr, 0));
    if (a == "verbose=1") o.verbose = true;
  }
  return o;
}

}  // namespace

Plugin::Plugin(qemu_plugin_id_t id, Options options, std::span<uint8_t> ram, unsigned cpus)
    : code(options.out + "/code"), id_(id), options_(std::move(options)), handles_(cpus) {
  for (unsigned i = 0; i < cpus; ++i) cpus_.push_back(std::make_unique<Cpu>(i, options_, ram));
}

// Between two callbacks only one CPU runs: each block calls back.
Cpu& Plugin::running() {
  // Without -icount each CPU has a thread.
  const void* const own = static_cast<void*>(&current_cpu);
  if (thread_ != nullptr && thread_ != own) die("needs -icount shift=0");
  thread_ = own;
  const uint64_t begun = counters.begun;
  cpus_[last_]->begun += begun - seen_;
  seen_ = begun;
  while (handles_[last_] != current_cpu) last_ = (last_ + 1) % cpus();
  return *cpus_[last_];
}

void Plugin::after(Cpu& c) {
  const bool events = c.unit.tracing() && (c.unit.ctl() & kEventEn);
  if (events != c.events) counters.events += events ? 1 : ~uint64_t{0};
  c.events = events;
  if (!c.output.take_interrupt()) return;
  c.log.mark(machine::Mark::kRegion, 0, c.output.written(), c.unit.now());
  c.msrs.set_topa_interrupt();
  // With -icount, translated code must not raise interrupts: the emulator does it after this block.
  async_run_on_cpu(
      qemu_get_cpu(static_cast<int>(c.index)), send_nmi,
      reinterpret_cast<void*>(uintptr_t{c.index}));  // NOLINT(performance-no-int-to-ptr): its number
}

// All code is translated again, with callbacks for each block.
void Plugin::start_following() {
  if (following_) return;
  following_ = true;
  qemu_plugin_reset(id_, on_reset, nullptr);
}

void Plugin::register_all() {
  qemu_plugin_register_vcpu_tb_trans_cb(id_, on_translate, nullptr);
  qemu_plugin_register_vcpu_discon_cb(id_, QEMU_PLUGIN_DISCON_ALL, on_discontinuity, nullptr);
  qemu_plugin_register_atexit_cb(id_, on_exit, nullptr);
}

void Plugin::finish() {
  FILE* f = std::fopen((options_.out + "/plugin.json").c_str(), "w");
  if (f == nullptr) die("cannot write plugin.json");
  std::fprintf(f, "{\"tsc_hz\": 1000000000, \"icount\": true, \"cpus\": [");
  const char* separator = "";
  for (const auto& c : cpus_) {
    std::fprintf(f,
                 "%s\n  {\"trace_bytes\": %llu, \"lost_bytes\": %llu, \"overflows\": %llu, \"psb\": %llu, "
                 "\"records\": %llu, \"unexplained\": %llu}",
                 separator, static_cast<unsigned long long>(c->output.written()),
                 static_cast<unsigned long long>(c->output.lost()),
                 static_cast<unsigned long long>(c->unit.overflows()),
                 static_cast<unsigned long long>(c->unit.syncs()),
                 static_cast<unsigned long long>(c->log.records()),
                 static_cast<unsigned long long>(c->follower.unexplained()));
    separator = ",";
    c->log.close();
    if (std::fflush(c->trace.get()) != 0) die("cannot write the copy of the trace");
  }
  std::fprintf(f, "]}\n");
  std::fclose(f);
  code.close();
}

}  // namespace asof::pt

extern "C" {

ASOF_PLUGIN_EXPORT int qemu_plugin_version = 7;

ASOF_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int argc,
                                           char** argv) {
  using namespace asof::pt;
  Options options = parse(argc, argv);
  if (options.ram.empty() || options.out.empty() || std::strcmp(info->target_name, "x86_64") != 0 ||
      !info->system_emulation) {
    std::fprintf(stderr, "pt plugin: needs ram=, out= and an x86-64 machine\n");
    return -1;
  }
  const std::span<uint8_t> ram = map_ram(options.ram);
  plugin = new Plugin(id, std::move(options), ram, static_cast<unsigned>(info->system.max_vcpus));
  qemu_plugin_register_vcpu_init_cb(id, on_vcpu, nullptr);
  plugin->register_all();
  return 0;
}

}  // extern "C"
