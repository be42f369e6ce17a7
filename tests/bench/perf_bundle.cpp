// perf_bundle BUNDLE DIRECTORY [BYTES]: writes a raw bundle of user code as DIRECTORY/perf.data, with one ELF
// file for each piece of text, so that perf decodes the same as asof and libipt. With BYTES, only the
// beginning of the trace is written, up to the last sync point within that many bytes.
//
// The trace is of one thread whose mappings never change. perf (tools/perf/util/intel-pt.c, 6.1) takes the
// text of a mapping from the file by offset, needs an AUXTRACE reference other than 0, and finds the process
// of a thread's queue by its COMM record.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "tests/support/elf_writer.h"
#include "tests/support/perf_data_writer.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int32_t kTask = 1000;
constexpr uint32_t kPtType = 8;
constexpr uint64_t kTextOffset = 0x1000;  // of .text in a file of make_executable()
constexpr TimeConvSpec kClock{.shift = 0, .mult = 1, .zero = 0};

uint64_t number(const json& value) {
  return value.is_string() ? std::stoull(value.get<std::string>(), nullptr, 0) : value.get<uint64_t>();
}

// Up to the last PSB (sixteen times 02 82) within `limit` bytes.
std::vector<uint8_t> beginning(std::vector<uint8_t> trace, size_t limit) {
  if (trace.size() <= limit) return trace;
  constexpr std::array<uint8_t, 16> kPsb = {2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82,
                                            2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82};
  trace.resize(limit);
  const auto last = std::find_end(trace.begin(), trace.end(), kPsb.begin(), kPsb.end());
  if (last == trace.end()) throw std::runtime_error("no sync point within so many bytes");
  trace.erase(last, trace.end());
  return trace;
}

// One piece of text as a file, mapped at the address of the piece.
void add_text(PerfDataWriter& w, const json& piece, const fs::path& from, const fs::path& to, uint8_t index) {
  std::vector<uint8_t> bytes = read_bytes(from / piece["file"].get<std::string>());
  const uint64_t offset = piece.contains("offset") ? number(piece["offset"]) : 0;
  if (offset > bytes.size()) throw std::runtime_error("a piece of text begins beyond the end of its file");
  const uint64_t size =
      std::min(piece.contains("size") ? number(piece["size"]) : UINT64_MAX, bytes.size() - offset);
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(offset));
  bytes.resize(size);
  const uint64_t address = number(piece["address"]);
  std::vector<uint8_t> build_id(20, index);
  const fs::path file = to / fmt::format("text{}.elf", index);
  write_bytes(file, make_executable({.address = address, .text = std::move(bytes), .build_id = build_id}));
  w.mmap2({.pid = kTask,
           .tid = kTask,
           .addr = address,
           .len = size,
           .pgoff = kTextOffset,
           .filename = fs::absolute(file).string(),
           .build_id = build_id});
}

void write(const fs::path& bundle, const fs::path& to, size_t limit) {
  namespace bit = pt_config_bit;
  const json manifest = json::parse(std::ifstream(bundle));
  const fs::path from = bundle.parent_path();
  const auto trace = beginning(read_bytes(from / manifest["streams"][0]["file"].get<std::string>()), limit);
  fs::create_directories(to);
  PerfDataWriter w;
  w.add_attr({.type = kPtType,
              .config = bit::kPt | bit::kTsc | bit::kMtc | bit::kBranch,
              .sample_type = sample::kIp | sample::kTid | sample::kTime | sample::kCpu | sample::kIdentifier,
              .flags = attr_flag::kSampleIdAll | attr_flag::kExcludeKernel,
              .ids = {101},
              .name = "intel_pt//u"});
  w.add_attr({.flags = attr_flag::kSampleIdAll | attr_flag::kMmap | attr_flag::kMmap2 | attr_flag::kComm |
                       attr_flag::kTask | attr_flag::kBuildId,
              .ids = {201},
              .name = "dummy:u"});
  w.arch("x86_64");
  w.nr_cpus(1);
  w.event_desc();
  w.time_conv(kClock);
  w.auxtrace_info({.pmu_type = kPtType, .time = kClock, .per_cpu = false});
  w.comm(kTask, kTask, "traced", true);
  uint8_t index = 0;
  for (const json& piece : manifest["text"]) add_text(w, piece, from, to, ++index);
  w.finished_init();
  const auto at = [](uint64_t time) {
    return Trailer{.time = time, .pid = kTask, .tid = kTask, .attr = 0, .has_id = true};
  };
  w.auxtrace({.reference = 1, .idx = 0, .tid = kTask, .cpu = -1}, trace);
  w.itrace_start(kTask, kTask, at(1));
  w.aux(0, trace.size(), 0, at(UINT64_C(1) << 40));
  w.finished_round();
  w.write_file(to / "perf.data");
  fmt::print("{}: {} bytes of trace\n", (to / "perf.data").string(), trace.size());
}

}  // namespace
}  // namespace asof::test

int main(int argc, char** argv) {
  size_t limit = SIZE_MAX;
  bool usage = argc != 3 && argc != 4;
  if (argc == 4) {
    const std::string_view text = argv[3];
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), limit);
    usage = parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size();
  }
  if (usage) {
    std::fputs("usage: perf_bundle BUNDLE DIRECTORY [BYTES]\n", stderr);
    return 1;
  }
  try {
    asof::test::write(argv[1], argv[2], limit);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  }
  return 0;
}
