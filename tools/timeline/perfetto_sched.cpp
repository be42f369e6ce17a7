#include "tools/timeline/perfetto_sched.h"

#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace asof {
namespace {

using protozero::pbf_writer;

constexpr size_t kMostInBundle = 1000;
constexpr int32_t kPriority = 120;  // of a usual thread: perf's records have none
// No state that Perfetto has: perf's records say whether a thread could have run on, not how it sleeps if not.
constexpr int64_t kUnknownState = 0x2000;
// What ran where no record says so: a thread that cannot exist, as it is above the highest that Linux gives.
constexpr int32_t kNobody = 1 << 22;

// How sched_switch marks a thread that could have run on, "R+": a bit above those of the states, which Perfetto expects
// where the kernel of that release has it (TASK_STATE_MAX, TASK_REPORT_MAX). Without a release it expects Linux 4.4.
int64_t preempted_state(const std::string& release) {
  const char* const end = release.data() + release.size();
  int major = 0, minor = 0;
  const auto dot = std::from_chars(release.data(), end, major);
  if (dot.ptr != end && *dot.ptr == '.') std::from_chars(dot.ptr + 1, end, minor);
  const auto version = std::pair(major, minor);
  if (version >= std::pair(4, 14)) return 0x100;
  return version >= std::pair(4, 8) ? 0x1000 : 0x800;
}

struct Task {
  int32_t tid = 0;
  std::string_view comm;
};

class SchedWriter {
 public:
  SchedWriter(PerfettoPackets& out, int32_t cpu, int64_t preempted_state)
      : out_(out), cpu_(cpu), preempted_state_(preempted_state), now_(nobody()) {}

  void run(const RunSlice& r) {
    if (r.begin > until_) to(until_, nobody());
    to(r.begin, r.tid == 0 ? Task{0, "swapper"} : Task{r.tid, r.comm});
    until_ = r.end;
    preempted_ = (r.flags & Slice::kPreempted) != 0;
    if (events_.size() >= kMostInBundle) flush();
  }
  void finish(Time end) {
    if (until_ < end) to(until_, nobody());
    flush();
  }

 private:
  Task nobody() const { return {kNobody + cpu_ % kNobody, "(not recorded)"}; }

  void to(Time t, Task next) {
    if (next.tid == now_.tid) return;
    std::string& bytes = events_.emplace_back();
    pbf_writer event(bytes);
    event.add_uint64(perfetto_field::kFtraceTime, PerfettoPackets::stamp(t));
    event.add_uint32(perfetto_field::kFtracePid, static_cast<uint32_t>(now_.tid));
    write_switch(pbf_writer(event, perfetto_field::kSchedSwitch), next);
    now_ = next;
    preempted_ = false;
  }
  void write_switch(pbf_writer change, Task next) const {
    change.add_string(perfetto_field::kPrevComm, now_.comm.data(), now_.comm.size());
    change.add_int32(perfetto_field::kPrevPid, now_.tid);
    change.add_int32(perfetto_field::kPrevPrio, kPriority);
    // The idle task is always ready.
    const int64_t state = preempted_ ? preempted_state_ : kUnknownState;
    change.add_int64(perfetto_field::kPrevState, now_.tid == 0 ? 0 : state);
    change.add_string(perfetto_field::kNextComm, next.comm.data(), next.comm.size());
    change.add_int32(perfetto_field::kNextPid, next.tid);
    change.add_int32(perfetto_field::kNextPrio, kPriority);
  }
  void flush() {
    if (events_.empty()) return;
    out_.packet([&](pbf_writer& p) {
      pbf_writer bundle(p, perfetto_field::kFtraceEvents);
      bundle.add_uint32(perfetto_field::kFtraceCpu, static_cast<uint32_t>(cpu_));
      for (const std::string& event : events_) bundle.add_message(perfetto_field::kFtraceEvent, event);
    });
    events_.clear();
  }

  PerfettoPackets& out_;
  int32_t cpu_;
  int64_t preempted_state_;
  Task now_;
  bool preempted_ = false;  // `now_`, when it goes
  Time until_ = kTimeMax;
  std::vector<std::string> events_;
};

}  // namespace

void write_system(const Capture& capture, PerfettoPackets& out) {
  if (capture.os_release.empty() && capture.machine.empty()) return;
  out.packet([&](pbf_writer& p) {
    pbf_writer info(p, perfetto_field::kSystemInfo);
    pbf_writer names(info, perfetto_field::kUtsname);
    // A bundle of trace alone does not say what system it is of.
    if (!capture.os_release.empty()) {
      names.add_string(perfetto_field::kSysname, "Linux");
      names.add_string(perfetto_field::kRelease, capture.os_release);
    }
    if (!capture.machine.empty()) names.add_string(perfetto_field::kMachine, capture.machine);
  });
}

void write_sched(const Timeline& timeline, const std::string& release, PerfettoPackets& out) {
  const int64_t preempted = preempted_state(release);
  // Runs are sorted by CPU, then time.
  for (size_t first = 0; first < timeline.runs.size();) {
    SchedWriter writer(out, timeline.runs[first].cpu, preempted);
    size_t last = first;
    for (; last < timeline.runs.size() && timeline.runs[last].cpu == timeline.runs[first].cpu; ++last)
      writer.run(timeline.runs[last]);
    writer.finish(timeline.summary.end);
    first = last;
  }
}

}  // namespace asof
