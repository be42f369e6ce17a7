// Files of `asof inject` opened by programs other than perf: AutoFDO's create_llvm_prof, and the reader of hotspot.
#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <regex>
#include <set>

#include "decoder/io/reader.h"
#include "decoder/perf/perf_data.h"
#include "decoder/perf/record_types.h"
#include "tests/tools/inject/calls_program.h"
#include "tests/tools/stepped_test.h"

namespace asof::test {
namespace {

using ::testing::HasSubstr;

class InjectReaders : public SteppedTest {
 protected:
  void SetUp() override { record(kCallsProgram, "-O1 -gdwarf-4"); }  // AutoFDO 0.19 reads no newer DWARF
  void inject(const std::string& itrace) {
    const Ran r =
        run_asof(fmt::format("inject --itrace {} {} -o {}", itrace, path("perf.data"), path("out.data")));
    ASSERT_EQ(r.status, 0) << r.err;
  }
  uint64_t calls_of(const std::string& function) const {
    uint64_t n = 0;
    for (const auto& [ends, count] : ran_.taken) n += ends.second == functions_.at(function) ? count : 0;
    return n;
  }
};

class InjectForAutoFdo : public ::testing::Test {
 protected:
  void inject(const std::string& itrace) {
    const Ran r = run_asof(
        fmt::format("inject --itrace {} {} -o {}", itrace, kDemo, (dir_.path() / "out.data").string()));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.err, HasSubstr(" samples (1784 more in no file); "));
  }
  const TempDir dir_;
};

// Branches to functions' entries in the branch stacks of a file, as perf prints them.
std::map<std::string, uint64_t> entries_in_stacks(const std::string& printed,
                                                  const std::map<std::string, Addr>& functions) {
  std::map<std::string, uint64_t> n;
  for (const auto& [name, entry] : functions) {
    const std::string end = fmt::format("/0x{:x}/", entry);
    for (size_t at = printed.find(end); at != std::string::npos; at = printed.find(end, at + 1)) ++n[name];
  }
  return n;
}

// In AutoFDO's text "name:total:head" begins a function; head is how often it was entered.
std::map<std::string, uint64_t> heads(const std::string& profile) {
  std::map<std::string, uint64_t> n;
  for (const std::string& line : lines_of(profile)) {
    const size_t name = line.find(':'), total = line.find(':', name + 1);
    if (line.starts_with(' ') || total == std::string::npos) continue;
    n[line.substr(0, name)] = std::stoul(line.substr(total + 1));
  }
  return n;
}

TEST_F(InjectReaders, AutoFdoCountsTheCallsInBranchStacks) {
  if (!runs("command -v create_llvm_prof"))
    GTEST_SKIP() << "create_llvm_prof is not installed (Debian package autofdo)";
  if (!runs("command -v perf")) GTEST_SKIP() << "perf is not installed";
  inject("i1il32");
  int status = 0;
  const std::string said = output_of(
      fmt::format("cd {} && create_llvm_prof --binary=program --profile=out.data --out=profile --format=text "
                  "--logtostderr",
                  dir_.path().string()),
      &status);
  ASSERT_EQ(status, 0) << said;
  uint64_t instructions = 0;
  for (const auto& [at, count] : ran_.counts) instructions += count;
  EXPECT_THAT(said, HasSubstr(fmt::format("{} SAMPLE events", instructions)));
  const std::string profile = read_file(path("profile"));
  const auto got = heads(profile);
  const auto want = entries_in_stacks(
      output_of("perf script -i " + path("out.data") + " -F brstack 2>/dev/null"), functions_);
  for (const std::string name : {"leaf", "inner", "outer"}) {
    ASSERT_TRUE(got.contains(name)) << profile;
    EXPECT_EQ(got.at(name), want.at(name)) << name << '\n' << profile;
  }
  // Every call is in as many stacks as there are instructions until 32 more branches: nearly equally many.
  EXPECT_EQ(calls_of("leaf"), 2 * calls_of("outer"));
  EXPECT_NEAR(static_cast<double>(got.at("leaf")) / static_cast<double>(got.at("outer")), 2, 0.2);
}

// A whole system: BPF programs are in no file, and KSYMBOL records unknown to AutoFDO, which has no profile then.
TEST_F(InjectForAutoFdo, EverySampleIsMapped) {
  if (std::system("command -v create_llvm_prof >/dev/null") != 0)
    GTEST_SKIP() << "create_llvm_prof is not installed (Debian package autofdo)";
  inject("i1il32 --autofdo");
  const std::string said = dir_.path() / "said";
  const int status = std::system(
      fmt::format("cd {} && create_llvm_prof --binary={} --profile=out.data --out=profile --format=text "
                  "--logtostderr >{} 2>&1",
                  dir_.path().string(), ASOF_TEST_DATA "/demo/symfs/opt/demo/worker", said)
          .c_str());
  EXPECT_EQ(status, 0);
  const std::string text = read_file(said);
  std::smatch counts;
  ASSERT_TRUE(
      std::regex_search(text, counts, std::regex("([0-9]+) SAMPLE events, ([0-9]+) of these were mapped")))
      << text;
  EXPECT_GT(std::stoul(counts[1]), 50'000U);
  EXPECT_EQ(counts[1], counts[2]) << text;
}

TEST_F(InjectForAutoFdo, RecordsAndAddressesAreKnownToIt) {
  inject("i1il32 --autofdo");
  const auto data = PerfData::open(dir_.path() / "out.data");
  ASSERT_TRUE(data);
  std::set<uint32_t> types;
  const auto in_program = [](Addr a) { return a >= 0x401000 && a < 0x402000; };
  const auto in_kernel = [](Addr a) {
    return (a >= 0xffffffff81000000 && a < 0xffffffff81001000) ||
           (a >= 0xffffffffc0000000 && a < 0xffffffffc0001000);
  };
  size_t samples = 0, branches = 0;
  (*data)->for_each([&](const Record& r) {
    types.insert(r.type);
    if (r.type != perf::kSample) return true;
    ++samples;
    Reader in(r.body);
    in.skip(8);
    std::vector<Addr> all{in.u64()};
    in.skip(8 + 8 + 8 + 8 + 8);  // thread, time, addr, CPU, period
    for (uint64_t n = in.u64(); n != 0 && in.ok(); --n, ++branches) {
      all.push_back(in.u64());
      all.push_back(in.u64());
      in.skip(8);
    }
    EXPECT_TRUE(in.ok());
    for (const Addr a : all) EXPECT_TRUE(in_program(a) || in_kernel(a)) << a;
    return !HasFailure();
  });
  EXPECT_GT(samples, 50'000U);
  EXPECT_GT(branches, 20 * samples);
  EXPECT_EQ(types, (std::set<uint32_t>{perf::kMmap, perf::kComm, perf::kSample, perf::kMmap2}));
}

// What hotspot's reader writes: messages of a 32 bit size and a kind, 13 for a sample.
std::optional<size_t> samples_for_hotspot(const std::string& stream) {
  constexpr std::string_view kMagic = "QPERFSTREAM";
  size_t at = kMagic.size() + 1 + sizeof(int32_t), samples = 0;
  if (!stream.starts_with(kMagic)) return {};
  while (at + 5 <= stream.size()) {
    uint32_t size = 0;
    std::memcpy(&size, stream.data() + at, sizeof size);
    samples += stream[at + sizeof size] == 13 ? 1 : 0;
    at += sizeof size + size;
  }
  return at == stream.size() ? std::optional(samples) : std::nullopt;
}

TEST_F(InjectReaders, HotspotReadsEverySample) {
  const std::string reader = "/usr/lib/x86_64-linux-gnu/libexec/hotspot-perfparser";
  if (!std::filesystem::exists(reader)) GTEST_SKIP() << "hotspot is not installed (Debian package hotspot)";
  inject("i1ig");
  int status = 0;
  const std::string said =
      output_of(fmt::format("{} --input {} --output {}", reader, path("out.data"), path("stream")), &status);
  ASSERT_EQ(status, 0) << said;
  const std::string stream = read_file(path("stream"));
  uint64_t instructions = 0;
  for (const auto& [at, count] : ran_.counts) instructions += count;
  EXPECT_EQ(samples_for_hotspot(stream), instructions) << said;
  for (const std::string name : {"leaf", "inner", "outer", "_start", "instructions:u"})
    EXPECT_THAT(stream, HasSubstr(name));
}

}  // namespace
}  // namespace asof::test
