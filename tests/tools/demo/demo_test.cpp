// The committed demo capture: it is what make_demo writes, it holds what its README says, asof decodes all of
// it, libipt agrees with its truth, and perf 6.1 can read it.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <span>

#include "tests/support/captures_of.h"
#include "tests/support/demo_capture.h"
#include "tests/support/expect_exact.h"
#include "tests/support/libipt_decode.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/demo/demo_files.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

const fs::path kDemo = fs::path(ASOF_TEST_DATA) / "demo";

CaptureOptions demo_options() {
  CaptureOptions o;
  o.symfs = (kDemo / "symfs").string();
  return o;
}

TEST(Demo, IsWhatMakeDemoWrites) {
  const TempDir dir;
  write_demo(dir.path());
  expect_committed(dir.path(), kDemo, "make_demo tests/data/demo");
}

TEST(Demo, HoldsWhatItIsFor) {
  const DemoCapture demo = make_demo();
  EXPECT_GT(demo.machine->int3_hits(), 0U);
  for (unsigned cpu = 0; cpu < 2; ++cpu) {
    const auto& ran = demo.machine->cpu(cpu).truth.instructions();
    // Both versions of the static branches and both BPF programs ran on both CPUs.
    std::set<std::pair<Addr, uint8_t>> at;
    std::set<Space> spaces;
    for (const Executed& e : ran) at.insert({e.ip, e.bytes[0]}), spaces.insert(e.space);
    size_t both = 0;
    for (const Addr site : demo.static_sites) both += at.contains({site, 0x0f}) && at.contains({site, 0xe9});
    EXPECT_GE(both, 3U);
    EXPECT_TRUE(at.contains({demo.bpf_address + 0x40, 0x55})) << "sub-program";
    EXPECT_GE(spaces.size(), cpu == 0 ? 3U : 2U) << "user and kernel code, two tasks on CPU 0";
    std::set<std::vector<uint8_t>> programs;
    for (const Executed& e : ran) {
      if (e.ip == demo.bpf_address + 6) programs.insert({e.bytes.begin(), e.bytes.begin() + e.length});
    }
    EXPECT_EQ(programs.size(), 2U);
  }
  EXPECT_EQ(demo.machine->cpu(1).truth.restarts(), 2U) << "the loss";
}

TEST(Demo, AsofDecodesAllOfIt) {
  const auto decoded = decode_capture((kDemo / "perf.data").string(), demo_options());
  ASSERT_TRUE(decoded.has_value()) << decoded.error().reason;
  const DemoCapture demo = make_demo();
  for (const Stream& s : decoded->capture.streams) {
    ASSERT_EQ(s.losses.size(), s.cpu == 1 ? 1U : 0U);
    for (const StreamLoss& loss : s.losses) EXPECT_EQ(loss.code, Code::kAuxFull);
  }
  for (const DecodedStream& s : decoded->streams) {
    ASSERT_TRUE(s.cpu == 0 || s.cpu == 1);
    const auto& truth = demo.machine->cpu(static_cast<unsigned>(s.cpu)).truth.instructions();
    expect_exact(s.instructions, truth);
    EXPECT_EQ(s.gaps.size(), s.cpu == 1 ? 1U : 0U) << "CPU 1 lost trace once";
    const auto restarts = std::count_if(s.instructions.begin() + 1, s.instructions.end(),
                                        [](const DecodedInstruction& i) { return i.after_gap; });
    EXPECT_EQ(restarts, s.cpu == 1 ? 1 : 0);
  }
}

// The same execution traced with other options. With fine timing each must be decoded exactly.
struct Variant {
  const char* name;
  TracerConfig trace;
};

TracerConfig traced(const std::function<void(TracerConfig&)>& change) {
  TracerConfig t{.psb_bytes = 2048};
  change(t);
  return t;
}

DecodedCapture decode_demo(const DemoCapture& demo, const fs::path& directory) {
  write_capture(*demo.machine, demo.spec, directory, "variant");
  CaptureOptions options;
  options.symfs = (directory / "symfs").string();
  auto decoded = decode_capture((directory / "perf.data").string(), options);
  EXPECT_TRUE(decoded.has_value());
  return decoded ? std::move(*decoded) : DecodedCapture{};
}

// Decodes each variant with several seeds, and gives each stream and what ran on its CPU to `check`.
void for_each_variant(
    std::span<const Variant> variants, uint64_t seeds,
    const std::function<void(const DecodedStream& decoded, const std::vector<Executed>& truth)>& check) {
  for (const Variant& v : variants) {
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      SCOPED_TRACE(std::string(v.name) + ", seed " + std::to_string(seed));
      const TempDir dir;
      const DemoCapture demo = make_demo({.trace = v.trace, .seed = seed});
      const DecodedCapture decoded = decode_demo(demo, dir.path());
      ASSERT_EQ(decoded.streams.size(), 2U);
      for (const DecodedStream& s : decoded.streams)
        check(s, demo.machine->cpu(static_cast<unsigned>(s.cpu)).truth.instructions());
    }
  }
}

