// Records to facts: which records matter, and which of them cannot be true. Their layouts are in
// decoder/perf/records.h.
#include "decoder/sideband/sideband.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"
#include "decoder/perf/trace_formats.h"
#include "decoder/sideband/record_rings.h"

namespace asof {
namespace {

constexpr int kTracingData = 1;          // feature
constexpr uint32_t kTypeTracepoint = 2;  // perf_event_attr.type
// PERF_RECORD_MISC_CPUMODE_MASK, PERF_RECORD_MISC_KERNEL. A guest's text is not the host's.
constexpr unsigned kCpumodeMask = 7, kCpumodeKernel = 1;
constexpr uint32_t kProtWrite = 2;  // PROT_WRITE of mmap(2)
// PERF_RECORD_MISC_LOST_SAMPLES_BPF: samples that a filter left out.
constexpr uint16_t kLeftOutByFilter = 1U << 15;
// perf_event_attr: write_backward, and the flags that request what is read here (mmap, comm, task, mmap2,
// context_switch, ksymbol, bpf_event, text_poke).
constexpr uint64_t kWriteBackward = 1ULL << 27;
constexpr uint64_t kSideBand =
    1ULL << 8 | 1ULL << 9 | 1ULL << 13 | 1ULL << 23 | 1ULL << 26 | 1ULL << 29 | 1ULL << 30 | 1ULL << 33;

class SideBandReader {
 public:
  SideBandReader(const PerfData& data, NoticeBook& notices) : data_(data), notices_(notices), rings_(data) {
    name_index("");
    for (TraceEvent& event : read_trace_formats(data.feature(kTracingData))) {
      if (event.system == "sched" && event.name == "sched_switch") sched_switch_ = std::move(event);
    }
  }

  SideBand read() {
    // The records were counted when the file was opened, and lists get this size at once: tens of millions of
    // them do not grow twice.
    if (const auto pokes = data_.record_counts().find(perf::kTextPoke); pokes != data_.record_counts().end())
      out_.pokes.reserve(pokes->second);
    data_.for_each([this](const Record& record) {
      visit(record);
      return true;
    });
    add_tail_losses();
    add_overwritten();
    sort();
    return std::move(out_);
  }

 private:
  void visit(const Record& r);
  void poke(const Record& r, const TextPokeRecord& body);
  void ksymbol(const Record& r, const KsymbolRecord& body);
  void bpf_event(const Record& r, const BpfEventRecord& body);
  void map(const Record& r, const MmapRecord& body);
  void comm(const Record& r, const CommRecord& body);
  void task(const Record& r, const TaskRecord& body);
  void lost(const Record& r, const LostRecord& body);
  void lost_samples(const Record& r, const LostRecord& body);
  void add_tail_losses();
  void add_overwritten();
  void switch_record(const Record& r, const SwitchRecord& body);
  void itrace_start(const Record& r, const TaskIdRecord& body);
  void sample(const Record& r);
  void sort();

  // Parses and passes on, or reports.
  template <class Body>
  void with(const Record& r, Result<Body> body, void (SideBandReader::*take)(const Record&, const Body&)) {
    if (body) return (this->*take)(r, *body);
    malformed(r, body.error().reason);
  }
  void malformed(const Record& r, const std::string& why) {
    notices_.error(Code::kBadSideBandRecord, data_.path(),
                   fmt::format("{} record left out: {}", record_type_name(r.type), why), {}, r.file_offset,
                   r.time());
  }
  uint32_t name_index(std::string_view name);

