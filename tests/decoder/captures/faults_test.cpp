// Situations that perf 6.1 decodes wrongly (docs/live-text.md names them): asof must show exactly what ran.
// The same captures are passed to perf where it is installed, to prove that they remain hard.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "tests/support/expect_exact.h"
#include "tests/support/fault_captures.h"
#include "tests/support/temp_dir.h"

namespace asof::test {
namespace {

// Addresses that perf prints, one per executed instruction; nothing if perf is not installed.
std::optional<std::vector<Addr>> perf_instructions(const std::filesystem::path& path) {
  if (std::system("perf --version > /dev/null 2>&1") != 0) return std::nullopt;
  const std::string command = "perf script -i " + path.string() + " --itrace=i0nse -F ip 2> /dev/null";
  std::vector<Addr> out;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  char line[512];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    char* end = nullptr;
    const Addr ip = std::strtoull(line, &end, 16);
    while (end != line && (*end == ' ' || *end == '\n')) ++end;
    if (end != line && *end == '\0') out.push_back(ip);  // other lines are error reports
  }
  pclose(pipe);
  return out;
}

std::vector<Addr> addresses(const FaultCapture& f) {
  std::vector<Addr> out;
  for (const Executed& e : f.truth) out.push_back(e.ip);
  return out;
}

class Faults : public testing::Test {
 protected:
  // Decodes and checks that every executed instruction is decoded, with the bytes that ran, and nothing else.
  DecodedCapture expect_exact(const FaultCapture& f) {
    auto decoded = decode_capture(f.path.string());
    EXPECT_TRUE(decoded.has_value()) << (decoded ? "" : decoded.error().reason);
    if (!decoded) return {};
    const DecodedStream* s = stream_of_cpu0(*decoded);
    EXPECT_NE(s, nullptr);
    if (s == nullptr) return std::move(*decoded);
    test::expect_exact(s->instructions, f.truth);
    EXPECT_TRUE(s->gaps.empty()) << s->gaps.size() << " gaps, the first: " << s->gaps.front().code << " "
                                 << s->gaps.front().reason;
    return std::move(*decoded);
  }

  static const DecodedStream* stream_of_cpu0(const DecodedCapture& d) {
    for (const DecodedStream& s : d.streams) {
      if (s.cpu == 0) return &s;
    }
    return nullptr;
  }

  static void expect_perf(const FaultCapture& f, bool right) {
    const auto perf = perf_instructions(f.path);
    if (!perf) return;
    EXPECT_EQ(*perf == addresses(f), right)
        << f.name << ": perf prints " << perf->size() << " instructions of " << f.truth.size();
  }

  // asof decodes both exactly, perf only the capture without the fault.
  void expect_perf_fails_by_it(FaultCapture (*make)(const std::filesystem::path&, bool faulty)) {
    for (const bool faulty : {true, false}) {
      const FaultCapture f = make(dir_.path(), faulty);
      expect_exact(f);
      expect_perf(f, !faulty);
    }
  }

  static size_t visits(const FaultCapture& f, Addr site) {
    return static_cast<size_t>(
        std::count_if(f.truth.begin(), f.truth.end(), [site](const Executed& e) { return e.ip == site; }));
  }

