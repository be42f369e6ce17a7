// The plugin: one CPU of the machine each with its trace unit, and what they share.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/board/machine/qemu_api.h"
#include "tools/board/pt_plugin/clock.h"
#include "tools/board/pt_plugin/emulator.h"
#include "tools/board/pt_plugin/follower.h"
#include "tools/board/pt_plugin/msrs.h"
#include "tools/board/pt_plugin/registers.h"

namespace asof::pt {

struct Options {
  std::string ram, out;
  UnitConfig unit;
  bool verbose = false;
};

// What translated code counts and tests without a call, for all CPUs.
struct Inline {
  uint64_t begun = 0;    // instructions
  uint64_t events = 0;   // CPUs that want to know of changes of RFLAGS.IF
  uint64_t patches = 0;  // CPUs that want a callback before the next instruction
};

struct CloseFile {
  void operator()(FILE* f) const { std::fclose(f); }
};

struct Cpu {
  Cpu(unsigned number, const Options& options, std::span<uint8_t> ram)
      : index(number),
        output(ram),
        unit(options.unit, output),
        msrs(options.unit, unit, output),
        log(options.out + "/cpu" + std::to_string(number) + ".log"),
        follower(unit, log),
        trace(std::fopen((options.out + "/cpu" + std::to_string(number) + ".trace").c_str(), "wb")) {
    if (trace == nullptr) die("cannot create the copy of the trace");
    output.copy_to(trace.get());
  }

  unsigned index;
  Output output;
  TraceUnit unit;
  Msrs msrs;
  CpuLog log;
  Follower follower;
  std::unique_ptr<FILE, CloseFile> trace;  // what `output` writes: places recordings without times
  Registers regs;
  uint64_t begun = 0;     // instructions, of this CPU
  uint64_t block_ip = 0;  // of the current block, when it has an instruction that needs it
  // The instruction before the next callback, whose results are to be changed or noted.
  Insn patch = Insn::kPlain;
  bool events = false;  // counted in Inline::events
  uint32_t leaf = 0, subleaf = 0;
  uint64_t rdtsc_count = 0;
  // Handlers of the interrupt descriptor table.
  uint64_t idt_base = 0;
  std::unordered_map<uint64_t, uint8_t> vectors;
};

// An instruction that has a callback of its own.
struct Special {
  const CodeBlock* block;
  unsigned index;
  InsnClass kind;
  std::vector<uint8_t> bytes;

  uint64_t offset() const { return block->offsets[index]; }
  uint64_t size() const { return block->offsets[index + 1] - offset(); }
  bool user() const { return block->address >> 63 == 0; }
};

// All code that was translated since power-on: each different block once, numbered and logged.
class CodeTable {
 public:
  explicit CodeTable(const std::string& path);
  struct Entry {
    CodeBlock block;
    std::vector<std::unique_ptr<Special>> specials;
  };
  // `bytes` of all instructions, `sizes` of each.
  Entry& find(uint64_t address, std::span<const uint8_t> sizes, std::span<const uint8_t> bytes);
  void close() { file_.reset(); }

 private:
  void add(Entry& entry, uint64_t address, std::span<const uint8_t> sizes, std::span<const uint8_t> bytes);

  struct Close {
    void operator()(FILE* f) const { std::fclose(f); }
  };
  std::unique_ptr<FILE, Close> file_;
  std::unordered_map<std::string, std::unique_ptr<Entry>> entries_;
};

class Plugin {
 public:
  Plugin(qemu_plugin_id_t id, Options options, std::span<uint8_t> ram, unsigned cpus);

  Cpu& cpu(unsigned i) { return *cpus_[i]; }
  unsigned cpus() const { return static_cast<unsigned>(cpus_.size()); }
  const Options& options() const { return options_; }
  void add_cpu(unsigned i) { handles_[i] = qemu_get_cpu(static_cast<int>(i)); }
  // First of all in each callback: the CPU that runs, and how many instructions which CPU has begun.
  Cpu& running();
  qemu_plugin_u64 cell(uint64_t Inline::*member) { return cells_.cell(counters.*member, running().index); }
  uint64_t tsc() const { return clock.tsc(counters.begun); }
  // After each event of a trace unit: flags for translated code, interrupt of a full region.
  void after(Cpu& cpu);
  void start_following();
  bool following() const { return following_; }
  void register_all();
  void finish();

  Clock clock;
  CodeTable code;
  Inline counters;

 private:
  qemu_plugin_id_t id_;
  Options options_;
  std::vector<std::unique_ptr<Cpu>> cpus_;
  std::vector<CPUState*> handles_;
  InlineCells cells_;
  const void* thread_ = nullptr;
  unsigned last_ = 0;       // the CPU that ran
  uint64_t seen_ = 0;       // counters.begun when it was last looked at
  bool following_ = false;  // translated code counts and calls back as tracing needs it
};

extern Plugin* plugin;

// translate.cpp
void on_translate(qemu_plugin_tb* tb, void* data);
// callbacks.cpp
void on_vcpu(unsigned vcpu, void* data);
void on_block(unsigned vcpu, void* block);
void on_block_ip(unsigned vcpu, void* block);
void on_discontinuity(unsigned vcpu, qemu_plugin_discon_type type, uint64_t from, uint64_t to, void* data);
void on_flags(unsigned vcpu, void* special);
void on_sleep(unsigned vcpu, void* special);
void on_mov_cr3(unsigned vcpu, void* special);
void on_lidt(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void* data);
// specials.cpp
void on_wrmsr(unsigned vcpu, void* special);
void on_rdmsr(unsigned vcpu, void* special);
void on_rdpmc(unsigned vcpu, void* special);
void on_cpuid(unsigned vcpu, void* special);
void on_rdtsc(unsigned vcpu, void* special);
void on_ptwrite(unsigned vcpu, void* special);
void on_after(unsigned vcpu, void* data);

}  // namespace asof::pt
