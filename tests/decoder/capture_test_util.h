// Shared by the tests of capture opening: a small recording to write, and queries to a store.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "decoder/model/capture.h"
#include "tests/support/elf_writer.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/temp_dir.h"

namespace asof::test {

using Bytes = std::vector<uint8_t>;

// Options that exclude any influence of the machine that runs the tests.
inline CaptureOptions closed_options() {
  CaptureOptions options;
  options.host_files = false;
  return options;
}

inline const Notice* find_notice(const Capture& capture, Code code) {
  for (const Notice& notice : capture.notices) {
    if (notice.code == code) return &notice;
  }
  return nullptr;
}

// Is a version possible at instant t whose bytes may have changed without a record?
inline bool is_unsure(const TextStore& text, Space space, Addr a, Time t) {
  const Cell cell = text.cell(space, a);
  return std::ranges::any_of(cell.possible_in({t, t}), &Version::unsure);
}

// All distinct contents of [a, a + n) that are possible at instant t; unknown content is an empty one.
inline std::vector<Bytes> contents(const TextStore& text, Space space, Addr a, size_t n, Time t) {
  std::vector<Bytes> out;
  const Cell cell = text.cell(space, a);
  if (cell.versions.empty()) return {{}};
  for (const Version& version : cell.versions) {
    if (!version.possible_in({t, t})) continue;
    Bytes bytes;
    if (version.bytes != nullptr) {
      const size_t have = std::min<size_t>(n, cell.range.end - a);
      bytes.assign(version.bytes + (a - cell.range.begin), version.bytes + (a - cell.range.begin) + have);
    }
    if (std::find(out.begin(), out.end(), bytes) == out.end()) out.push_back(bytes);
  }
  if (out.empty()) out.push_back({});
  return out;
}

// The n bytes at a as of t if they are known and unique; otherwise fewer.
inline Bytes bytes_at(const TextStore& text, Space space, Addr a, size_t n, Time t) {
  Bytes out(n);
  out.resize(text.read(space, a, t, out));
  return out;
}

// A perf.data directory under construction: one PT event, one side-band event, two CPUs, a kernel of one
// page.
class Recording {
 public:
  static constexpr Addr kText = 0xffffffff81000000;
  static constexpr uint64_t kTextSize = 0x2000;
  static constexpr Addr kModules = 0xffffffffc0000000;

  // `excluded`: of perf_event_attr of the trace, attr_flag::kExcludeUser for instance.
  explicit Recording(uint64_t excluded = 0) {
    AttrSpec trace{.type = 8,
                   .config = pt_config_bit::kPt | pt_config_bit::kTsc | pt_config_bit::kBranch,
                   .ids = {1, 2},
                   .name = "intel_pt//"};
    trace.flags |= excluded;
    writer.add_attr(trace);
    writer.add_attr({.flags = attr_flag::kSampleIdAll | attr_flag::kKsymbol | attr_flag::kBpfEvent |
                              attr_flag::kTextPoke | attr_flag::kMmap2 | attr_flag::kComm,
                     .ids = {3, 4},
                     .name = "dummy"});
    writer.arch("x86_64");
    writer.cpu_id("GenuineIntel,6,142,10");
    PtInfoSpec info;
    info.time = {.shift = 0, .mult = 1, .zero = 0};
    writer.auxtrace_info(info);
    writer.time_conv(info.time);
    MmapSpec kernel{.addr = kText,
                    .len = kTextSize,
                    .pgoff = kText,
                    .filename = "[kernel.kallsyms]_text",
                    .kernel = true};
    writer.mmap(kernel);
    kernel_bytes.resize(kTextSize, 0x90);
    symbol(kText, 'T', "_text");
    symbol(kText, 'T', "_stext");
    symbol(kText + kTextSize, 'T', "_etext");
  }

  static Trailer at(uint64_t time, uint32_t cpu = 0, int32_t pid = 1, int32_t tid = 1) {
    return {.time = time, .cpu = cpu, .pid = pid, .tid = tid, .attr = 1, .has_id = true};
  }
  void symbol(Addr addr, char type, const std::string& name, const std::string& module = "") {
    kallsyms += line(addr, type, name, module);
  }
  static std::string line(Addr addr, char type, const std::string& name, const std::string& module = "") {
    char text[64];
    std::snprintf(text, sizeof text, "%016llx %c ", static_cast<unsigned long long>(addr), type);
    return text + name + (module.empty() ? "" : "\t[" + module + "]") + "\n";
  }
  static std::string module_line(const std::string& name, Addr addr, uint64_t size) {
    char text[64];
    std::snprintf(text, sizeof text, " %llu 0 - Live 0x%llx\n", static_cast<unsigned long long>(size),
                  static_cast<unsigned long long>(addr));
    return name + text;
  }
  void segment(Addr addr, Bytes bytes) { segments.push_back({addr, std::move(bytes)}); }

  // Adds a byte of trace on CPU 0, writes everything and opens it.
  Result<Capture> open(const CaptureOptions& options = closed_options()) {
    writer.auxtrace({.offset = 0, .reference = 1, .cpu = 0}, Bytes(16, 0));
    writer.aux(0, 16, 0, at(1'000'000));
    std::vector<CoreSegment> all = {{kText, kernel_bytes}};
    all.insert(all.end(), segments.begin(), segments.end());
    if (!programs.empty()) writer.bpf_prog_info(programs);
    writer.write_directory(dir / "perf.data", {with_kcore ? make_core(all) : Bytes(),
                                               with_kcore ? kallsyms : "", with_kcore ? modules : ""});
    return open_capture((dir / "perf.data").string(), options);
  }
  // The copy at the end, next to the directory.
  void write_end(const std::vector<CoreSegment>& at_end, const std::string& symbols,
                 const std::string& live) const {
    write_bytes(dir / "kcore.end", make_core(at_end));
    write_text(dir / "kallsyms.end", symbols);
    write_text(dir / "modules.end", live);
  }

  TempDir dir;
  PerfDataWriter writer;
  Bytes kernel_bytes;
  std::vector<CoreSegment> segments;
  std::string kallsyms, modules;
  std::vector<BpfProgSpec> programs;
  bool with_kcore = true;
};

}  // namespace asof::test
