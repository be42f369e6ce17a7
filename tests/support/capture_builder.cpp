#include "tests/support/capture_builder.h"

#include <fmt/format.h>

#include <algorithm>

namespace asof::test {

namespace {

constexpr uint32_t kPtType = 8;
constexpr uint64_t kFirstPtId = 101, kFirstSidebandId = 201;
constexpr size_t kRounds = 4;  // FINISHED_ROUND parts of the side-band

unsigned recorded_cpus(const Machine& m, const CaptureSpec& spec) {
  return std::min(m.cpu_count(), spec.recorded_cpus);
}

AttrSpec pt_attr(const Machine& m, const CaptureSpec& spec) {
  namespace bit = pt_config_bit;
  const TracerConfig& c = m.config().trace;
  AttrSpec a;
  a.type = kPtType;
  a.config = bit::kPt | bit::kTsc | bit::kBranch | (3ULL << 24);
  if (c.mtc) a.config |= bit::kMtc | static_cast<uint64_t>(c.mtc_freq) << 14;
  if (c.cyc) a.config |= bit::kCyc;
  if (!c.return_compression) a.config |= bit::kNoRetComp;
  a.sample_type |= sample::kIp;
  a.flags = attr_flag::kSampleIdAll | attr_flag::kDisabled | attr_flag::kExcludeHv;
  if (!c.user) a.flags |= attr_flag::kExcludeUser;
  if (!c.kernel) a.flags |= attr_flag::kExcludeKernel;
  a.name = "intel_pt//";
  for (unsigned i = 0; i < recorded_cpus(m, spec); ++i) a.ids.push_back(kFirstPtId + i);
  return a;
}

AttrSpec sideband_attr(const Machine& m, const CaptureSpec& spec) {
  AttrSpec a;
  a.flags = attr_flag::kSampleIdAll | attr_flag::kMmap | attr_flag::kComm | attr_flag::kTask |
            attr_flag::kMmap2 | attr_flag::kCommExec | attr_flag::kContextSwitch | attr_flag::kKsymbol |
            attr_flag::kBpfEvent | attr_flag::kExcludeKernel | attr_flag::kExcludeHv | spec.sideband_flags;
  if (spec.asks_for_pokes) a.flags |= attr_flag::kTextPoke;
  a.name = "dummy:HG";
  for (unsigned i = 0; i < recorded_cpus(m, spec); ++i) a.ids.push_back(kFirstSidebandId + i);
  return a;
}

void put_features(PerfDataWriter& w, const Machine& m, const CaptureSpec& spec) {
  w.hostname(spec.hostname);
  w.os_release(spec.os_release);
  w.perf_version("6.1.0");
  w.arch("x86_64");
  w.nr_cpus(m.cpu_count());
  w.cpu_id(spec.cpu_id);
  w.event_desc();
  const std::pair<uint32_t, std::string> pmus[] = {{1, "software"}, {kPtType, "intel_pt"}};
  w.pmu_mappings(pmus);
  if (!spec.bpf_images.empty()) w.bpf_prog_info(spec.bpf_images);
}

void put_start(PerfDataWriter& w, const Machine& m, const CaptureSpec& spec) {
  const TracerConfig& c = m.config().trace;
  w.time_conv(m.config().clock);
  w.auxtrace_info({.pmu_type = kPtType,
                   .time = m.config().clock,
                   .have_sched_switch = spec.have_sched_switch ? 3U : 0U,
                   .tsc_ctc_n = c.tsc_ctc_n,
                   .tsc_ctc_d = c.tsc_ctc_d,
                   .max_nonturbo = c.cbr});
  w.mmap({.addr = spec.text_begin,
          .len = spec.text_end - spec.text_begin,
          .pgoff = spec.text_begin,
          .filename = "[kernel.kallsyms]_text",
          .kernel = true});
  for (const KernelModule& k : spec.modules) {
    w.mmap({.addr = k.address,
            .len = k.size,
            .filename = fmt::format("/lib/modules/{}/kernel/{}.ko", spec.os_release, k.name),
            .kernel = true});
  }
  for (const UserProgram& p : spec.programs) {
    const std::string name = std::filesystem::path(p.path).filename();
    for (const int32_t pid : p.pids) {
      w.comm(pid, pid, name, false);
      w.mmap2({.pid = pid,
               .tid = pid,
               .addr = p.elf.address,
               .len = (p.elf.text.size() + 0xfff) / 0x1000 * 0x1000,
               .pgoff = 0x1000,
               .filename = p.path,
               .build_id = p.elf.build_id});
    }
  }
  w.finished_init();
}

// The rings as perf empties them: in parts, each CPU's records together, then the end of the round.
void put_sideband(PerfDataWriter& w, const Machine& m, const CaptureSpec& spec) {
  const uint64_t first = m.config().tsc_start, last = m.now();
  const unsigned cpus = recorded_cpus(m, spec);
  std::vector<SideEvent> events = spec.side_events ? *spec.side_events : m.side_events();
  for (unsigned cpu = 0; cpu < cpus; ++cpu) {
    for (const AuxChunk& a : m.cpu(cpu).aux) {
      const auto emit = [a](PerfDataWriter& out, const Trailer& t) {
        Trailer pt = t;
        pt.attr = kPtAttr;
        out.aux(a.begin, a.end - a.begin, a.flags, pt);
      };
      events.push_back({a.tsc, cpu, a.pid, a.tid, emit});
    }
  }
  // Records with equal times stay in the order in which they came.
  std::vector<const SideEvent*> sorted;
  for (const SideEvent& e : events) sorted.push_back(&e);
  std::sort(sorted.begin(), sorted.end(), [](const SideEvent* a, const SideEvent* b) {
    return a->tsc != b->tsc ? a->tsc < b->tsc : a < b;
  });
  const uint64_t part = (last - first) / kRounds + 1;
  auto it = sorted.begin();
  for (size_t round = 0; round < kRounds; ++round) {
    const uint64_t end = round + 1 == kRounds ? ~0ULL : first + (round + 1) * part;
    const auto stop = std::find_if(it, sorted.end(), [end](const SideEvent* e) { return e->tsc >= end; });
    for (unsigned cpu = 0; cpu < cpus; ++cpu) {
      for (auto p = it; p != stop; ++p) {
        const SideEvent* e = *p;
        if (e->cpu != cpu) continue;
        // What the tool synthesised before the recording has no time.
        Trailer t{.attr = kSidebandAttr};
        if (e->tsc != 0) {
          t = {.time = static_cast<uint64_t>(m.perf_time(e->tsc)) + spec.record_clock_ahead,
               .cpu = cpu,
               .pid = e->pid,
               .tid = e->tid,
               .attr = kSidebandAttr,
               .has_id = true};
        }
        e->emit(w, t);
      }
    }
    w.finished_round();
    it = stop;
  }
}

}  // namespace

PerfDataWriter make_perf_data(const Machine& m, const CaptureSpec& spec) {
  PerfDataWriter w(spec.writer);
  w.add_attr(pt_attr(m, spec));
  w.add_attr(sideband_attr(m, spec));
  put_features(w, m, spec);
  put_start(w, m, spec);
  for (unsigned cpu = 0; cpu < recorded_cpus(m, spec); ++cpu) {
    const SimCpu& c = m.cpu(cpu);
    for (const AuxChunk& a : c.aux) {
      const uint64_t reference = spec.reference_override == ~0ULL ? a.tsc : spec.reference_override;
      w.auxtrace({.offset = a.begin, .reference = reference, .idx = cpu, .cpu = static_cast<int32_t>(cpu)},
                 std::span(c.tracer.writer().bytes()).subspan(a.begin, a.end - a.begin));
    }
  }
  put_sideband(w, m, spec);
  return w;
}

DirectoryParts make_kcore_dir(const CaptureSpec& spec) {
  DirectoryParts parts;
  if (spec.with_kcore) parts.kcore = make_core(spec.kcore);
  for (const KernelSymbol& s : spec.symbols) {
    parts.kallsyms += fmt::format("{:016x} {} {}{}{}{}\n", s.address, s.type, s.name,
                                  s.module.empty() ? "" : "\t[", s.module, s.module.empty() ? "" : "]");
  }
  for (const KernelModule& k : spec.modules) {
    parts.modules += fmt::format("{} {} 0 - Live {:#018x}\n", k.name, k.size, k.address);
  }
  return parts;
}

void write_capture(const Machine& m, const CaptureSpec& spec, const std::filesystem::path& directory,
                   const std::string& note) {
  make_perf_data(m, spec).write_directory(directory / "perf.data", make_kcore_dir(spec));
  for (const UserProgram& p : spec.programs) {
    write_bytes(directory / "symfs" / std::filesystem::path(p.path).relative_path(), make_executable(p.elf));
  }
  std::vector<const Truth*> truth;
  for (unsigned cpu = 0; cpu < m.cpu_count(); ++cpu) truth.push_back(&m.cpu(cpu).truth);
  write_truth(directory / "truth", truth, note);
}

}  // namespace asof::test
