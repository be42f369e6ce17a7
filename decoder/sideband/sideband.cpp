// Records to facts: which records matter, and which of them cannot be true. Their layouts are in
// decoder/perf/records.h.
#include "decoder/sideband/sideband.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "decoder/io/in_order.h"
#include "decoder/io/run_merger.h"
#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"
#include "decoder/perf/trace_formats.h"
#include "decoder/sideband/damage_losses.h"
#include "decoder/sideband/sideband_part.h"

namespace asof {
namespace {

constexpr int kTracingData = 1;     // feature
constexpr uint32_t kProtWrite = 2;  // PROT_WRITE of mmap(2)
constexpr uint32_t kMapShared = 1;  // MAP_SHARED: another mapping of the same pages may be writable
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
    if (sched_switch_) sched_id_ = sched_switch_->id;
  }

  SideBand read() {
    // The records were counted when the file was opened, and lists get this size at once: tens of millions of
    // them do not grow twice.
    if (const auto pokes = data_.record_counts().find(perf::kTextPoke); pokes != data_.record_counts().end())
      out_.pokes.reserve(pokes->second);
    const uint64_t* samples = sched_switch_ ? &sched_id_ : nullptr;
    in_order(
        data_.parts(), [&](size_t part) { return read_side_band_part(data_, part, samples, rings_.ids()); },
        [&](SideBandPart part) { take(std::move(part)); });
    add_tail_losses();
    add_overwritten();
    add_losses_by_damage();
    sort();
    return std::move(out_);
  }

 private:
  void take(SideBandPart part);
  void visit(const SideBandPart::Other& other);
  void poke(const Record& r, const TextPokeRecord& body);
  void ksymbol(const Record& r, const KsymbolRecord& body);
  void bpf_event(const Record& r, const BpfEventRecord& body);
  void map(const Record& r, const MmapRecord& body);
  void comm(const Record& r, const CommRecord& body);
  void task(const Record& r, const TaskRecord& body);
  void lost(const Record& r, const LostRecord& body, std::optional<Time> before);
  void lost_samples(const Record& r, const LostRecord& body);
  void add_tail_losses();
  void add_overwritten();
  void sample(const Record& r);
  void join_switches();
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
    if (may_tell_of_text(r.type)) add_damaged(r);
  }
  static bool may_tell_of_text(uint32_t type) {
    return type == perf::kTextPoke || type == perf::kKsymbol || type == perf::kBpfEvent ||
           type == perf::kMmap || type == perf::kMmap2 || type == perf::kFork || type == perf::kExit ||
           type == perf::kLost;
  }
  void add_damaged(const Record& r) {
    constexpr size_t kMost = 1000;  // more are taken as the whole rest
    if (damaged_.size() < kMost || damaged_.back().file != r.file)
      damaged_.push_back({r.file, r.file_offset, r.file_offset + 1});
    else
      damaged_.back().end = UINT64_MAX;
  }
  void add_losses_by_damage();
  uint32_t name_index(std::string_view name);
  struct FileIdentity {
    uint32_t maj = 0, min = 0;
    uint64_t inode = 0, generation = 0;
  };
  void identify(uint32_t name, const MmapRecord& body);

  const PerfData& data_;
  NoticeBook& notices_;
  SideBand out_;
  std::unordered_map<std::string, uint32_t> name_of_;
  RecordRings rings_;
  bool guest_seen_ = false;
  std::unordered_map<uint32_t, FileIdentity> identities_;  // of mapped files, by name
  Time round_ = kTimeMin;                                  // the latest time before the last FINISHED_ROUND
  Time settled_ = kTimeMin;  // before the one before that: all that is older was there when the last one came
  std::vector<PassedOver> damaged_;  // records that were left out
  std::optional<TraceEvent> sched_switch_;
  uint64_t sched_id_ = 0;
  RunMerger<Poke, decltype(&in_poke_order)> pokes_{&in_poke_order};
  using Pieces = std::vector<std::vector<SwitchFact>>;
  std::map<int32_t, Pieces> switches_, sampled_switches_;  // by CPU
};