  TempDir dir_;
};

TEST_F(Faults, BpfSubProgramHasItsOwnBytes) {
  const FaultCapture f = bpf_sub_program(dir_.path());
  ASSERT_GE(visits(f, f.site + 0x40), 3U);
  expect_exact(f);
  expect_perf(f, false);
}

TEST_F(Faults, BpfInsideTheModuleRangeLeavesKernelTextAlone) { expect_perf_fails_by_it(bpf_inside_kcore); }

TEST_F(Faults, ReloadAtOneAddressWithLostUnregister) { expect_perf_fails_by_it(bpf_reload); }

TEST_F(Faults, PokeInATimingGapIsProvedByTheTrace) {
  const FaultCapture f = poke_without_timing(dir_.path(), false);
  const DecodedCapture d = expect_exact(f);
  expect_perf(f, false);
  // Only the trace can decide here: the visits must be proved.
  const DecodedStream* s = stream_of_cpu0(d);
  ASSERT_NE(s, nullptr);
  size_t proved = 0;
  for (const DecodedInstruction& i : s->instructions) {
    if (i.ip == f.site && i.confidence == Confidence::kProved) ++proved;
  }
  EXPECT_EQ(proved, visits(f, f.site));
  const FaultCapture control = poke_without_timing(dir_.path(), true);
  expect_exact(control);
  expect_perf(control, true);
}

TEST_F(Faults, PokeWhileTheCpuIsAtTheSite) {
  const FaultCapture f = poke_while_standing(dir_.path());
  expect_exact(f);
  expect_perf(f, false);
}

bool reported_at(const TextStore& text, Addr site) {
  for (const TextNotice& n : text.notices()) {
    const bool kind =
        n.kind == TextNotice::Kind::kBaselineMismatch || n.kind == TextNotice::Kind::kChainBreak;
    if (kind && n.addr >= site && n.addr < site + 5) return true;
  }
  return false;
}

TEST_F(Faults, WrongOldBytesAreReported) {
  const FaultCapture f = poke_wrong_old_bytes(dir_.path());
  auto decoded = decode_capture(f.path.string());
  ASSERT_TRUE(decoded.has_value()) << decoded.error().reason;
  ASSERT_TRUE(decoded->capture.text.has_value());
  EXPECT_TRUE(reported_at(*decoded->capture.text, f.site));
}

// The record is believed before its time (row L05): where its old bytes are wrong, the flow ends at them and
// resumes at the next complete address, with nothing invented.
TEST_F(Faults, WrongOldBytesMakeNoWrongInstructions) {
  const FaultCapture f = poke_wrong_old_bytes(dir_.path());
  auto decoded = decode_capture(f.path.string());
  ASSERT_TRUE(decoded.has_value()) << decoded.error().reason;
  const DecodedStream* s = stream_of_cpu0(*decoded);
  ASSERT_NE(s, nullptr);
  const Difference d = compare(s->instructions, f.truth);
  EXPECT_EQ(d.wrong, 0U) << d.first;
  EXPECT_FALSE(s->gaps.empty());
  EXPECT_GT(d.right * 100, f.truth.size() * 99);
}

TEST_F(Faults, AuxtraceReferenceZero) {
  const FaultCapture f = zero_reference(dir_.path());
  const DecodedCapture d = expect_exact(f);
  const DecodedStream* s = stream_of_cpu0(d);
  ASSERT_NE(s, nullptr);
  ASSERT_FALSE(s->instructions.empty());
  // Without a reference, TSC packets still give the time.
  const Time first = s->instructions.front().time, truth = f.truth.front().time;
  EXPECT_NEAR(static_cast<double>(first), static_cast<double>(truth), 2000.0);
  expect_perf(f, false);
}

TEST_F(Faults, SlotsOlderThanTheRecordingAreUnknownAndNotZero) {
  const FaultCapture f = old_slot_page(dir_.path());
  auto decoded = decode_capture(f.path.string());
  ASSERT_TRUE(decoded.has_value()) << decoded.error().reason;
  const DecodedStream* s = stream_of_cpu0(*decoded);
  ASSERT_NE(s, nullptr);
  const Difference d = compare(s->instructions, f.truth);
  EXPECT_EQ(d.wrong, 0U) << d.first;
  EXPECT_FALSE(s->gaps.empty());
  // What ran in the old slot is missing, and so is what ran from there to the next packet with an address.
  EXPECT_GE(d.missing, visits(f, f.unknown[0]) * f.unknown.size());
  for (const DecodedInstruction& i : s->instructions) {
    EXPECT_EQ(std::count(f.unknown.begin(), f.unknown.end(), i.ip), 0)
        << "invented bytes at " << std::hex << i.ip;
  }
  // The slot that was recorded with its bytes is right each time.
  const Addr known = f.site + 0x20;
  const auto seen = std::count_if(s->instructions.begin(), s->instructions.end(),
                                  [known](const DecodedInstruction& i) { return i.ip == known; });
  EXPECT_EQ(static_cast<size_t>(seen), visits(f, known));
  expect_perf(f, false);
}

}  // namespace
}  // namespace asof::test
