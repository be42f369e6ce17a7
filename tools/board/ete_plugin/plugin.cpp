// TCG plugin for stock QEMU 11.1: gives the CPUs of the arm64 "virt" machine ETE and TRBE. The guest sees them in
// ID_AA64DFR0_EL1, programs them by system registers, gets trace in its own memory and the buffer's interrupt as a PPI.
//
// Options: ram=FILE (the guest's memory, shared), out=DIRECTORY (the log), verbose=1.
//
// The machine runs with -icount: one thread executes all CPUs in turn, and CNTVCT advances with the instructions.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tools/board/ete_plugin/follower.h"
#include "tools/board/machine/qemu_api.h"

extern "C" {
ASOF_PLUGIN_EXPORT int qemu_plugin_version = 7;
ASOF_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t, const qemu_info_t*, int argc, char** argv);
}

// Not of the plugin interface, but exported by the program. QEMU 11.1 with one thread for all CPUs passes callbacks of
// translated code the index of the CPU that the code was translated for, and uses it for conditions and counters;
// which CPU runs is only in current_cpu. An interrupt is raised by work queued for the CPU, outside translated code.
extern "C" {
struct CPUState;
extern __thread CPUState* current_cpu;
CPUState* qemu_get_cpu(int index);
int64_t icount_get();
void async_run_on_cpu(CPUState*, void (*)(CPUState*, void*), void* data);
}

namespace asof::ete {
namespace {

constexpr uint64_t kRam = 0x4000'0000;                                            // of the virt machine
constexpr uint64_t kRedistributor = 0x080a'0000, kRedistributorBytes = 0x2'0000;  // GICv3
constexpr uint64_t kSetPending = 0x1'0200;  // GICR_ISPENDR0, in its SGI frame
constexpr unsigned kBufferInterrupt = 31;   // PPI 15: in the device tree (tools/board/ete)
constexpr uint64_t kQuiet = 2'000'000'000;  // instructions without trace until they are no longer followed
constexpr uint32_t kMsr = 0xd5000000, kMrs = 0xd5200000;
constexpr uint32_t kDebugFeatures = system_register(3, 0, 0, 5, 0);  // ID_AA64DFR0_EL1
constexpr uint32_t kContextId = system_register(3, 0, 13, 0, 1);     // CONTEXTIDR_EL1

struct Cpu {
  std::unique_ptr<Follower> follower;
  uint64_t shift = 0;  // of the current user block: where it runs - where it was translated
  CPUState* state = nullptr;
  bool idle = false;
};

struct Machine {
  qemu_plugin_id_t id = 0;
  std::string out;
  uint8_t* ram = nullptr;
  uint64_t ram_bytes = 0;
  std::vector<Cpu> cpus;
  std::unique_ptr<CodeLog> code;
  std::deque<Instruction> instructions;  // what translated code refers to
  qemu_plugin_register* general[31] = {};
  qemu_plugin_register *pc = nullptr, *syndrome = nullptr, *features = nullptr;
  qemu_plugin_scoreboard* board = nullptr;
  uint64_t executed = 0;  // instructions of entered blocks, of all CPUs
  uint64_t offset = 0, last_clock = 0, quiet_since = 0;
  bool certain = false, full = false, verbose = false;
};

Machine* machine;

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "ete plugin: %s\n", what);
  std::_Exit(3);
}

// ---- registers and time --------------------------------------------------------------------------------------------

uint64_t get(qemu_plugin_register* r) {
  static GByteArray* bytes = g_byte_array_new();
  g_byte_array_set_size(bytes, 0);
  uint64_t value = 0;
  if (!qemu_plugin_read_register(r, bytes)) die("cannot read a register");
  std::memcpy(&value, bytes->data, bytes->len < 8 ? bytes->len : 8);
  return value;
}

uint64_t get_general(unsigned n) { return n == 31 ? 0 : get(machine->general[n]); }

void set_general(unsigned n, uint64_t value) {
  static GByteArray* bytes = g_byte_array_new();
  if (n == 31) return;
  g_byte_array_set_size(bytes, 8);
  std::memcpy(bytes->data, &value, 8);
  if (!qemu_plugin_write_register(machine->general[n], bytes)) die("cannot write a register");
}

Cpu& current() {
  static CPUState* last = nullptr;
  static Cpu* cpu = nullptr;
  if (current_cpu != last || cpu == nullptr) {
    last = current_cpu;
    for (Cpu& c : machine->cpus) {
      if (c.state == last) cpu = &c;
    }
  }
  return *cpu;
}

// Instructions begun by all CPUs. A block is counted when it is entered.
uint64_t count_at(const Instruction& i) { return machine->executed - i.remaining; }

