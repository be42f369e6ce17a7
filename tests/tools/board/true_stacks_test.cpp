// The call stacks of every CPU at every change of text, and at a sample of all other moments, compared with
// those of an unwinder with perfect knowledge (shadow_stacks.h). Equal means: the same functions from the one
// that runs to the outermost one that the trace shows. Two things are shown differently on purpose, and
// counted:
//
//  * out-of-line code of a probe is shown above the function whose instruction it runs: in memory there is no
//    frame for that function while its slot runs, and people look for it;
//  * code without a symbol has no name here; asof names it by its address.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ostream>

#include "decoder/calls/timeline.h"
#include "tests/support/effort.h"
#include "tests/support/shadow_stacks.h"
#include "tests/support/skip_without.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

using Moments = std::vector<ShadowStacks::Moment>;

// The stack that asof gives for each wanted instruction.
class StacksOfCalls final : public TimelineSink {
 public:
  explicit StacksOfCalls(const Moments& wanted) : in_(wanted.size()) {
    for (size_t i = 0; i < wanted.size(); ++i) cpus_[wanted[i].cpu].wanted.emplace(wanted[i].instruction, i);
  }
  void function(const TimelineFunction& f) override {
    if (functions_.size() <= f.id) functions_.resize(size_t{f.id} + 1);
    functions_[f.id] = f;
  }
  void slice(const Slice& s) override {
    if (slices_.size() <= s.id) slices_.resize(s.id + 1);
    slices_[s.id] = {s.parent, s.function};
  }
  void block(const BlockSlice& b) override {
    Cpu& c = cpus_[b.cpu];
    const uint64_t end = c.instructions + b.piece.lengths.size();
    for (auto at = c.wanted.lower_bound(c.instructions); at != c.wanted.end() && at->first < end; ++at)
      in_[at->second] = b.in;
    c.instructions = end;
  }

  // Innermost first. `slots`: the number of functions below a slot, which are left out here.
  std::vector<std::string> stack(size_t moment, uint64_t& slots) const {
    std::vector<std::string> out;
    bool slot = false;
    for (uint64_t id = in_[moment]; id != 0; id = slices_.at(id).parent) {
      const TimelineFunction& f = functions_.at(slices_.at(id).function);
      slots += slot;
      if (!slot) out.push_back(f.kind == TimelineFunction::Kind::kUnnamed ? "?" : f.name);
      slot = f.kind == TimelineFunction::Kind::kSlot;
    }
    return out;
  }

 private:
  struct Known {
    uint64_t parent = 0;
    uint32_t function = 0;
  };
  struct Cpu {
    uint64_t instructions = 0;
    std::multimap<uint64_t, size_t> wanted;
  };
  std::vector<TimelineFunction> functions_;
  std::vector<Known> slices_;
  std::map<int, Cpu> cpus_;
  std::vector<uint64_t> in_;
};

struct Board {
  const char* name;     // of the test
  const char* capture;  // directory: beside the project, or an archive of tests/data
  const char* data;
  size_t step;        // every step-th run is checked, besides those at changes
  size_t at_changes;  // moments
  uint64_t slots;     // functions under a slot, in all moments
  uint64_t unknown;   // runs whose text is in no record
};
void PrintTo(const Board& b, std::ostream* out) { *out << b.name; }

std::string directory_of(const Board& b, const TempDir& dir) {
  const std::string archive = fmt::format("{}/{}/capture.tar.xz", ASOF_TEST_DATA, b.capture);
  if (!std::filesystem::exists(archive)) return shared(fmt::format("captures/{}", b.capture));
  const std::string command = fmt::format("tar -C '{}' -xJf '{}'", dir.path().string(), archive);
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return dir.path().string();
}

