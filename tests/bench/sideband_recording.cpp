#include "tests/bench/sideband_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "tests/support/elf_writer.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/pt_writer.h"

namespace asof::test {
namespace {

constexpr uint64_t kText = 0xffffffff81000000, kTextSize = 8U << 20U;
constexpr uint64_t kModules = 0xffffffffc0000000, kModuleSize = 0x4000;
constexpr uint64_t kBpf = 0xffffffffa0000000;
constexpr uint32_t kPtType = 8;
constexpr TimeConvSpec kClock{.shift = 0, .mult = 1, .zero = 0};
constexpr uint64_t kStart = 1'000'000'000, kRound = 2'000'000;  // ns; length of a round
constexpr unsigned kSites = 2000, kSpacing = 512, kLibraries = 30, kPrograms = 200;
constexpr unsigned kAverageRecord = 62;  // bytes, of this mix

constexpr std::array<uint8_t, 5> kNop = {0x0f, 0x1f, 0x44, 0x00, 0x00}, kJump = {0xe9, 0x20, 0, 0, 0};

class Recording {
 public:
  explicit Recording(const SidebandSpec& spec)
      : spec_(spec), w_({.compression = spec.packed ? Compression::kRecord81 : Compression::kNone}) {}

  void write(const std::filesystem::path& to) {
    head();
    start();
    const uint64_t records = spec_.megabytes * 1'000'000 / kAverageRecord;
    const uint64_t per_part = 60;  // records of one CPU in one round
    for (uint64_t round = 0; made_ < records; ++round) {
      for (unsigned cpu = 0; cpu < spec_.cpus; ++cpu) {
        // Rings are drained one after another: a later one has records of what is the next round to others.
        const uint64_t begin = kStart + round * kRound + cpu * (kRound / spec_.cpus);
        for (uint64_t i = 0; i < per_part; ++i) one(cpu, begin + i * (kRound / per_part));
      }
      w_.finished_round();
    }
    trace();
    w_.write_directory(to, parts());
  }

 private:
  struct Process {
    int32_t pid = 0;
    uint32_t program = 0;
  };

  static Trailer at(uint64_t time, unsigned cpu, const Process& p, size_t attr = 1) {
    return {.time = time, .cpu = cpu, .pid = p.pid, .tid = p.pid, .attr = attr, .has_id = true};
  }
  uint64_t any(uint64_t below) { return random_() % below; }

  void head() {
    namespace bit = pt_config_bit;
    std::vector<uint64_t> trace_ids, other_ids;
    for (unsigned cpu = 0; cpu < spec_.cpus; ++cpu)
      trace_ids.push_back(100 + cpu), other_ids.push_back(500 + cpu);
    w_.add_attr({.type = kPtType,
                 .config = bit::kPt | bit::kTsc | bit::kBranch,
                 .flags = attr_flag::kSampleIdAll,
                 .ids = trace_ids,
                 .name = "intel_pt//"});
    w_.add_attr({.flags = attr_flag::kSampleIdAll | attr_flag::kMmap | attr_flag::kMmap2 | attr_flag::kComm |
                          attr_flag::kTask | attr_flag::kContextSwitch | attr_flag::kKsymbol |
                          attr_flag::kBpfEvent | attr_flag::kTextPoke | attr_flag::kBuildId,
                 .ids = other_ids,
                 .name = "dummy:HG"});
    w_.arch("x86_64");
    w_.nr_cpus(spec_.cpus);
    w_.event_desc();
    w_.time_conv(kClock);
    w_.auxtrace_info({.pmu_type = kPtType, .time = kClock, .have_sched_switch = 3});
  }

  void map(const Process& p, const std::string& name, uint64_t addr, uint32_t file, const Trailer& t) {
    std::vector<uint8_t> id(20, 0x5a);
    for (unsigned i = 0; i < 4; ++i) id[i] = static_cast<uint8_t>(file >> (8 * i));
    w_.mmap2({.pid = p.pid,
              .tid = p.pid,
              .addr = addr,
              .len = 0x20000,
              .pgoff = 0x1000,
              .filename = name,
              .build_id = id},
             t);
    ++made_;
  }
  void libraries(const Process& p, unsigned count, const Trailer& t) {
    map(p, fmt::format("/usr/bin/program-{}", p.program), 0x400000, 1000 + p.program, t);
    for (unsigned i = 0; i < count; ++i) {
      const uint32_t lib = (p.program * 7 + i) % 300;
      map(p, fmt::format("/usr/lib/x86_64-linux-gnu/liblibrary-{}.so.{}", lib, lib % 9),
          0x7f0000000000 + i * 0x40000, lib, t);
    }
  }

  // What perf synthesises at the start.
  void start() {
    w_.mmap({.addr = kText,
             .len = kTextSize,
             .pgoff = kText,
             .filename = "[kernel.kallsyms]_text",
             .kernel = true});
    for (unsigned m = 0; m < spec_.modules; ++m) {
      w_.mmap2({.addr = kModules + m * kModuleSize,
                .len = kModuleSize,
                .filename = fmt::format("/lib/modules/6.1.0/kernel/drivers/module_{}.ko", m),
                .kernel = true});
    }
    for (unsigned i = 0; i < spec_.processes; ++i) {
      alive_.push_back({next_pid_++, static_cast<uint32_t>(any(kPrograms))});
      w_.comm(alive_.back().pid, alive_.back().pid, fmt::format("program-{}", alive_.back().program), false);
      libraries(alive_.back(), kLibraries, {});
    }
    w_.finished_init();
    running_.assign(spec_.cpus, alive_.front());
    for (unsigned cpu = 0; cpu < spec_.cpus; ++cpu) w_.itrace_start(-1, -1, at(kStart - 1000, cpu, {}, 0));
  }

