#include "tools/board/capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <unordered_set>

#include "decoder/perf/record_types.h"
#include "tests/support/case_arm64.h"

namespace asof::board {
namespace {

namespace fs = std::filesystem;
using namespace asof::test;

constexpr uint32_t kPtType = 8;
constexpr uint64_t kFirstTraceId = 0x1001;
constexpr size_t kTraceAttr = 0, kSideAttr = 1;
constexpr uint64_t kPage = 4096;

AttrSpec sideband_attr(const GuestFiles& files) {
  AttrSpec a;
  a.flags = attr_flag::kSampleIdAll | attr_flag::kMmap | attr_flag::kComm | attr_flag::kTask |
            attr_flag::kMmap2 | attr_flag::kCommExec | attr_flag::kContextSwitch | attr_flag::kKsymbol |
            attr_flag::kBpfEvent | attr_flag::kTextPoke;
  a.name = "dummy:HG";
  a.ids = files.ids;
  return a;
}

void put_features(PerfDataWriter& w, const CaptureInput& in, const TraceFormat& format) {
  w.hostname("board");
  w.os_release(in.files.release);
  w.perf_version("6.1.0");
  w.arch(format.arch);
  w.nr_cpus(static_cast<uint32_t>(in.cpus.size()));
  w.cpu_id(format.cpu_id);
  w.event_desc();
  const std::pair<uint32_t, std::string> pmus[] = {{1, "software"}, {format.attr.type, format.pmu}};
  w.pmu_mappings(pmus);
  if (!in.files.programs.empty()) w.bpf_prog_info(in.files.programs);
}

void put_kernel_map(PerfDataWriter& w, const GuestFiles& files) {
  // arm64 kernels have no _text among their symbols.
  const std::string reference = files.addresses.contains("_text") ? "_text" : "_stext";
  const Addr begin = files.addresses.at(reference), end = files.addresses.at("_etext");
  w.mmap({.addr = begin,
          .len = end - begin,
          .pgoff = begin,
          .filename = "[kernel.kallsyms]" + reference,
          .kernel = true});
}

void put_traces(PerfDataWriter& w, const CaptureInput& in, const TraceFormat& format) {
  for (uint32_t cpu = 0; cpu < in.cpus.size(); ++cpu) {
    const CpuTrace& c = in.cpus[cpu];
    const Trailer begin{
        .time = in.files.perf_time(c.first_tick), .cpu = cpu, .attr = kTraceAttr, .has_id = true};
    const Trailer end{
        .time = in.files.perf_time(c.last_tick), .cpu = cpu, .attr = kTraceAttr, .has_id = true};
    w.itrace_start(0, 0, begin);
    w.aux(0, c.trace.size(), format.aux_flags, end);
  }
  for (uint32_t cpu = 0; cpu < in.cpus.size(); ++cpu) {
    w.auxtrace(
        {.offset = 0, .reference = in.cpus[cpu].first_tick, .idx = cpu, .cpu = static_cast<int32_t>(cpu)},
        in.cpus[cpu].trace);
  }
}

// Pages of kernel text that matter for this capture, so that a committed one is small.
class Trimmer {
 public:
  explicit Trimmer(const CaptureInput& in) {
    for (const Block& b : in.log.blocks) add(b.address, b.bytes.size());
    for (const Poke& p : in.pokes) add(p.address, std::max(p.old_bytes.size(), p.new_bytes.size()));
    add(in.files.addresses.at("_stext"), 1);
    add(in.files.addresses.at("_etext") - 1, 1);
  }
  // Other pages are zero, so that the copy keeps its shape and packs well.
  std::vector<CoreSegment> keep(std::vector<CoreSegment> core) const {
    for (CoreSegment& s : core) {
      for (uint64_t at = 0; at < s.bytes.size(); at += kPage) {
        if (pages_.contains((s.address + at) / kPage)) continue;
        std::fill_n(s.bytes.begin() + static_cast<std::ptrdiff_t>(at),
                    std::min<uint64_t>(kPage, s.bytes.size() - at), uint8_t{0});
      }
    }
    return core;
  }
  // Symbols of those pages, of modules and programs, and those that give the kernel's address.
  std::string keep_symbols(const std::string& kallsyms) const {
    std::string out;
    for (size_t at = 0; at < kallsyms.size();) {
      const size_t end = std::min(kallsyms.find('\n', at), kallsyms.size() - 1) + 1;
      const std::string_view line = std::string_view(kallsyms).substr(at, end - at);
      Addr address = 0;
      std::from_chars(line.data(), line.data() + line.size(), address, 16);
      const bool named =
          line.ends_with(" _text\n") || line.ends_with(" _stext\n") || line.ends_with(" _etext\n");
      if (named || line.find('\t') != std::string_view::npos || pages_.contains(address / kPage)) out += line;
      at = end;
    }
    return out;
  }