class TrueStacks : public ::testing::TestWithParam<Board> {
 protected:
  // Runs at the changes of text on every CPU; then every step-th.
  static std::vector<std::pair<int, size_t>> moments_of(const ShadowStacks& truth, const Capture& capture,
                                                        size_t step) {
    std::vector<std::pair<int, size_t>> out;
    for (const int cpu : {0, 1}) {
      const auto& runs = truth.runs(cpu);
      for (const PokeRecord& p : capture.text->pokes()) {
        const auto after = std::ranges::upper_bound(runs, p.time, {}, &TruthRun::time);
        if (after != runs.begin()) out.emplace_back(cpu, static_cast<size_t>(after - runs.begin()) - 1);
      }
    }
    EXPECT_EQ(out.size(), GetParam().at_changes);
    for (const int cpu : {0, 1})
      for (size_t i = 0; i < truth.runs(cpu).size(); i += step) out.emplace_back(cpu, i);
    return out;
  }
  static void compare(const Capture& capture, const Moments& moments, bool threads) {
    StacksOfCalls calls(moments);
    TimelineOptions options;
    options.cpu_tracks = !threads;
    options.thread_tracks = threads;
    options.detail = true;
    const auto done = run_timeline(capture, options, calls);
    ASSERT_TRUE(done) << done.error().reason;
    uint64_t slots = 0, different = 0;
    for (size_t i = 0; i < moments.size(); ++i) {
      const auto got = calls.stack(i, slots);
      if (got == moments[i].stack) continue;
      if (++different > 3) continue;
      ADD_FAILURE() << fmt::format("CPU {} run {}\n got {}\nwant {}", moments[i].cpu, moments[i].run,
                                   fmt::join(got, " < "), fmt::join(moments[i].stack, " < "));
    }
    EXPECT_EQ(different, 0U) << "of " << moments.size();
    EXPECT_EQ(slots, GetParam().slots);
  }
};

TEST_P(TrueStacks, AreThoseOfEveryMoment) {
  const TempDir dir;
  const std::string board = directory_of(GetParam(), dir);
  SKIP_WITHOUT(board);
  CaptureOptions o;
  o.host_files = false;
  o.symfs = board + "/perf.data/symfs";
  const auto capture = open_capture(fmt::format("{}/{}", board, GetParam().data), o);
  ASSERT_TRUE(capture) << capture.error().reason;
  std::map<int, std::vector<TruthRun>> runs;
  for (const int cpu : {0, 1})
    runs[cpu] = read_truth_runs(fmt::format("{}/truth/cpu{}.blocks.zst", board, cpu));
  ShadowStacks truth(*capture, std::move(runs));
  const Moments moments = truth.stacks_at(moments_of(truth, *capture, GetParam().step));
  uint64_t unknown = 0;
  for (const auto& [what, count] : truth.oddities()) {
    if (what == ShadowStacks::kUnknownText) {
      unknown = count;
    } else {
      ADD_FAILURE() << count << " times: " << what;
    }
  }
  EXPECT_EQ(unknown, GetParam().unknown);
  size_t deepest = 0;
  for (const auto& m : moments) deepest = std::max(deepest, m.stack.size());
  EXPECT_GT(deepest, 15U);
  RecordProperty("moments", static_cast<int>(moments.size()));
  compare(*capture, moments, false);
  compare(*capture, moments, true);
}

std::vector<Board> boards() {
  std::vector<Board> out{Board{"x86_committed", "board-x86", "perf.data", 7, 1882, 8, 0},
                         Board{"x86_small", "x86-board-small", "perf.data", 5, 320, 0, 0},
                         Board{"x86_userkernel", "x86-board-userkernel", "perf.data", 61, 312, 0, 0},
                         Board{"arm64_committed", "board-arm64", "perf.data", 7, 1719, 42, 0},
                         Board{"arm64_tiny", "arm64-board-tiny", "poke.data", 61, 392, 39, 0},
                         Board{"arm64_helper", "arm64-board-helper", "nopoke.data", 61, 0, 216, 16}};
  if (!kSanitized) {
    out.push_back({"x86_storm", "x86-board-storm", "perf.data", 61, 2432, 0, 0});
    out.push_back({"x86_storm_tsc1ms", "x86-board-storm-tsc1ms", "perf.data", 61, 2432, 0, 0});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Boards, TrueStacks, ::testing::ValuesIn(boards()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace asof::test