  // Of 1,000 records, about 850 are switches, 60 are of tasks and mappings, 20 of text, 70 AUX.
  void one(unsigned cpu, uint64_t time) {
    const Trailer t = at(time, cpu, running_[cpu]);
    const uint64_t pick = any(1000);
    if (pick < 3) {
      replace(cpu, time);
    } else if (pick < 13) {
      poke(t);
    } else if (pick < 19) {
      program_of_bpf(t);
    } else if (pick < 29) {
      const Process& p = alive_[any(alive_.size())];
      w_.comm(p.pid, p.pid, fmt::format("worker/{}", any(64)), false, t);
    } else if (pick < 100) {
      w_.aux(0, 0, 0, at(time, cpu, running_[cpu], 0));
    } else {
      const Process next = alive_[any(alive_.size())], before = running_[cpu];
      w_.context_switch_cpu_wide(true, any(4) == 0, next.pid, next.pid, t);
      running_[cpu] = next;
      w_.context_switch_cpu_wide(false, false, before.pid, before.pid, at(time + 300, cpu, next));
      ++made_;
    }
    ++made_;
  }

  // One process ends, another one is forked and runs a program.
  void replace(unsigned cpu, uint64_t time) {
    const size_t slot = any(alive_.size());
    const Process old = alive_[slot], parent = alive_[any(alive_.size())];
    w_.exit(old.pid, 1, old.pid, 1, at(time, cpu, old));
    const Process child{next_pid_++, static_cast<uint32_t>(any(kPrograms))};
    w_.fork(child.pid, parent.pid, child.pid, parent.pid, at(time + 100, cpu, parent));
    w_.comm(child.pid, child.pid, fmt::format("program-{}", child.program), true, at(time + 200, cpu, child));
    libraries(child, 8, at(time + 300, cpu, child));
    alive_[slot] = child;
    made_ += 2;
  }

  void poke(const Trailer& t) {
    const uint64_t site = any(kSites);
    if (on_.empty()) on_.assign(kSites, false);
    w_.text_poke(kText + 0x1000 + site * kSpacing, on_[site] ? kJump : kNop, on_[site] ? kNop : kJump, t);
    on_[site] = !on_[site];
  }

  void program_of_bpf(const Trailer& t) {
    const uint64_t slot = any(64);
    if (bpf_.empty()) bpf_.assign(64, 0);
    const bool load = bpf_[slot] == 0;
    if (load) bpf_[slot] = ++next_bpf_;
    const std::string name = fmt::format("bpf_prog_{:016x}_probe", bpf_[slot]);
    std::array<uint8_t, 8> tag{};
    tag[0] = static_cast<uint8_t>(bpf_[slot]);
    w_.ksymbol(kBpf + slot * 0x1000, 0x200, 1, load ? 0 : 1, name, t);
    w_.bpf_event(load ? 1 : 2, bpf_[slot], tag, t);
    if (!load) bpf_[slot] = 0;
    ++made_;
  }

  void trace() {
    for (unsigned cpu = 0; cpu < spec_.cpus; ++cpu) {
      PtWriter pt;
      PsbPlus group;
      group.tsc = kStart;
      group.ip = kText;
      pt.psb_plus(group);
      pt.tip_pgd();
      std::vector<uint8_t> bytes(pt.bytes().begin(), pt.bytes().end());
      bytes.resize((bytes.size() + 7) / 8 * 8);
      w_.auxtrace({.reference = kStart, .idx = cpu, .cpu = static_cast<int32_t>(cpu)}, bytes);
      w_.aux(0, bytes.size(), 0, at(kStart, cpu, {}, 0));
    }
  }

  DirectoryParts parts() const {
    std::vector<uint8_t> text(kTextSize, 0x90);
    for (uint64_t s = 0; s < kSites; ++s) {
      std::copy(kNop.begin(), kNop.end(), text.begin() + static_cast<std::ptrdiff_t>(0x1000 + s * kSpacing));
    }
    DirectoryParts parts;
    parts.kcore = make_core(
        {{kText, std::move(text)}, {kModules, std::vector<uint8_t>(spec_.modules * kModuleSize, 0x90)}});
    parts.kallsyms = fmt::format("{0:016x} T _text\n{0:016x} T _stext\n", kText);
    for (uint64_t at = 64; at < kTextSize; at += 64)
      parts.kallsyms += fmt::format("{:016x} t function_{:x}\n", kText + at, at);
    parts.kallsyms += fmt::format("{:016x} T _etext\n", kText + kTextSize);
    for (unsigned m = 0; m < spec_.modules; ++m) {
      const uint64_t begin = kModules + m * kModuleSize;
      for (unsigned f = 0; f < 64; ++f)
        parts.kallsyms += fmt::format("{:016x} t driver_{}\t[module_{}]\n", begin + f * 256, f, m);
      parts.modules += fmt::format("module_{} {} 0 - Live {:#x}\n", m, kModuleSize, begin);
    }
    return parts;
  }

  SidebandSpec spec_;
  PerfDataWriter w_;
  std::minstd_rand random_{1};
  std::vector<Process> alive_, running_;  // running: by CPU
  std::vector<bool> on_;                  // sites
  std::vector<uint32_t> bpf_;             // by place: the program there, 0: none
  uint32_t next_bpf_ = 0;
  int32_t next_pid_ = 1000;
  uint64_t made_ = 0;
};

}  // namespace

void write_sideband_recording(const std::filesystem::path& to, const SidebandSpec& spec) {
  Recording(spec).write(to);
}

}  // namespace asof::test
