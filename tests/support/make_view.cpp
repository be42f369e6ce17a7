// make_view CAPTURE SLICES PAGE: the HTML view of a timeline with so many slices on two CPUs and four
// threads, made of nothing but a rule, around the pokes and gaps of a real capture: for the browser test,
// which asks how long a page of a million slices takes to open.
#include <fmt/format.h>

#include <cstdlib>

#include "decoder/calls/timeline.h"
#include "tests/support/sim_random.h"
#include "tools/output/output.h"
#include "tools/timeline/out_html.h"

namespace {

using namespace asof;

// Calls of one track: random walks in depth, children within their parents.
class TrackMaker {
 public:
  TrackMaker(Timeline& timeline, uint32_t track, int32_t cpu, uint64_t seed)
      : t_(timeline), track_(track), cpu_(cpu), random_(seed) {}

  void make(size_t count) {
    Time now = t_.summary.begin;
    std::vector<size_t> open;
    while (count > 0 || !open.empty()) {
      now += static_cast<Time>(random_.below(60) == 0 ? random_.below(9000) : random_.below(40));
      if (count > 0 && (open.empty() || (open.size() < 12 && random_.below(100) < 52))) {
        --count;
        open.push_back(add(now, open));
      } else {
        t_.slices[open.back()].end = now;
        const uint64_t instructions = t_.slices[open.back()].instructions;
        open.pop_back();
        if (!open.empty()) t_.slices[open.back()].instructions += instructions;
      }
    }
    t_.summary.end = std::max(t_.summary.end, now);
  }

 private:
  size_t add(Time now, const std::vector<size_t>& open) {
    Slice s;
    s.id = t_.slices.size() + 1;
    s.parent = open.empty() ? 0 : t_.slices[open.back()].id;
    s.depth = static_cast<uint32_t>(open.size());
    s.track = track_;
    s.function = static_cast<uint32_t>(random_.below(t_.functions.size()));
    s.begin = s.end = now;
    s.self_instructions = s.instructions = 3 + random_.below(90);
    s.cpu = cpu_;
    if (random_.below(200) == 0) s.flags = Slice::kAcrossGap;
    t_.slices.push_back(s);
    return t_.slices.size() - 1;
  }
  Timeline& t_;
  uint32_t track_;
  int32_t cpu_;
  test::SimRandom random_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 1;
  auto capture = open_capture(argv[1], {});
  if (!capture) return 2;
  Timeline t;
  t.summary.begin = t.summary.end = 6'000'000'000;
  for (uint32_t i = 0; i < 3000; ++i) {
    TimelineFunction f;
    f.id = i;
    f.name = fmt::format("function_{}_of_some_length", i);
    if (i == 17) f.name = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)>";
    f.kind = static_cast<TimelineFunction::Kind>(i % 6);
    t.functions.push_back(f);
  }
  const size_t slices = std::strtoull(argv[2], nullptr, 10);
  for (uint32_t i = 0; i < 6; ++i) {
    const bool cpu = i < 2;
    t.tracks.push_back({i, cpu ? TimelineTrack::Kind::kCpu : TimelineTrack::Kind::kThread,
                        cpu ? static_cast<int32_t>(i) : -1, 100, static_cast<int32_t>(100 + i),
                        cpu ? fmt::format("CPU {}", i) : fmt::format("worker {}", i)});
    TrackMaker(t, i, static_cast<int32_t>(i % 2), i + 1).make(slices / 6);
  }
  auto out = Output::open(argv[3]);
  if (!out) return 2;
  write_html(*capture, t, {.title = "a million calls", .command = "asof timeline", .detail = {}},
             [&](std::string_view text) { out->write(text); });
  return out->flush() ? 0 : 2;
}