// Nothing is counted while nothing is followed.
Clock clock_at(uint64_t count) {
  if (!machine->full) return {machine->last_clock, false};
  uint64_t now = count + machine->offset;
  if (now < machine->last_clock) now = machine->last_clock;
  machine->last_clock = now;
  return {now, machine->certain};
}

// ---- interrupt -----------------------------------------------------------------------------------------------------

void set_pending(CPUState*, void* data) {
  static GByteArray* word = g_byte_array_new();
  const uint32_t bit = 1u << kBufferInterrupt;
  g_byte_array_set_size(word, 4);
  std::memcpy(word->data, &bit, 4);
  const uint64_t frame = kRedistributor + reinterpret_cast<uintptr_t>(data) * kRedistributorBytes;
  if (qemu_plugin_write_memory_hwaddr(frame + kSetPending, word) != 0)
    die("cannot make the interrupt pending");
}

void raise_interrupt(unsigned vcpu) {
  // The number travels as the pointer that set_pending() gets.
  async_run_on_cpu(machine->cpus[vcpu].state, set_pending,
                   reinterpret_cast<void*>(uintptr_t{vcpu}));  // NOLINT(performance-no-int-to-ptr)
}

// ---- execution -----------------------------------------------------------------------------------------------------

uint64_t address_of(const Cpu& c, const Instruction& i) {
  return i.address + (i.address >> 63 ? 0 : c.shift);
}

// QEMU shares the translation of a page between all virtual addresses that it is mapped at.
void on_user_block(unsigned, void* data) {
  Cpu& c = current();
  if (c.follower->tracing()) c.shift = get(machine->pc) - static_cast<const Instruction*>(data)->address;
}

void on_instruction(unsigned, void* data) {
  Cpu& c = current();
  if (!c.follower->tracing()) return;
  const auto& i = *static_cast<const Instruction*>(data);
  c.follower->begin(i, address_of(c, i), clock_at(count_at(i)));
}

void follow_all(bool on);

// Outside translated code QEMU's own count is exact.
void on_discontinuity(unsigned vcpu, qemu_plugin_discon_type type, uint64_t from, uint64_t to, void*) {
  Cpu& c = machine->cpus[vcpu];
  if (!machine->full || type == QEMU_PLUGIN_DISCON_HOSTCALL) return;
  machine->offset = static_cast<uint64_t>(icount_get()) - machine->executed;
  machine->certain = true;
  if (c.follower->tracing()) {
    const auto exception_class =
        static_cast<unsigned>(machine->syndrome ? get(machine->syndrome) >> 26 & 63 : 0);
    c.follower->discontinuity(from, to, exception_class, clock_at(machine->executed));
  } else if (machine->executed - machine->quiet_since > kQuiet) {
    bool any = false;
    for (const Cpu& other : machine->cpus) any = any || other.follower->tracing();
    if (!any) follow_all(false);
  }
}

// When all CPUs are idle, time jumps to the next event.
void on_idle(unsigned vcpu, void*) {
  machine->cpus[vcpu].idle = true;
  bool all = true;
  for (const Cpu& c : machine->cpus) all = all && c.idle;
  if (all) machine->certain = false;
}

void on_resume(unsigned vcpu, void*) { machine->cpus[vcpu].idle = false; }

void register_all(void*);

void follow_all(bool on) {
  if (machine->full == on) return;
  machine->full = on;
  machine->certain = false;  // the offset is of the last time when all was followed
  qemu_plugin_reset(machine->id, register_all, nullptr);
}

void on_write(unsigned, void* data) {
  Cpu& c = current();
  const auto& i = *static_cast<const Instruction*>(data);
  const uint64_t value = get_general(i.operand);
  if (machine->verbose)
    std::fprintf(stderr, "cpu %d msr %u %" PRIx64 "\n", static_cast<int>(&c - machine->cpus.data()),
                 static_cast<unsigned>(i.system), value);
  machine->quiet_since = machine->executed;
  if (c.follower->write(i.system, value, clock_at(count_at(i)))) follow_all(true);
  qemu_plugin_set_pc(address_of(c, i) + 4);
}

void on_read(unsigned, void* data) {
  Cpu& c = current();
  const auto& i = *static_cast<const Instruction*>(data);
  set_general(i.operand, c.follower->registers().read(i.system));
  qemu_plugin_set_pc(address_of(c, i) + 4);
}

