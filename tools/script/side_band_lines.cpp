// The forms are those of perf's tools/perf/util/event.c, as seen in its output.
#include "tools/script/side_band_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"
#include "textstore/plain_text.h"

namespace asof {
namespace {

std::string hash_number(uint64_t n) { return n == 0 ? "0" : fmt::format("{:#x}", n); }

std::string mapping(const Record& r) {
  const auto m = parse_mmap(r);
  if (!m) return {};
  const std::string where = fmt::format("{}/{}: [{}({}) @ {}", m->pid, m->tid, hash_number(m->addr),
                                        hash_number(m->len), hash_number(m->pgoff));
  const std::string name = plain_text(m->filename);
  if (!m->is_mmap2) return fmt::format("PERF_RECORD_MMAP {}]: {} {}", where, m->executable ? 'x' : 'r', name);
  const std::string identity =
      m->build_id.empty() ? fmt::format("{:02x}:{:02x} {} {}", m->maj, m->min, m->inode, m->inode_generation)
                          : fmt::format("<{}>", m->build_id);
  constexpr uint32_t kRead = 1, kWrite = 2, kExec = 4, kShared = 1;
  return fmt::format("PERF_RECORD_MMAP2 {} {}]: {}{}{}{} {}", where, identity,
                     (m->prot & kRead) != 0 ? 'r' : '-', (m->prot & kWrite) != 0 ? 'w' : '-',
                     (m->prot & kExec) != 0 ? 'x' : '-', (m->flags & kShared) != 0 ? 's' : 'p', name);
}

std::string task(const Record& r) {
  if (r.type == perf::kComm) {
    const auto c = parse_comm(r);
    return c ? fmt::format("PERF_RECORD_COMM{}: {}:{}/{}", c->exec ? " exec" : "", plain_text(c->comm),
                           c->pid, c->tid)
             : std::string();
  }
  const auto t = parse_task(r);
  if (!t) return {};
  return fmt::format("PERF_RECORD_{}({}:{}):({}:{})", r.type == perf::kFork ? "FORK" : "EXIT", t->pid, t->tid,
                     t->ppid, t->ptid);
}

std::string task_switch(const Record& r) {
  const auto s = parse_switch(r);
  if (!s) return {};
  const std::string_view how = !s->out ? "IN         " : s->preempted ? "OUT preempt" : "OUT        ";
  if (!s->cpu_wide) return fmt::format("PERF_RECORD_SWITCH {}", how);
  return fmt::format("PERF_RECORD_SWITCH_CPU_WIDE {}  {} pid/tid: {:5}/{:<5}", how, s->out ? "next" : "prev",
                     s->next_prev_pid, s->next_prev_tid);
}

// The thread of a record without one: perf was told by itself.
int32_t thread_in(const Record& r) {
  if (r.type == perf::kMmap || r.type == perf::kMmap2) {
    const auto m = parse_mmap(r);
    return m ? m->tid : -1;
  }
  if (r.type != perf::kComm) return -1;
  const auto c = parse_comm(r);
  return c ? c->tid : -1;
}

}  // namespace

SideBandLines::SideBandLines(const Capture& capture, const SideBandChoice& choice) {
  if (!capture.perf || !choice.any()) return;
  capture.perf->for_each([&](const Record& r) {
    const bool wanted =
        (choice.mappings && (r.type == perf::kMmap || r.type == perf::kMmap2)) ||
        (choice.tasks && (r.type == perf::kComm || r.type == perf::kFork || r.type == perf::kExit)) ||
        (choice.switches && (r.type == perf::kSwitch || r.type == perf::kSwitchCpuWide)) ||
        (choice.losses && (r.type == perf::kLost || r.type == perf::kLostSamples));
    if (wanted) records_.push_back(r);
    return true;
  });
  std::ranges::stable_sort(records_, {}, [](const Record& r) { return r.time(); });
}

TimedText SideBandLines::take(Time before) {
  TimedText out;
  for (; next_ < records_.size() && records_[next_].time() < before; ++next_) {
    const Record& r = records_[next_];
    ScriptRecord line;
    line.kind = ScriptRecord::Kind::kSideBand;
    line.time = r.time();
    line.cpu = std::max(r.id.cpu, 0);
    line.pid = std::max(r.id.pid, 0);
    line.tid = std::max(r.id.tid, 0);
    line.a = next_;
    line.b = line.time == kTimeMin ? static_cast<uint64_t>(static_cast<int64_t>(thread_in(r)))
                                   : static_cast<uint64_t>(static_cast<int64_t>(line.tid));
    if (line.time != kTimeMin) out.at(line.time);
    line.append_to(out.text);
  }
  return out;
}

std::string SideBandLines::text(const ScriptRecord& r) const {
  const Record& record = records_[r.a];
  switch (record.type) {
    case perf::kMmap:
    case perf::kMmap2:
      return mapping(record);
    case perf::kComm:
    case perf::kFork:
    case perf::kExit:
      return task(record);
    case perf::kSwitch:
    case perf::kSwitchCpuWide:
      return task_switch(record);
    default: {
      const auto lost = parse_lost(record);
      return lost ? fmt::format("PERF_RECORD_{} lost {}",
                                record.type == perf::kLost ? "LOST" : "LOST_SAMPLES", lost->lost)
                  : std::string();
    }
  }
}

}  // namespace asof