uint32_t SideBandReader::name_index(std::string_view name) {
  auto [it, fresh] = name_of_.try_emplace(std::string(name), static_cast<uint32_t>(out_.names.size()));
  if (fresh) out_.names.emplace_back(name);
  return it->second;
}

void SideBandReader::take(SideBandPart part) {
  for (const SideBandPart::Other& other : part.others) visit(other);
  pokes_.add(out_.pokes, part.pokes);
  for (auto& [cpu, switches] : part.switches) switches_[cpu].push_back(std::move(switches));
  for (const auto& [ring, last] : part.last) {
    if (last != kTimeMin) rings_.saw(ring, last);
  }
  for (const Time newest : part.rounds) {
    settled_ = round_;
    round_ = std::max(out_.last_time, newest);
  }
  out_.first_time = std::min(out_.first_time, part.first_time);
  out_.last_time = std::max(out_.last_time, part.last_time);
  out_.trace_start = std::min(out_.trace_start, part.trace_start);
}

void SideBandReader::visit(const SideBandPart::Other& other) {
  const Record& r = other.record;
  if (r.type == perf::kSample) return sample(r);
  if (is_guest(r)) {
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
      if (const auto body = parse_lost(r))
        lost(r, *body, other.before);
      else
        malformed(r, body.error().reason);
      break;
    case perf::kLostSamples:
      with(r, parse_lost(r), &SideBandReader::lost_samples);
      break;
    case perf::kSwitch:
    case perf::kSwitchCpuWide:  // these two only if they are damaged
      if (const auto body = parse_switch(r); !body) malformed(r, body.error().reason);
      break;
    case perf::kItraceStart:
      if (const auto body = parse_itrace_start(r); !body) malformed(r, body.error().reason);
      break;
    default:
      break;
  }
}

// Those without a fault are taken by read_side_band_part().
void SideBandReader::poke(const Record& r, const TextPokeRecord& body) { malformed(r, poke_fault(r, body)); }

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
  if (const std::string fault = user_map_fault(body); !fault.empty()) return malformed(r, fault);
  out_.pid_of_tid.try_emplace(body.tid, body.pid);
  TaskFact fact{.kind = body.executable ? TaskFact::Kind::kMap : TaskFact::Kind::kUnmap,
                .time = r.time(),
                .pid = body.pid,
                .tid = body.tid,
                .range = range,
                .pgoff = body.pgoff,
                .file = name_index(body.filename),
                .writable = (body.prot & kProtWrite) != 0 || (body.flags & kMapShared) != 0};
  if (body.executable) {
    fact.name = fact.file;
    fact.build_id = name_index(body.build_id);
    if (body.is_mmap2 && body.build_id.empty() && body.inode != 0) identify(fact.name, body);
  }
  out_.tasks.push_back(fact);
}