// ID_AA64DFR0_EL1 with TraceVer, TraceFilt and TraceBuffer 1.
void on_features(unsigned, void* data) {
  const auto& i = *static_cast<const Instruction*>(data);
  set_general(i.operand, (get(machine->features) & ~(0xffull << 40 | 0xf0)) | 0x11ull << 40 | 0x10);
  qemu_plugin_set_pc(address_of(current(), i) + 4);
}

void on_context_id(unsigned, void* data) {
  const auto& i = *static_cast<const Instruction*>(data);
  current().follower->write_context_id(static_cast<uint32_t>(get_general(i.operand)));
}

void on_tsb_csync(unsigned, void*) { current().follower->flush(); }

// ---- translation ---------------------------------------------------------------------------------------------------

Instruction describe(uint32_t word, uint64_t address) {
  Instruction i{address, 0, 0, 0, kind_of(word), static_cast<uint8_t>(word & 31), Register::kNone};
  if ((word & 0xffd00000) != 0xd5100000) return i;  // MSR or MRS (register)
  const uint32_t number = system_register_of(word);
  const bool read = word >> 21 & 1;
  i.system = register_of(number);
  if (i.system != Register::kNone) i.kind = read ? Kind::kReadSystem : Kind::kWriteSystem;
  return i;
}

void watch(qemu_plugin_insn* insn, const Instruction& i, uint32_t word) {
  void* data = const_cast<Instruction*>(&i);
  const auto call = [&](qemu_plugin_vcpu_cb function, qemu_plugin_cb_flags flags) {
    qemu_plugin_register_vcpu_insn_exec_cb(insn, function, flags, data);
  };
  if (i.kind == Kind::kReadSystem) return call(on_read, QEMU_PLUGIN_CB_RW_REGS_PC);
  if (i.kind == Kind::kWriteSystem) return call(on_write, QEMU_PLUGIN_CB_RW_REGS_PC);
  if (i.kind == Kind::kTsbCsync) return call(on_tsb_csync, QEMU_PLUGIN_CB_NO_REGS);
  if ((word & ~31u) == (kMrs | kDebugFeatures << 5)) call(on_features, QEMU_PLUGIN_CB_RW_REGS_PC);
  if ((word & ~31u) == (kMsr | kContextId << 5)) call(on_context_id, QEMU_PLUGIN_CB_R_REGS);
}

// Counts in machine->executed whichever CPU the block was translated for: an element of size 1 at the distance of that
// variable. A scoreboard is the only target that the interface has for inline operations.
void count_block(qemu_plugin_tb* tb, uint64_t instructions) {
  unsigned translating = 0;
  while (machine->cpus[translating].state != current_cpu) ++translating;
  const auto base = reinterpret_cast<uintptr_t>(qemu_plugin_scoreboard_find(machine->board, 0));
  const qemu_plugin_u64 at{machine->board,
                           reinterpret_cast<uintptr_t>(&machine->executed) - base - translating};
  qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64, at, instructions);
}

void on_translate(qemu_plugin_tb* tb, void*) {
  const size_t n = qemu_plugin_tb_n_insns(tb);
  std::vector<uint32_t> words(n);
  for (size_t k = 0; k < n; ++k) qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, k), &words[k], 4);
  const uint64_t address = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));
  if (machine->full) count_block(tb, n);
  const uint32_t code = machine->full ? machine->code->add(address, words) : 0;
  for (size_t k = 0; k < n; ++k) {
    qemu_plugin_insn* insn = qemu_plugin_tb_get_insn(tb, k);
    Instruction i = describe(words[k], qemu_plugin_insn_vaddr(insn));
    if (!machine->full && (words[k] & 0xff000000) != 0xd5000000) continue;
    i.code = code;
    i.index = static_cast<uint16_t>(k);
    i.remaining = static_cast<uint16_t>(n - k);
    machine->instructions.push_back(i);
    Instruction& kept = machine->instructions.back();
    if (machine->full && k == 0 && address >> 63 == 0)
      qemu_plugin_register_vcpu_insn_exec_cb(insn, on_user_block, QEMU_PLUGIN_CB_R_REGS, &kept);
    if (machine->full)
      qemu_plugin_register_vcpu_insn_exec_cb(insn, on_instruction, QEMU_PLUGIN_CB_NO_REGS, &kept);
    watch(insn, kept, words[k]);
  }
}

// ---- start and end -------------------------------------------------------------------------------------------------