 private:
  void add(Addr address, size_t size) {
    if (size == 0) return;
    for (Addr page = address / kPage; page <= (address + size - 1) / kPage; ++page) pages_.insert(page);
  }
  std::unordered_set<Addr> pages_;
};

// The guest's watcher notes the counter; a capture has perf's time, which arm64 decoders can use, too.
std::vector<uint8_t> with_perf_time(const GuestFiles& files) {
  constexpr uint32_t kPerfTime = 0x80000000;  // docs/bundle.md, "ksym_text.bin"
  constexpr size_t kHead = 24;
  std::vector<uint8_t> out = files.ksym_text;
  for (size_t at = 0; at + kHead <= out.size();) {
    uint64_t time = 0;
    uint32_t size = 0, type = 0;
    std::memcpy(&time, out.data() + at, sizeof time);
    std::memcpy(&size, out.data() + at + 16, sizeof size);
    std::memcpy(&type, out.data() + at + 20, sizeof type);
    time = files.perf_time(time);
    type |= kPerfTime;
    std::memcpy(out.data() + at, &time, sizeof time);
    std::memcpy(out.data() + at + 20, &type, sizeof type);
    at += kHead + size;
  }
  return out;
}

std::string hex(std::span<const uint8_t> bytes) {
  std::string out;
  for (const uint8_t b : bytes) out += fmt::format("{:02x}", b);
  return out;
}

std::string pokes_text(const CaptureInput& in) {
  std::string out;
  for (const Poke& p : in.pokes) {
    out += fmt::format(
        R"({{"time": {}, "addr": "{:#x}", "old": "{}", "new": "{}", "writer_cpu": {}, "symbol": "{}"}})",
        p.time, p.address, hex(p.old_bytes), hex(p.new_bytes), p.cpu, in.files.place(p.address));
    out += '\n';
  }
  return out;
}

std::string board_text(const CaptureInput& in) {
  std::string records;
  for (const auto& [type, count] : in.files.record_counts())
    records += fmt::format("{}\"{}\": {}", records.empty() ? "" : ", ", type, count);
  const Clock& c = in.log.clock;
  return fmt::format(
      "{{\n  \"kernel\": \"{} {} {}\",\n  \"instructions_of_all_cpus\": {},\n  \"pokes\": {},\n  "
      "\"bpf_programs\": {},\n"
      "  \"records_of_the_kernel_by_type\": {{{}}},\n"
      "  \"clock\": {{\"marks\": {}, \"interrupted_marks\": {}, \"idle_jumps\": {}, \"error_bound_ns\": "
      "{}}}\n}}\n",
      in.files.release, in.files.version, in.files.machine, in.log.instructions, in.pokes.size(),
      in.files.programs.size(), records, c.marks(), c.skipped(), c.jumps(), c.error_bound());
}

}  // namespace

TraceFormat pt_format(const GuestFiles& files, const TracerConfig& config) {
  namespace bit = pt_config_bit;
  TraceFormat f;
  f.attr.type = kPtType;
  f.attr.config = bit::kPt | bit::kTsc | bit::kBranch | (3ULL << 24);
  if (config.mtc) f.attr.config |= bit::kMtc | static_cast<uint64_t>(config.mtc_freq) << 14;
  f.attr.sample_type |= sample::kIp;
  f.attr.flags =
      attr_flag::kSampleIdAll | attr_flag::kDisabled | attr_flag::kExcludeHv | attr_flag::kExcludeUser;
  f.pmu = "intel_pt";
  f.info_type = perf::kAuxtraceIntelPt;
  f.arch = "x86_64", f.cpu_id = "GenuineIntel,6,94,3";
  f.elf_machine = 62;
  f.info = {kPtType,
            files.clock.shift,
            files.clock.mult,
            files.clock.zero,
            1,
            bit::kTsc,
            bit::kNoRetComp,
            3,
            0,
            1,
            bit::kMtc,
            0xfULL << 14,
            config.tsc_ctc_n,
            config.tsc_ctc_d,
            bit::kCyc,
            config.cbr,
            0,
            0};
  return f;
}

TraceFormat etm_format(const EtmUnitConfig& config, unsigned cpus) {
  CaseFile like;  // what attributes and registers depend on
  like.arm64.return_stack = config.return_stack;
  TraceFormat f;
  f.attr = arm64_attr(like);
  f.attr.sample_type |= sample::kIp;  // perf refuses to print addresses without it
  f.pmu = "cs_etm";
  f.info_type = perf::kAuxtraceCsEtm;
  f.info = arm64_trace_units(like, cpus);
  f.arch = "aarch64", f.cpu_id = "0x00000000410fd034";
  f.elf_machine = 183;
  return f;
}

void write_board_capture(const CaptureInput& in, const TraceFormat& format, const fs::path& directory) {
  PerfDataWriter w;
  AttrSpec trace = format.attr;
  trace.name = format.pmu + "//";
  for (size_t cpu = 0; cpu < in.cpus.size(); ++cpu) trace.ids.push_back(kFirstTraceId + cpu);
  w.add_attr(trace);
  w.add_attr(sideband_attr(in.files));
  put_features(w, in, format);
  w.time_conv(in.files.clock);
  w.auxtrace_info(format.info_type, format.info);
  put_kernel_map(w, in.files);
  w.finished_init();
  for (const auto& ring : in.files.rings) w.raw(ring);
  if (!in.pokes_are_records) {
    for (const Poke& p : in.pokes)
      w.text_poke(p.address, p.old_bytes, p.new_bytes,
                  {.time = p.time, .cpu = p.cpu, .attr = kSideAttr, .has_id = true});
  }
  put_traces(w, in, format);

  const Trimmer trimmer(in);
  const auto core = [&](const std::vector<CoreSegment>& c) { return in.trim ? trimmer.keep(c) : c; };
  const auto symbols = [&](const std::string& text) { return in.trim ? trimmer.keep_symbols(text) : text; };
  w.write_directory(directory / "perf.data", {make_core(core(in.files.kcore), format.elf_machine),
                                              symbols(in.files.kallsyms), in.files.modules});
  // An empty file is written all the same: perf requires it.
  write_text(directory / "perf.data/kcore_dir/modules", in.files.modules);
  write_bytes(directory / "kcore.end", make_core(core(in.files.kcore_end), format.elf_machine));
  write_text(directory / "kallsyms.end", symbols(in.files.kallsyms_end));
  write_text(directory / "modules.end", in.files.modules_end);
  if (!in.files.ksym_text.empty()) write_bytes(directory / "ksym_text.bin", with_perf_time(in.files));
  std::vector<const Truth*> truths;
  truths.reserve(in.cpus.size());
  for (const CpuTrace& c : in.cpus) truths.push_back(c.truth);
  write_truth(directory / "truth", truths, in.note);
  write_text(directory / "truth/pokes.jsonl", pokes_text(in));
  write_text(directory / "truth/board.json", board_text(in));
}

}  // namespace asof::board
