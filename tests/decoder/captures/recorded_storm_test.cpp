// Random recordings, opened and decoded as files: kernels that change their text by all their mechanisms,
// rings that lose records, copies made late, missing images, recordings without TEXT_POKE, with other clocks,
// of one CPU of two. What is called certain or proved did run. ASOF_TEST_CAPTURES=n makes n times as many,
// and continues after one that fails.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/arch/x86/high_confidence.h"
#include "tests/decoder/capture_test_util.h"
#include "tests/decoder/captures/recorded_machine.h"

namespace asof::x86::test {
namespace {

using Mismatch = asof::test::TracerConfig::Mismatch;
using Losses = RecordedSettings::Losses;

constexpr uint64_t kCaptures = 3'200, kShards = 8;

RecordedSettings settings_of(uint64_t seed) {
  SimRandom random(seed * 80'021 + 17);
  RecordedSettings s;
  s.seed = seed + 400'000;
  s.cpus = random.chance(60) ? 2 : 1;
  s.ticks = random.between(12'000, 36'000);
  s.coarse_time = random.chance(40);
  s.mismatch = static_cast<Mismatch>(random.below(3));
  s.static_branches = random.chance(60);
  // Only a few of them, so that the effects of each are not hidden by the others.
  for (uint64_t n = random.between(1, 3); n != 0; --n) {
    bool* const kinds[] = {&s.static_calls, &s.programs, &s.programs,  &s.trampolines, &s.dispatcher,
                           &s.probes,       &s.modules,  &s.processes, &s.user_writes};
    *kinds[random.below(std::size(kinds))] = true;
  }
  s.uprobes = random.chance(12);
  if (random.chance(35)) s.losses = static_cast<Losses>(random.between(1, 3));
  if (s.losses == Losses::kAtTheEnd) s.cpus = 2;
  s.jump_table = random.chance(50);
  s.sync_known = random.chance(40);
  s.end_copy = random.chance(30);
  s.watched = random.chance(30);
  s.no_pokes = random.chance(4);
  s.other_clock = random.chance(4);
  s.one_ring = s.cpus > 1 && s.losses == Losses::kNone && random.chance(5);
  return s;
}

std::string name_of(const RecordedSettings& s) {
  static constexpr const char* kLosses[] = {"", " losses", " lost-at-the-end", " overwrite"};
  std::string out;
  const std::pair<bool, const char*> all[] = {
      {s.coarse_time, "coarse"},      {s.static_branches, "branches"}, {s.static_calls, "calls"},
      {s.programs, "programs"},       {s.trampolines, "trampolines"},  {s.dispatcher, "dispatcher"},
      {s.probes, "probes"},           {s.modules, "modules"},          {s.processes, "processes"},
      {s.user_writes, "user-writes"}, {s.jump_table, "table"},         {s.sync_known, "sync"},
      {s.end_copy, "end-copy"},       {s.no_pokes, "no-pokes"},        {s.other_clock, "other-clock"},
      {s.one_ring, "one-ring"}};
  for (const auto& [is, name] : all)
    if (is) out += fmt::format(" {}", name);
  return out + kLosses[static_cast<int>(s.losses)];
}

class RecordedStorm : public testing::TestWithParam<uint64_t> {};

void check(uint64_t seed, Score& score) {
  const RecordedSettings s = settings_of(seed);
  SCOPED_TRACE(fmt::format("seed {}:{} cpus {}", seed, name_of(s), s.cpus));
  const RecordedMachine run(s);
  asof::test::TempDir dir;
  run.write(dir.path());
  CaptureOptions options = asof::test::closed_options();
  options.symfs = (dir / "symfs").string();
  const auto capture = open_capture((dir / "perf.data").string(), options);
  ASSERT_TRUE(capture.has_value()) << capture.error().reason;
  ASSERT_LE(capture->streams.size(), s.one_ring ? 1U : s.cpus);
  const auto arch = capture->arch();
  ASSERT_TRUE(arch.has_value());
  for (unsigned i = 0; i < capture->streams.size(); ++i) {
    const Stream& stream = capture->streams[i];
    const auto cpu = static_cast<unsigned>(stream.cpu);
    SCOPED_TRACE(fmt::format("cpu {}", cpu));
    const auto decoder = (*arch)->decoder(capture->streams, *capture->text, {});
    Decoded d;
    for (const Segment& segment : (*arch)->split(stream, i)) decoder->decode(segment, d);
    const bool dated = !s.other_clock;
    expect_high_confidence_ran(d, run.machine().cpu(cpu).truth.instructions(), s.coarse_time && dated, score);
  }
}

TEST_P(RecordedStorm, NothingSureIsWrong) {
  Score score;
  const uint64_t captures = captures_of(kCaptures);
  for (uint64_t seed = GetParam() + 1; seed <= captures; seed += kShards) {
    check(seed, score);
    if (HasFatalFailure() && asof::test::first_failure_ends()) return;
  }
  expect_enough(score, 30);
}

// 5913: two hypotheses meet at an address, and one of them knows the rule of the return stack; its failure
// says nothing about the other.
TEST(RecordedStormFound, Faults) {
  Score score;
  for (const uint64_t seed : {5913U}) check(seed, score);
}

INSTANTIATE_TEST_SUITE_P(Captures, RecordedStorm, testing::Range(uint64_t{0}, kShards));

}  // namespace
}  // namespace asof::x86::test