  const PerfData& data_;
  NoticeBook& notices_;
  SideBand out_;
  std::unordered_map<std::string, uint32_t> name_of_;
  RecordRings rings_;
  bool guest_seen_ = false;
  std::optional<TraceEvent> sched_switch_;
  std::vector<SwitchFact> sampled_switches_;
  std::vector<SwitchFact> after_losses_;  // the tasks that ran when LOST records were written
};

uint32_t SideBandReader::name_index(std::string_view name) {
  auto [it, fresh] = name_of_.try_emplace(std::string(name), static_cast<uint32_t>(out_.names.size()));
  if (fresh) out_.names.emplace_back(name);
  return it->second;
}

void SideBandReader::visit(const Record& r) {
  if (r.type == perf::kSample) return sample(r);
  if (r.type >= perf::kUserTypeStart) return;
  if (cpu_mode(r) == CpuMode::kGuestKernel || cpu_mode(r) == CpuMode::kGuestUser) {
    if (!guest_seen_)
      notices_.info(Code::kGuestRecordsSkipped, data_.path(),
                    "records of a guest are left out: guest text is not decoded");
    guest_seen_ = true;
    return;
  }
  switch (r.type) {
    case perf::kTextPoke:
      with(r, parse_text_poke(r), &SideBandReader::poke);
      break;
    case perf::kKsymbol:
      with(r, parse_ksymbol(r), &SideBandReader::ksymbol);
      break;
    case perf::kBpfEvent:
      with(r, parse_bpf_event(r), &SideBandReader::bpf_event);
      break;
    case perf::kMmap:
    case perf::kMmap2:
      with(r, parse_mmap(r), &SideBandReader::map);
      break;
    case perf::kComm:
      with(r, parse_comm(r), &SideBandReader::comm);
      break;
    case perf::kFork:
    case perf::kExit:
      with(r, parse_task(r), &SideBandReader::task);
      break;
    case perf::kLost:
      with(r, parse_lost(r), &SideBandReader::lost);
      break;
    case perf::kLostSamples:
      with(r, parse_lost(r), &SideBandReader::lost_samples);
      break;
    case perf::kSwitch:
    case perf::kSwitchCpuWide:
      with(r, parse_switch(r), &SideBandReader::switch_record);
      break;
    case perf::kItraceStart:
      with(r, parse_itrace_start(r), &SideBandReader::itrace_start);
      break;
    default:
      break;
  }
  if (r.time() == kTimeMin) return;
  out_.first_time = std::min(out_.first_time, r.time());
  out_.last_time = std::max(out_.last_time, r.time());
  if (r.type != perf::kLostSamples) rings_.saw(r);
}

// No in-tree caller makes one that fails these tests.
void SideBandReader::poke(const Record& r, const TextPokeRecord& body) {
  const size_t old_len = body.old_bytes.size(), new_len = body.new_bytes.size();
  const size_t len = std::max(old_len, new_len);
  if (len == 0) return malformed(r, "neither old nor new bytes");
  if (const unsigned mode = r.misc & kCpumodeMask; mode != kCpumodeKernel && mode != 0) {
    return malformed(r, fmt::format("cpumode {} is not the host's kernel", mode));
  }
  if (old_len != 0 && new_len != 0 && old_len != new_len) {
    return malformed(r, fmt::format("{} old bytes cannot become {} new ones in place", old_len, new_len));
  }
  if (!is_kernel_address(body.addr) || range_of(body.addr, len).size() != len) {
    return malformed(r, fmt::format("{:#x} is no kernel address", body.addr));
  }
  if (r.time() == kTimeMin) return malformed(r, "it has no time");
  out_.pokes.push_back({.addr = body.addr,
                        .time = r.time(),
                        .old_bytes = body.old_bytes,
                        .new_bytes = body.new_bytes,
                        .source = static_cast<uint32_t>(r.id.cpu),
                        .file_offset = r.file_offset});
}

void SideBandReader::ksymbol(const Record& r, const KsymbolRecord& body) {
  if (!is_kernel_address(body.addr) || body.len == 0) {
    return malformed(r, fmt::format("{} bytes at {:#x} are no kernel code", body.len, body.addr));
  }
  out_.ksymbols.push_back({.time = r.time(),
                           .range = range_of(body.addr, body.len),
                           .type = body.kind,
                           .unregister = body.unregister,
                           .name = std::string(body.name),
                           .file_offset = r.file_offset});
}

void SideBandReader::bpf_event(const Record& r, const BpfEventRecord& body) {
  if (body.kind != BpfEventRecord::kLoad && body.kind != BpfEventRecord::kUnload) return;
  out_.bpf_events.push_back({.time = r.time(),
                             .load = body.kind == BpfEventRecord::kLoad,
                             .id = body.id,
                             .tag = body.tag,
                             .file_offset = r.file_offset});
}

void SideBandReader::map(const Record& r, const MmapRecord& body) {
  if (body.len == 0) return;
  const AddrRange range = range_of(body.addr, body.len);
  if (is_kernel_address(body.addr)) {  // the rest is [vsyscall]
    if (cpu_mode(r) == CpuMode::kKernel || body.pid == -1) {
      out_.kernel_maps.push_back({range, body.pgoff, std::string(body.filename), body.build_id});
    }
    return;
  }
  if (body.pid < 0) return;
  out_.pid_of_tid.try_emplace(body.tid, body.pid);
  TaskFact fact{.kind = body.executable ? TaskFact::Kind::kMap : TaskFact::Kind::kUnmap,
                .time = r.time(),
                .pid = body.pid,
                .tid = body.tid,
                .range = range,
                .pgoff = body.pgoff,
                .file = name_index(body.filename),
                .writable = (body.prot & kProtWrite) != 0};
  if (body.executable) {
    fact.name = fact.file;
    fact.build_id = name_index(body.build_id);
  }
  out_.tasks.push_back(fact);
}

void SideBandReader::comm(const Record& r, const CommRecord& body) {
  out_.pid_of_tid[body.tid] = body.pid;
  out_.tasks.push_back({.kind = body.exec ? TaskFact::Kind::kExec : TaskFact::Kind::kComm,
                        .time = r.time(),
                        .pid = body.pid,
                        .tid = body.tid,
                        .name = name_index(body.comm)});
}

void SideBandReader::task(const Record& r, const TaskRecord& body) {
  out_.pid_of_tid[body.tid] = body.pid;
  out_.tasks.push_back({.kind = r.type == perf::kFork ? TaskFact::Kind::kFork : TaskFact::Kind::kExit,
                        .time = r.time(),
                        .pid = body.pid,
                        .tid = body.tid,
                        .parent_pid = body.ppid,
                        .parent_tid = body.ptid});
}

void SideBandReader::lost(const Record& r, const LostRecord& body) {
  const LostRecords fact = rings_.lost(r, body.lost);
  // The trailer of every record has the task that runs (perf_event_header__init_id()).
  if (r.id.cpu >= 0 && r.id.tid >= 0 && r.time() != kTimeMin)
    after_losses_.push_back({.time = r.time(), .cpu = r.id.cpu, .pid = r.id.pid, .tid = r.id.tid});
  notices_.add({Notice::Severity::kLoss, Code::kSideBandLost, data_.path(), r.file_offset, r.time(),
                fmt::format("{} side-band records of {} were lost before this one; changes of text may be "
                            "among them",
                            body.lost, ring_name(fact)),
                "record with a bigger ring: perf record -m 4M", 1});
  out_.lost.push_back(fact);
}

void SideBandReader::lost_samples(const Record& r, const LostRecord& body) {
  if ((r.misc & kLeftOutByFilter) == 0) rings_.counted(r, body.lost);
}

void SideBandReader::add_tail_losses() {
  for (const LostRecords& fact : rings_.lost_at_ends()) {
    notices_.add({Notice::Severity::kLoss, Code::kRecordsLostAtEnd, data_.path(), Error::kNoOffset,
                  fact.after,
                  fmt::format("{} side-band records of {} were lost after the last one present; "
                              "changes of text may be among them",
                              fact.count, ring_name(fact)),
                  "record with a bigger ring: perf record -m 4M", 1});
    out_.lost.push_back(fact);
  }
}

// perf record --overwrite: the ring's oldest records are overwritten without a LOST record.
void SideBandReader::add_overwritten() {
  const auto attrs = data_.attrs();
  const bool overwritten = std::any_of(attrs.begin(), attrs.end(), [](const PerfAttr& a) {
    return (a.flags & kWriteBackward) != 0 && (a.flags & kSideBand) != 0;
  });
  if (!overwritten) return;
  notices_.add(
      {Notice::Severity::kLoss, Code::kRecordsOverwritten, data_.path(), Error::kNoOffset, kTimeMin,
       "recorded with --overwrite: any number of the first side-band records may be gone; changes of "
       "text may be among them",
       "record without --overwrite; a snapshot of the trace alone (--snapshot) keeps all records", 1});
  const Time until = out_.first_time == kTimeMax ? kTimeMax : out_.first_time;
  for (const LostRecords& fact : rings_.lost_before(until)) out_.lost.push_back(fact);
}

void SideBandReader::switch_record(const Record& r, const SwitchRecord& body) {
  if (r.id.cpu < 0) return;
  SwitchFact fact{.time = r.time(), .cpu = r.id.cpu};
  if (body.out) {
    fact.pid = body.next_prev_pid;
    fact.tid = body.next_prev_tid;
    fact.before_pid = r.id.pid;
    fact.before_tid = r.id.tid;
  } else {
    fact.pid = r.id.pid;
    fact.tid = r.id.tid;
    fact.before_pid = body.next_prev_pid;
    fact.before_tid = body.next_prev_tid;
  }
  out_.switches.push_back(fact);
}

// A switch as the scheduler's tracepoint recorded it; its samples of other events say nothing about text or
// tasks.
void SideBandReader::sample(const Record& r) {
  const PerfAttr* attr = r.id.attr;
  if (!sched_switch_ || attr == nullptr || attr->type != kTypeTracepoint || attr->config != sched_switch_->id)
    return;
  const auto body = parse_sample(r);
  if (!body || r.id.cpu < 0 || r.time() == kTimeMin) return;
  const auto prev = sched_switch_->value({"prev_pid"}, body->raw, r.swapped);
  const auto next = sched_switch_->value({"next_pid"}, body->raw, r.swapped);
  if (!prev || !next) return malformed(r, "too short for the format of sched_switch");
  const auto prev_tid = static_cast<int32_t>(*prev);
  const auto next_tid = static_cast<int32_t>(*next);
  const auto pid_of_idle = [](int32_t tid) { return tid == 0 ? 0 : -1; };
  sampled_switches_.push_back({.time = r.time(),
                               .cpu = r.id.cpu,
                               .pid = pid_of_idle(next_tid),
                               .tid = next_tid,
                               .before_pid = pid_of_idle(prev_tid),
                               .before_tid = prev_tid});
}

void SideBandReader::itrace_start(const Record& r, const TaskIdRecord& body) {
  if (r.time() != kTimeMin) out_.trace_start = std::min(out_.trace_start, r.time());
  if (r.id.cpu >= 0 && body.tid >= 0) {
    out_.switches.push_back(
        {.time = r.time(), .cpu = r.id.cpu, .pid = body.pid, .tid = body.tid, .trace_start = true});
  }
}

void SideBandReader::sort() {
  const bool recorded = std::any_of(out_.switches.begin(), out_.switches.end(),
                                    [](const SwitchFact& s) { return !s.trace_start; });
  if (!recorded)
    out_.switches.insert(out_.switches.end(), sampled_switches_.begin(), sampled_switches_.end());
  // In front: a LOST record has the time of the record that follows it, which may be a switch.
  if (recorded || !sampled_switches_.empty())
    out_.switches.insert(out_.switches.begin(), after_losses_.begin(), after_losses_.end());
  auto by_time = [](const auto& a, const auto& b) { return a.time < b.time; };
  // Not stable_sort, whose buffer doubles the memory of tens of millions of them; the file's order breaks
  // ties.
  std::sort(out_.pokes.begin(), out_.pokes.end(), [](const Poke& a, const Poke& b) {
    return a.time != b.time ? a.time < b.time : a.file_offset < b.file_offset;
  });
  std::stable_sort(out_.ksymbols.begin(), out_.ksymbols.end(), by_time);
  std::stable_sort(out_.bpf_events.begin(), out_.bpf_events.end(), by_time);
  std::stable_sort(out_.tasks.begin(), out_.tasks.end(), by_time);
  std::stable_sort(out_.switches.begin(), out_.switches.end(), by_time);
}

}  // namespace

SideBand read_side_band(const PerfData& data, NoticeBook& notices) {
  return SideBandReader(data, notices).read();
}

}  // namespace asof
