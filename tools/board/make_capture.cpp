// make_capture BOARD CAPTURE [--coarse] [--trim]
//
// BOARD: what the plugin and the guest of a simulated board wrote (tools/board/x86, tools/board/arm64).
// CAPTURE: a new directory with perf.data/, the snapshot after the recording, and truth/. --coarse: no time
// but a TSC every 16 KiB of trace; --trim: copies of kernel text hold only the pages that matter, for
// captures that are kept.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/case_arm64.h"
#include "tools/board/arm64_flow.h"
#include "tools/board/capture.h"
#include "tools/board/known_text.h"
#include "tools/board/x86_flow.h"

namespace {

using namespace asof;
using namespace asof::board;

struct Options {
  std::filesystem::path board, capture;
  bool coarse = false, trim = false;
};

// Entries of the IDT: see the guest's init, which passes the same to the plugin.
class Entries {
 public:
  explicit Entries(const GuestFiles& files) {
    for (const auto& [name, address] : files.addresses) {
      if (name.starts_with("asm_exc_") || name.starts_with("asm_sysvec_")) known_.insert(address);
      if (name == "irq_entries_start" || name == "spurious_entries_start") {
        const auto next = files.symbols.upper_bound(address);
        if (next != files.symbols.end()) stubs_.push_back({address, next->first - address});
      }
    }
  }
  bool operator()(Addr a) const {
    if (known_.contains(a)) return true;
    for (const auto& [begin, size] : stubs_) {
      if (a - begin < size && (a - begin) % 8 == 0) return true;
    }
    return false;
  }

 private:
  std::set<Addr> known_;
  std::vector<std::pair<Addr, uint64_t>> stubs_;
};

test::TracerConfig trace_config(bool coarse) {
  test::TracerConfig c;
  c.user = false;
  c.mtc = !coarse;
  c.mtc_freq = 7;    // 128 ticks of 25 MHz: 5.12 us
  c.tsc_ctc_n = 40;  // the counter of the board has 1 GHz
  c.cbr = 10;
  c.psb_bytes = 16 * 1024;
  c.keep_packets = false;
  return c;
}

int run_x86(const Options& o, const GuestFiles& files) {
  const Log log = read_log(test::read_bytes(o.board / "log"), test::read_bytes(o.board / "blocks"), 1);
  const std::vector<board::Poke> pokes = files.pokes();
  const KnownText known(files, pokes);
  X86Options x86;
  x86.trace = trace_config(o.coarse);
  x86.is_entry = Entries(files);
  x86.known = [&](Addr a, std::span<const uint8_t> bytes) { return known.has(a, bytes); };
  x86.perf_time = [&](uint64_t tsc) { return files.perf_time(tsc); };
  std::vector<X86Cpu> cpus;
  for (size_t cpu = 0; cpu < log.cpus.size(); ++cpu) {
    cpus.push_back(encode_x86(log, cpu, x86));
    const X86Cpu& c = cpus.back();
    fmt::print(
        "cpu {}: {} instructions in {} runs, {} exceptions in traced code, {} INT3, {} late, {} bytes of "
        "trace\n",
        cpu, c.truth.count(), c.truth.runs().size(), c.exceptions, c.int3_hits, c.late_instructions,
        c.trace.size());
  }
  CaptureInput in{files, log, pokes, true, {}, "x86 board, tools/board/x86", o.trim};
  for (const X86Cpu& c : cpus) in.cpus.push_back({&c.truth, c.trace, c.first_tsc, c.last_tsc});
  write_board_capture(in, pt_format(files, x86.trace), o.capture);
  fmt::print("{} pokes, {} BPF programs; clock: {} marks, error bound {} ns, {} idle jumps\n", pokes.size(),
             files.programs.size(), log.clock.marks(), log.clock.error_bound(), log.clock.jumps());
  return 0;
}

int run_arm64(const Options& o, const GuestFiles& files) {
  constexpr uint64_t kNsPerTick = 16;  // the emulator's counter has 62.5 MHz
  const Log log =
      read_log(test::read_bytes(o.board / "log"), test::read_bytes(o.board / "blocks"), kNsPerTick);
  const std::vector<board::Poke> pokes = stored_pokes(log, files);
  const KnownText known(files, pokes);
  Arm64Options arm64;
  arm64.unit.sync_bytes = 4096;
  arm64.unit.timestamp_every = o.coarse ? 100'000'000 : 16;
  arm64.vectors = files.addresses.at("vectors");
  arm64.known = [&](Addr a, std::span<const uint8_t> bytes) { return known.has(a, bytes); };
  arm64.perf_time = [&](uint64_t ticks) { return files.perf_time(ticks); };
  std::vector<Arm64Cpu> cpus;
  std::vector<std::vector<uint8_t>> frames;
  for (unsigned cpu = 0; cpu < log.cpus.size(); ++cpu) {
    cpus.push_back(encode_arm64(log, cpu, arm64));
    const Arm64Cpu& c = cpus.back();
    frames.push_back(test::arm64_frames(cpu, c.trace));
    fmt::print(
        "cpu {}: {} instructions in {} runs, {} exceptions in traced code, {} BRK, {} late, {} bytes of "
        "trace\n",
        cpu, c.truth.count(), c.truth.runs().size(), c.exceptions, c.breakpoints, c.late_instructions,
        c.trace.size());
  }
  CaptureInput in{files, log, pokes, false, {}, "arm64 board, tools/board/arm64", o.trim};
  for (size_t i = 0; i < cpus.size(); ++i)
    in.cpus.push_back({&cpus[i].truth, frames[i], cpus[i].first_tick, cpus[i].last_tick});
  write_board_capture(in, etm_format(arm64.unit, static_cast<unsigned>(cpus.size())), o.capture);
  fmt::print("{} pokes, {} BPF programs; clock: {} marks, error bound {} ns, {} idle jumps\n", pokes.size(),
             files.programs.size(), log.clock.marks(), log.clock.error_bound(), log.clock.jumps());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  bool usage = argc < 3;
  for (int i = 3; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--coarse") {
      options.coarse = true;
    } else if (word == "--trim") {
      options.trim = true;
    } else {
      usage = true;
    }
  }
  if (usage) {
    std::fputs("usage: make_capture BOARD CAPTURE [--coarse] [--trim]\n", stderr);
    return 1;
  }
  options.board = argv[1], options.capture = argv[2];
  try {
    const GuestFiles files = read_guest_files(options.board);
    return files.machine == "aarch64" ? run_arm64(options, files) : run_x86(options, files);
  } catch (const std::exception& e) {
    fmt::print(stderr, "make_capture: {}\n", e.what());
    return 2;
  }
}