void find_registers() {
  GArray* all = qemu_plugin_get_registers();
  const auto* d = reinterpret_cast<const qemu_plugin_reg_descriptor*>(all->data);
  for (unsigned k = 0; k < all->len; ++k) {
    const std::string name = d[k].name;
    if (machine->verbose) std::fprintf(stderr, "register %s\n", d[k].name);
    if (name == "pc") machine->pc = d[k].handle;
    if (name == "ESR_EL1") machine->syndrome = d[k].handle;
    if (name == "ID_AA64DFR0_EL1") machine->features = d[k].handle;
    if (name.size() > 1 && name[0] == 'x' && name.find_first_not_of("0123456789", 1) == std::string::npos) {
      const unsigned n = static_cast<unsigned>(std::atoi(name.c_str() + 1));
      if (n < 31) machine->general[n] = d[k].handle;
    }
  }
  g_array_free(all, 1);
  if (machine->pc == nullptr || machine->general[30] == nullptr || machine->features == nullptr)
    die("registers are missing");
}

uint8_t* translate(uint64_t page) {
  uint64_t physical = 0;
  if (!qemu_plugin_translate_vaddr(page, &physical)) return nullptr;
  const uint64_t at = physical - kRam;
  return at < machine->ram_bytes ? machine->ram + at : nullptr;
}

void on_vcpu(unsigned vcpu, void*) {
  Cpu& c = machine->cpus[vcpu];
  if (c.follower) return;
  c.state = qemu_get_cpu(static_cast<int>(vcpu));
  find_registers();
  const std::string stem = machine->out + "/cpu" + std::to_string(vcpu);
  c.follower = std::make_unique<Follower>(CpuLog(stem + ".log"), create_file(stem + ".trace"), translate,
                                          [vcpu] { raise_interrupt(vcpu); });
}

void on_exit(void*) {
  const File f = create_file(machine->out + "/plugin.json");
  std::fprintf(f.get(), "{\"tsc_hz\": 1000000000, \"icount\": true, \"trace_bytes\": [");
  for (size_t i = 0; i < machine->cpus.size(); ++i) {
    Cpu& c = machine->cpus[i];
    if (!c.follower) continue;
    c.follower->finish();
    std::fprintf(f.get(), "%s%" PRIu64, i == 0 ? "" : ", ", c.follower->trace_bytes());
  }
  std::fprintf(f.get(), "]}\n");
  machine->code->flush();
}

// Also when everything is translated anew (follow_all()). No CPU runs meanwhile, and QEMU's count is exact: from here on the
// time is known, not only from the next exception on, which may be a millisecond away. perf shows nothing of what ran
// before a trace's first timestamp.
void register_all(void*) {
  if (machine->full) {
    machine->offset = static_cast<uint64_t>(icount_get()) - machine->executed;
    machine->certain = true;
  }
  qemu_plugin_register_vcpu_tb_trans_cb(machine->id, on_translate, nullptr);
  qemu_plugin_register_vcpu_discon_cb(machine->id, QEMU_PLUGIN_DISCON_ALL, on_discontinuity, nullptr);
  qemu_plugin_register_vcpu_idle_cb(machine->id, on_idle, nullptr);
  qemu_plugin_register_vcpu_resume_cb(machine->id, on_resume, nullptr);
  qemu_plugin_register_atexit_cb(machine->id, on_exit, nullptr);
}

void map_ram(const char* path) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  struct stat st {};
  if (fd < 0 || fstat(fd, &st) != 0) die("cannot open the guest's memory");
  machine->ram_bytes = static_cast<uint64_t>(st.st_size);
  void* at = mmap(nullptr, machine->ram_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) die("cannot map the guest's memory");
  machine->ram = static_cast<uint8_t*>(at);
  close(fd);
}

}  // namespace
}  // namespace asof::ete

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int argc, char** argv) {
  using namespace asof::ete;
  machine = new Machine;  // QEMU calls on_exit() after the destructors of static objects
  machine->id = id;
  for (int i = 0; i < argc; ++i) {
    if (std::strncmp(argv[i], "ram=", 4) == 0) map_ram(argv[i] + 4);
    if (std::strncmp(argv[i], "out=", 4) == 0) machine->out = argv[i] + 4;
    if (std::strcmp(argv[i], "verbose=1") == 0) machine->verbose = true;
  }
  if (machine->ram == nullptr || machine->out.empty() || !info->system_emulation ||
      std::strcmp(info->target_name, "aarch64") != 0) {
    std::fprintf(stderr, "ete plugin: needs ram=, out= and an arm64 machine\n");
    return -1;
  }
  try {
    machine->code = std::make_unique<CodeLog>(machine->out + "/code");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ete plugin: %s\n", e.what());
    return -1;
  }
  machine->cpus.resize(static_cast<size_t>(info->system.max_vcpus));
  machine->board = qemu_plugin_scoreboard_new(1);
  qemu_plugin_register_vcpu_init_cb(id, on_vcpu, nullptr);
  register_all(nullptr);
  return 0;
}
