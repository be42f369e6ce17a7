// Up to which time the records of a growing pipe are complete.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "decoder/live/settling.h"
#include "decoder/perf/record_types.h"
#include "decoder/sideband/record_rings.h"

namespace asof {
namespace {

class RingTimes {
 public:
  explicit RingTimes(const PerfData& data) : ids_(data) {}

  void take(const Record& record) {
    if (record.type == perf::kFinishedInit) {
      started_ = true;
    } else if (record.type == perf::kFinishedRound) {
      before_ = now_;
    } else if (record.type < perf::kUserTypeStart && record.time() != kTimeMin) {
      Time& last = now_.try_emplace(ids_.ring_of(record.id), kTimeMin).first->second;
      last = std::max(last, record.time());
      newest_ = std::max(newest_, record.time());
    }
  }

  // A record is written in one go, with a time that was read before. So what came into a ring after a round had read
  // it is newer than all that was in any ring when that round began. And a loss is told by the next record of its ring:
  // of a ring that is silent it is not known.
  Time settled() const {
    if (!started_ || before_.empty() || before_.size() < now_.size()) return kTimeMin;
    Time out = kTimeMax;
    for (const auto& [ring, last] : before_) out = std::min(out, last);
    return out;
  }
  bool started() const { return started_; }
  Time newest() const { return newest_; }

 private:
  RingIds ids_;
  std::map<RingKey, Time> now_,
      before_;            // the newest record of each ring; the same when the last round began
  bool started_ = false;  // what perf says of the time before the recording is there
  Time newest_ = kTimeMin;
};

// What makes even complete records leave the text open that they are about; empty: nothing.
std::string text_waits_for(const Capture& capture) {
  const bool x86 = capture.arm64.sources.empty();
  if (x86 ? !capture.x86.time : !capture.arm64.time)
    return "the trace has no time of perf's clock, so nothing says which records it is older than";
  if (capture.arm64.time_error != 0)
    return "the relation of the trace's clock to perf's is derived from all records";
  if (capture.exclude_kernel) return {};
  if (!x86 && capture.arm64.unrecorded_changes)
    return "there is no TEXT_POKE record yet: whether the kernel makes any decides how certain its text is";
  if (std::ranges::none_of(capture.copies, [](const TextCopy& c) { return c.kind == OriginKind::kKcore; }))
    return "kernel text is from a file (give --kcore): a change tells what was in memory before it";
  return {};
}

// A file says at its end which files code was mapped from, how many CPUs there were, and which CPU it was.
std::string file_waits_for(const Capture& capture) {
  if (!capture.exclude_user)
    return "a file has the build-ids of user code at its end (record with -o -, or the kernel alone)";
  if (capture.perf->nr_cpus() == 0 || capture.cpu_id.empty())
    return "a file says at its end what machine it is of (give --same-machine a finished recording)";
  return {};
}

}  // namespace

SettledRecords settled_records(const Capture& capture, bool file) {
  SettledRecords out;
  RingTimes rings(*capture.perf);
  capture.perf->for_each([&](const Record& record) {
    rings.take(record);
    return true;
  });
  out.newest = rings.newest();
  out.waits_for = file ? file_waits_for(capture) : "";
  if (out.waits_for.empty()) out.waits_for = text_waits_for(capture);
  if (!out.waits_for.empty()) return out;
  if (!rings.started()) {
    out.waits_for =
        "perf does not say that it has described what was there before the recording (FINISHED_INIT)";
    return out;
  }
  out.until = rings.settled();
  if (out.until == kTimeMin) out.waits_for = "not every ring with records had some in a complete round";
  for (const BpfProgram& program : capture.bpf_programs) {
    if (!file || program.loaded > out.until) continue;
    out.until = program.loaded == kTimeMin ? kTimeMin : program.loaded - 1;
    out.waits_for = "a file has the code of BPF programs at its end (record with -o -)";
  }
  // What a loss leaves open is decided by records after it.
  for (const LostRecords& lost : capture.text->losses()) {
    if (!lost.known || lost.after > out.until) continue;
    out.until = lost.after == kTimeMin ? kTimeMin : lost.after - 1;
    out.waits_for = "records were lost: what comes after is judged by all later records";
  }
  return out;
}

}  // namespace asof