TEST(Demo, OtherTraceOptionsDecodeExactly) {
  const Variant variants[] = {
      {"cyc", traced([](TracerConfig& t) { t.cyc = true; })},
      {"no return compression", traced([](TracerConfig& t) { t.return_compression = false; })},
      {"long TNT", traced([](TracerConfig& t) { t.long_tnt = true; })},
      {"kernel only", traced([](TracerConfig& t) { t.user = false; })},
      {"user only", traced([](TracerConfig& t) { t.kernel = false; })},
  };
  for_each_variant(variants, 2, [](const DecodedStream& decoded, const std::vector<Executed>& truth) {
    expect_exact(decoded.instructions, truth);
  });
}

// With timing packets far apart, old and new bytes can both be possible for a long time. Then a choice may be
// wrong, but what is called certain or proved must not be.
TEST(Demo, CoarseTimingNeverMakesWrongInstructionsCertain) {
  const Variant variants[] = {
      {"MTC every 51 us", traced([](TracerConfig& t) { t.mtc_freq = 9; })},
      {"TSC every 2 KiB", traced([](TracerConfig& t) { t.mtc = false; })},
      {"TSC at the start only", traced([](TracerConfig& t) { t.mtc = false, t.psb_bytes = 1 << 20; })},
  };
  for_each_variant(
      variants, captures_of(8), [](const DecodedStream& decoded, const std::vector<Executed>& truth) {
        const Difference d = compare(decoded.instructions, truth);
        EXPECT_GT(d.right, truth.size() * 8 / 10);
        EXPECT_EQ(d.wrong_by_confidence[static_cast<size_t>(Confidence::kCertain)], 0U) << d.first;
        EXPECT_EQ(d.wrong_by_confidence[static_cast<size_t>(Confidence::kProved)], 0U) << d.first;
      });
}

TEST(Demo, OneStateOfTheTextIsNotEnough) {
  const DemoCapture demo = make_demo();
  expect_one_text_is_not_enough((kDemo / "perf.data").string(), demo_options(), [&demo](int cpu) {
    return demo.machine->cpu(static_cast<unsigned>(cpu)).truth.instructions();
  });
}

// libipt, given the bytes of each time, finds the same instructions on the CPU that lost nothing.
TEST(Demo, LibiptAgreesWithTheTruth) {
  DemoCapture demo = make_demo();
  const TracerConfig& t = demo.machine->config().trace;
  SimMemory& memory = demo.machine->memory();
  const LibiptResult got = libipt_decode(
      demo.machine->cpu(0).tracer.writer().bytes(), {t.mtc_freq, t.tsc_ctc_n, t.tsc_ctc_d, t.cbr},
      [&memory](Addr a, std::span<uint8_t> out, uint64_t tsc) {
        const std::vector<uint8_t> b = memory.read_at(tsc, 1, a, out.size());
        std::copy(b.begin(), b.end(), out.begin());
        return b.size();
      });
  EXPECT_TRUE(got.errors.empty()) << got.errors.front();
  const auto& truth = demo.machine->cpu(0).truth.instructions();
  ASSERT_EQ(got.ips.size(), truth.size());
  for (size_t i = 0; i < truth.size(); ++i) ASSERT_EQ(got.ips[i], truth[i].ip) << "instruction " << i;
}

// perf shows all except the BPF sub-program, which it reads from the wrong address, and what it misses after
// each such error.
TEST(Demo, PerfReadsIt) {
  if (std::system("perf --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "perf is not installed";
  const std::string command = "perf script -i " + (kDemo / "perf.data").string() + " --symfs " +
                              (kDemo / "symfs").string() + " --itrace=i0nse -F cpu,ip 2> /dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::vector<DecodedInstruction> by_cpu[2];
  char line[512];
  bool lost = false;
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    unsigned cpu = 0;
    unsigned long long ip = 0;
    int used = 0;
    if (std::sscanf(line, " [%3u] %llx %n", &cpu, &ip, &used) == 2 && line[used] == '\0' && cpu < 2) {
      DecodedInstruction d;
      d.ip = ip;
      d.after_gap = lost;
      by_cpu[cpu].push_back(d);
    }
  }
  pclose(pipe);
  const DemoCapture demo = make_demo();
  for (unsigned cpu = 0; cpu < 2; ++cpu) {
    const auto& truth = demo.machine->cpu(cpu).truth.instructions();
    const Difference d = compare(by_cpu[cpu], truth);
    EXPECT_GT(d.right, truth.size() * 9 / 10);
    EXPECT_GT(d.missing, 0U);
  }
}

}  // namespace
}  // namespace asof::test