// Mappings that perf found in /proc have no generation.
void SideBandReader::identify(uint32_t name, const MmapRecord& body) {
  const FileIdentity now{body.maj, body.min, body.inode, body.inode_generation};
  const auto [known, fresh] = identities_.try_emplace(name, now);
  FileIdentity& first = known->second;
  const bool generations = first.generation != 0 && now.generation != 0 && first.generation != now.generation;
  if (first.maj != now.maj || first.min != now.min || first.inode != now.inode || generations)
    out_.replaced.insert(name);
  if (first.generation == 0) first.generation = now.generation;
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

void SideBandReader::lost(const Record& r, const LostRecord& body, std::optional<Time> before) {
  const LostRecords fact = rings_.lost(r, body.lost, before);
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

void SideBandReader::add_losses_by_damage() {
  const auto passed_over = data_.passed_over();
  damaged_.insert(damaged_.end(), passed_over.begin(), passed_over.end());
  std::ranges::sort(damaged_, {}, [](const PassedOver& p) { return std::tuple(p.file, p.begin, p.end); });
  for (const LostRecords& fact : lost_in_damage(data_, damaged_, rings_.ids())) out_.lost.push_back(fact);
  if (!data_.may_go_on()) return;
  for (const LostRecords& fact : rings_.lost_behind(settled_)) out_.lost.push_back(fact);
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

// A switch as the scheduler's tracepoint recorded it; samples of other events are none of the others.
void SideBandReader::sample(const Record& r) {
  const auto body = parse_sample(r);
  if (!body || r.id.cpu < 0 || r.time() == kTimeMin) return;
  const auto prev = sched_switch_->value({"prev_pid"}, body->raw, r.swapped);
  const auto next = sched_switch_->value({"next_pid"}, body->raw, r.swapped);
  if (!prev || !next) return malformed(r, "too short for the format of sched_switch");
  const auto prev_tid = static_cast<int32_t>(*prev);
  const auto next_tid = static_cast<int32_t>(*next);
  // Neither asleep nor dead; the kernel's own mark of a preemption, which has another value in each range of versions,
  // is no state.
  constexpr uint64_t kPreemptions = 0x100 | 0x800 | 0x1000;
  const auto state = sched_switch_->value({"prev_state"}, body->raw, r.swapped);
  const auto pid_of_idle = [](int32_t tid) { return tid == 0 ? 0 : -1; };
  Pieces& pieces = sampled_switches_[r.id.cpu];
  if (pieces.empty()) pieces.emplace_back();
  pieces.back().push_back({.time = r.time(),
                           .cpu = r.id.cpu,
                           .pid = pid_of_idle(next_tid),
                           .tid = next_tid,
                           .before_pid = pid_of_idle(prev_tid),
                           .before_tid = prev_tid,
                           .preempted = state && (*state & ~kPreemptions) == 0});
}

// Those of a ring are in order of time already, unless the file is damaged or has several rings of a CPU.
void SideBandReader::join_switches() {
  bool recorded = false;
  for (const auto& [cpu, pieces] : switches_) {
    for (const auto& piece : pieces)
      recorded |= std::ranges::any_of(piece, [](const SwitchFact& s) { return !s.trace_start; });
  }
  if (!recorded) {
    for (auto& [cpu, pieces] : sampled_switches_) {
      for (auto& piece : pieces) switches_[cpu].push_back(std::move(piece));
    }
  }
  std::vector<std::pair<Pieces*, std::vector<SwitchFact>*>> work;
  work.reserve(switches_.size());
  for (auto& [cpu, pieces] : switches_) work.emplace_back(&pieces, &out_.switches[cpu]);
  const auto join = [&](size_t i) {
    const auto& [pieces, to] = work[i];
    size_t size = 0;
    for (const auto& piece : *pieces) size += piece.size();
    to->reserve(size);
    for (auto& piece : *pieces) {
      to->insert(to->end(), piece.begin(), piece.end());
      std::vector<SwitchFact>().swap(piece);
    }
    const auto earlier = [](const SwitchFact& a, const SwitchFact& b) { return a.time < b.time; };
    if (!std::ranges::is_sorted(*to, earlier)) std::ranges::stable_sort(*to, earlier);
    return i;
  };
  in_order(work.size(), join, [](size_t) {});
}

void SideBandReader::sort() {
  join_switches();
  const auto earlier = [](const auto& a, const auto& b) { return a.time < b.time; };
  pokes_.finish(out_.pokes);
  std::stable_sort(out_.ksymbols.begin(), out_.ksymbols.end(), earlier);
  std::stable_sort(out_.bpf_events.begin(), out_.bpf_events.end(), earlier);
  std::stable_sort(out_.tasks.begin(), out_.tasks.end(), earlier);
}

}  // namespace

SideBand read_side_band(const PerfData& data, NoticeBook& notices) {
  return SideBandReader(data, notices).read();
}

}  // namespace asof
