#include "decoder/sideband/sideband_part.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/perf/record_types.h"

namespace asof {
namespace {

constexpr uint32_t kTypeTracepoint = 2;  // perf_event_attr.type
// PERF_RECORD_MISC_CPUMODE_MASK, PERF_RECORD_MISC_KERNEL. A guest's text is not the host's.
constexpr unsigned kCpumodeMask = 7, kCpumodeKernel = 1;

class PartReader {
 public:
  PartReader(const uint64_t* samples, const RingIds& ids) : samples_(samples), ids_(ids) {}

  void visit(const Record& r) {
    if (r.type == perf::kSample) {
      const PerfAttr* attr = r.id.attr;
      if (samples_ != nullptr && attr != nullptr && attr->type == kTypeTracepoint &&
          attr->config == *samples_)
        out_.others.push_back({r, {}});
      return;
    }
    if (r.type == perf::kFinishedRound) out_.rounds.push_back(out_.last_time);
    if (r.type >= perf::kUserTypeStart) return;
    if (is_guest(r)) return out_.others.push_back({r, {}});
    Time& last = last_of(r.id);
    if (!take(r)) out_.others.push_back({r, last == kTimeMin ? std::nullopt : std::optional(last)});
    if (r.time() == kTimeMin) return;
    out_.first_time = std::min(out_.first_time, r.time());
    out_.last_time = std::max(out_.last_time, r.time());
    if (r.type != perf::kLostSamples) last = r.time();
  }

  SideBandPart finish() {
    std::stable_sort(out_.pokes.begin(), out_.pokes.end(), in_poke_order);
    return std::move(out_);
  }

 private:
  // Most records follow another one of the same event and CPU.
  Time& last_of(const SampleId& id) {
    if (last_ == nullptr || id.id != id_ || id.cpu != cpu_)
      last_ = &out_.last.try_emplace(ids_.ring_of(id), kTimeMin).first->second;
    id_ = id.id, cpu_ = id.cpu;
    return *last_;
  }
  std::vector<SwitchFact>& switches_of(int32_t cpu) {
    if (switches_ == nullptr || cpu != switches_cpu_) switches_ = &out_.switches[cpu];
    switches_cpu_ = cpu;
    return *switches_;
  }

  // False: it is one of the others.
  bool take(const Record& r) {
    switch (r.type) {
      case perf::kTextPoke: {
        const auto body = parse_text_poke(r);
        if (!body || !poke_fault(r, *body).empty()) return false;
        poke(r, *body);
        return true;
      }
      case perf::kSwitch:
      case perf::kSwitchCpuWide: {
        const auto body = parse_switch(r);
        if (body) switch_record(r, *body);
        return body.has_value();
      }
      case perf::kItraceStart: {
        const auto body = parse_itrace_start(r);
        if (body) itrace_start(r, *body);
        return body.has_value();
      }
      case perf::kKsymbol:
      case perf::kBpfEvent:
      case perf::kMmap:
      case perf::kMmap2:
      case perf::kComm:
      case perf::kFork:
      case perf::kExit:
      case perf::kLost:
      case perf::kLostSamples:
        return false;
      default:
        return true;
    }
  }

  void poke(const Record& r, const TextPokeRecord& body);
  void switch_record(const Record& r, const SwitchRecord& body);
  void itrace_start(const Record& r, const TaskIdRecord& body);

  const uint64_t* samples_;
  SideBandPart out_;
  const RingIds& ids_;
  uint64_t id_ = 0;
  int32_t cpu_ = -1, switches_cpu_ = -1;
  Time* last_ = nullptr;
  std::vector<SwitchFact>* switches_ = nullptr;
};

void PartReader::poke(const Record& r, const TextPokeRecord& body) {
  out_.pokes.push_back({.addr = body.addr,
                        .time = r.time(),
                        .old_bytes = body.old_bytes,
                        .new_bytes = body.new_bytes,
                        .source = static_cast<uint32_t>(r.id.cpu),
                        .file_offset = r.file_offset});
}

void PartReader::switch_record(const Record& r, const SwitchRecord& body) {
  if (r.id.cpu < 0) return;
  SwitchFact fact{.time = r.time(), .cpu = r.id.cpu};
  if (body.out) {
    fact.pid = body.next_prev_pid;
    fact.tid = body.next_prev_tid;
    fact.before_pid = r.id.pid;
    fact.before_tid = r.id.tid;
    fact.preempted = body.preempted;
  } else {
    fact.pid = r.id.pid;
    fact.tid = r.id.tid;
    fact.before_pid = body.next_prev_pid;
    fact.before_tid = body.next_prev_tid;
  }
  switches_of(r.id.cpu).push_back(fact);
}

void PartReader::itrace_start(const Record& r, const TaskIdRecord& body) {
  if (r.time() != kTimeMin) out_.trace_start = std::min(out_.trace_start, r.time());
  if (r.id.cpu >= 0 && body.tid >= 0) {
    switches_of(r.id.cpu).push_back(
        {.time = r.time(), .cpu = r.id.cpu, .pid = body.pid, .tid = body.tid, .trace_start = true});
  }
}

}  // namespace

bool is_guest(const Record& record) {
  return cpu_mode(record) == CpuMode::kGuestKernel || cpu_mode(record) == CpuMode::kGuestUser;
}

// mm/mmap.c and perf_event_mmap_event() know whole pages only. What tools write for generated code (perf inject --jit:
// jitted-PID-N.so, simpleperf) need not start at one.
std::string user_map_fault(const MmapRecord& body) {
  constexpr uint64_t kPage = 4096;          // the smallest of both machines
  constexpr Addr kUserEnd = Addr{1} << 56;  // with five levels of page tables
  constexpr uint32_t kSimpleperfJit = 0x4000;
  const AddrRange range = range_of(body.addr, body.len);
  if (range.size() != body.len || range.end > kUserEnd)
    return fmt::format("{} bytes at {:#x} are not in the user half", body.len, body.addr);
  const bool generated =
      (body.prot & kSimpleperfJit) != 0 || body.filename.find("jitted-") != std::string::npos;
  if (generated || (body.addr % kPage == 0 && body.pgoff % kPage == 0)) return {};
  return fmt::format("a mapping at {:#x} of what is at {:#x} is not of whole pages", body.addr, body.pgoff);
}

std::string poke_fault(const Record& r, const TextPokeRecord& body) {
  const size_t old_len = body.old_bytes.size(), new_len = body.new_bytes.size();
  const size_t len = std::max(old_len, new_len);
  if (len == 0) return "neither old nor new bytes";
  if (const unsigned mode = r.misc & kCpumodeMask; mode != kCpumodeKernel && mode != 0) {
    return fmt::format("cpumode {} is not the host's kernel", mode);
  }
  if (old_len != 0 && new_len != 0 && old_len != new_len) {
    return fmt::format("{} old bytes cannot become {} new ones in place", old_len, new_len);
  }
  if (!is_kernel_address(body.addr) || range_of(body.addr, len).size() != len) {
    return fmt::format("{:#x} is no kernel address", body.addr);
  }
  if (r.time() == kTimeMin) return "it has no time";
  return {};
}

SideBandPart read_side_band_part(const PerfData& data, size_t part, const uint64_t* samples,
                                 const RingIds& rings) {
  PartReader reader(samples, rings);
  data.for_each_in(part, [&](const Record& record) {
    reader.visit(record);
    return true;
  });
  return reader.finish();
}

}  // namespace asof
