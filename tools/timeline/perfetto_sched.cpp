#include "tools/timeline/perfetto_sched.h"

#include <string>
#include <string_view>
#include <vector>

namespace asof {
namespace {

using protozero::pbf_writer;

constexpr size_t kMostInBundle = 1000;
constexpr int32_t kPriority = 120;  // of a usual thread: perf's records have none
// No state that Perfetto has: perf's records say that a thread left its CPU, not whether it sleeps.
constexpr int64_t kUnknownState = 0x2000;
// What ran where no record says so: a thread that cannot exist, as it is above the highest that Linux gives.
constexpr int32_t kNobody = 1 << 22;

struct Task {
  int32_t tid = 0;
  std::string_view comm;
};

class SchedWriter {
 public:
  SchedWriter(PerfettoPackets& out, int32_t cpu) : out_(out), cpu_(cpu), now_(nobody()) {}

  void run(const RunSlice& r) {
    if (r.begin > until_) to(until_, nobody());
    to(r.begin, r.tid == 0 ? Task{0, "swapper"} : Task{r.tid, r.comm});
    until_ = r.end;
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
  }
  void write_switch(pbf_writer change, Task next) const {
    change.add_string(perfetto_field::kPrevComm, now_.comm.data(), now_.comm.size());
    change.add_int32(perfetto_field::kPrevPid, now_.tid);
    change.add_int32(perfetto_field::kPrevPrio, kPriority);
    // The idle task is always ready.
    change.add_int64(perfetto_field::kPrevState, now_.tid == 0 ? 0 : kUnknownState);
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
  Task now_;
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

void write_sched(const Timeline& timeline, PerfettoPackets& out) {
  // Runs are sorted by CPU, then time.
  for (size_t first = 0; first < timeline.runs.size();) {
    SchedWriter writer(out, timeline.runs[first].cpu);
    size_t last = first;
    for (; last < timeline.runs.size() && timeline.runs[last].cpu == timeline.runs[first].cpu; ++last)
      writer.run(timeline.runs[last]);
    writer.finish(timeline.summary.end);
    first = last;
  }
}

}  // namespace asof
