#include "tests/support/etm_demo.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "tests/support/case_arm64.h"
#include "tests/support/elf_writer.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/truth.h"

namespace asof::test {

namespace {

constexpr uint64_t kDefaultSeed = 36;
constexpr uint64_t kUs = 1000;  // ns
constexpr unsigned kCpus = 2;
constexpr size_t kEtm = 0, kSideband = 1;  // attrs

// One after the other, each complete before the next begins.
void change_all(EtmDemo& demo, uint64_t at, bool calls, bool on, int writer) {
  for (const EtmProgram::Site& s : demo.program->sites()) {
    if (s.call != calls) continue;
    demo.machine->change({s.at, on ? a64::kNop : s.on(), on ? s.on() : a64::kNop, at, at + 90, writer});
    at += 700;
  }
}

SimKind kind_of(const A64Executed& e) {
  switch (a64_decode(e.ip, e.word).kind) {
    case A64Kind::kStraight:
      return SimKind::kStraight;
    case A64Kind::kCond:
      return SimKind::kCond;
    case A64Kind::kBl:
      return SimKind::kCall;
    case A64Kind::kRet:
      return SimKind::kRet;
    default:
      return SimKind::kJump;
  }
}

Truth truth_of(const EtmCpu& cpu) {
  Truth t(false);
  bool pause = false;
  for (const A64Executed& e : cpu.executed()) {
    pause = pause || e.restart;
    if (!e.shown) continue;
    if (pause)
      t.interrupted();
    else if (e.async)
      t.async();
    pause = false;
    SimInsn insn{.length = 4, .kind = kind_of(e)};
    std::ranges::copy(a64::bytes_of(e.word), insn.bytes.begin());
    t.instruction(e.ip, insn, kKernelSpace, false, static_cast<Time>(e.time));
  }
  return t;
}

struct Record {
  uint64_t time = 0;
  unsigned cpu = 0;
  std::function<void(PerfDataWriter&, const Trailer&)> emit;
};

std::vector<Record> records(const EtmDemo& demo, PerfDataWriter& w) {
  std::vector<Record> out;
  for (const auto& [addr, changes] : demo.machine->changes()) {
    for (const EtmChange& c : changes) {
      out.push_back(
          {c.written + 40, static_cast<unsigned>(c.writer), [c](PerfDataWriter& to, const Trailer& t) {
             to.text_poke(c.addr, a64::bytes_of(c.old_word), a64::bytes_of(c.new_word), t);
           }});
    }
  }
  const uint64_t start = demo.machine->config().start;
  for (unsigned cpu = 0; cpu < kCpus; ++cpu) {
    constexpr uint64_t kRaw = 0x100;  // PERF_AUX_FLAG_CORESIGHT_FORMAT_RAW
    const std::vector<uint8_t>& raw = demo.cpus[cpu]->unit().writer().bytes();
    const std::vector<uint8_t> trace = demo.frames ? arm64_frames(cpu, raw) : raw;
    w.auxtrace({.offset = 0, .reference = 1, .idx = cpu, .cpu = static_cast<int32_t>(cpu)}, trace);
    const uint64_t size = trace.size(), flags = demo.frames ? 0 : kRaw;
    out.push_back({start, cpu, [](PerfDataWriter& to, const Trailer& t) {
                     Trailer etm = t;
                     etm.attr = kEtm;
                     to.itrace_start(1, 1, etm);
                   }});
    out.push_back({demo.cpus[cpu]->now() + kUs, cpu, [size, flags](PerfDataWriter& to, const Trailer& t) {
                     Trailer etm = t;
                     etm.attr = kEtm;
                     to.aux(0, size, flags, etm);
                   }});
  }
  std::ranges::stable_sort(out, {}, &Record::time);
  return out;
}

DirectoryParts kcore_of(const EtmProgram& program) {
  constexpr uint16_t kAarch64 = 183;
  DirectoryParts parts;
  std::vector<uint8_t> text = program.bytes();
  const Addr end = EtmProgram::kText + text.size();
  text.resize((text.size() + 0xfff) / 0x1000 * 0x1000);
  parts.kcore = make_core({{EtmProgram::kText, text}}, kAarch64);
  parts.kallsyms = fmt::format("{0:016x} T _text\n{0:016x} T _stext\n", EtmProgram::kText);
  for (const auto& [addr, name] : program.functions())
    parts.kallsyms += fmt::format("{:016x} T {}\n", addr, name);
  parts.kallsyms += fmt::format("{:016x} T _etext\n", end);
  return parts;
}

}  // namespace

EtmDemo make_etm_demo(const EtmDemoOptions& options) {
  const uint64_t seed = options.seed == 0 ? kDefaultSeed : options.seed;
  EtmDemo demo;
  demo.frames = options.frames;
  demo.program = std::make_unique<EtmProgram>(seed);
  EtmMachineConfig c;
  c.seed = seed;
  c.start = 6'000'000'000;
  c.min_cost = 3, c.max_cost = 11;
  c.unit = options.unit;
  c.keep_executed = options.truth;
  const uint64_t end = c.start + options.microseconds * kUs;
  c.vector = demo.program->vector();
  demo.machine = std::make_unique<EtmMachine>(c);
  demo.program->install(*demo.machine);
  change_all(demo, c.start + 15 * kUs, false, true, 0);
  change_all(demo, c.start + 30 * kUs, true, true, 1);
  change_all(demo, c.start + 45 * kUs, false, false, 1);
  change_all(demo, c.start + 62 * kUs, true, false, 0);
  for (unsigned i = 0; i < kCpus; ++i) {
    demo.cpus.push_back(std::make_unique<EtmCpu>(*demo.machine, static_cast<int>(i)));
    EtmCpu& cpu = *demo.cpus.back();
    for (uint64_t t = c.start + (4 + 3 * i) * kUs; t < end; t += 9 * kUs) cpu.interrupt_at(t);
    if (i == 1) cpu.stop_at(c.start + 50 * kUs, c.start + 53 * kUs);
    cpu.start(demo.program->entry());
    cpu.run_until(end);
    cpu.finish();
  }
  return demo;
}

void write_etm_demo(const EtmDemo& demo, const std::filesystem::path& directory) {
  CaseFile like;  // attributes and registers depend on it
  like.arm64.return_stack = demo.machine->config().unit.return_stack;
  PerfDataWriter w;
  AttrSpec etm = arm64_attr(like);
  AttrSpec side{.flags = attr_flag::kSampleIdAll | attr_flag::kMmap | attr_flag::kComm | attr_flag::kKsymbol |
                         attr_flag::kBpfEvent | attr_flag::kTextPoke,
                .name = "dummy:HG"};
  for (unsigned i = 0; i < kCpus; ++i) etm.ids.push_back(101 + i), side.ids.push_back(201 + i);
  w.add_attr(etm);
  w.add_attr(side);
  w.hostname("demo");
  w.os_release("6.1.0-demo");
  w.perf_version("6.1.0");
  w.arch("aarch64");
  w.nr_cpus(kCpus);
  w.cpu_id("0x00000000410fd490");
  w.event_desc();
  const std::pair<uint32_t, std::string> pmus[] = {{1, "software"}, {etm.type, "cs_etm"}};
  w.pmu_mappings(pmus);
  w.time_conv({.shift = 0, .mult = 1, .zero = 0});  // a 1 GHz counter, as in Armv8.6
  w.auxtrace_info(kCsEtmInfo, arm64_trace_units(like, kCpus));
  const uint64_t text = demo.program->bytes().size();
  w.mmap({.addr = EtmProgram::kText,
          .len = text,
          .pgoff = EtmProgram::kText,
          .filename = "[kernel.kallsyms]_text",
          .kernel = true});
  w.finished_init();
  for (const Record& r : records(demo, w)) {
    r.emit(w, {.time = r.time, .cpu = r.cpu, .pid = 1, .tid = 1, .attr = kSideband, .has_id = true});
  }
  w.finished_round();
  w.write_directory(directory / "perf.data", kcore_of(*demo.program));
  std::vector<Truth> truths;
  for (const auto& cpu : demo.cpus) truths.push_back(truth_of(*cpu));
  std::vector<const Truth*> pointers;
  for (const Truth& t : truths) pointers.push_back(&t);
  write_truth(directory / "truth", pointers, "arm64 demo capture, made by tests/support/make_demo");
}

}  // namespace asof::test
