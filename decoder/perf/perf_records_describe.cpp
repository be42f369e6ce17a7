// Records as one line of text, for `asof events`.
#include <fmt/format.h>

#include <array>
#include <string_view>

#include "decoder/perf/perf_data_impl.h"
#include "decoder/perf/record_names.h"
#include "decoder/perf/records.h"
#include "textstore/plain_text.h"

namespace asof {
namespace {

constexpr std::array<std::string_view, 23> kKernelNames = {"",
                                                           "MMAP",
                                                           "LOST",
                                                           "COMM",
                                                           "EXIT",
                                                           "THROTTLE",
                                                           "UNTHROTTLE",
                                                           "FORK",
                                                           "READ",
                                                           "SAMPLE",
                                                           "MMAP2",
                                                           "AUX",
                                                           "ITRACE_START",
                                                           "LOST_SAMPLES",
                                                           "SWITCH",
                                                           "SWITCH_CPU_WIDE",
                                                           "NAMESPACES",
                                                           "KSYMBOL",
                                                           "BPF_EVENT",
                                                           "CGROUP",
                                                           "TEXT_POKE",
                                                           "AUX_OUTPUT_HW_ID",
                                                           "CALLCHAIN_DEFERRED"};

constexpr std::array<std::string_view, 23> kToolNames = {"HEADER_ATTR",
                                                         "EVENT_TYPE",
                                                         "HEADER_TRACING_DATA",
                                                         "HEADER_BUILD_ID",
                                                         "FINISHED_ROUND",
                                                         "ID_INDEX",
                                                         "AUXTRACE_INFO",
                                                         "AUXTRACE",
                                                         "AUXTRACE_ERROR",
                                                         "THREAD_MAP",
                                                         "CPU_MAP",
                                                         "STAT_CONFIG",
                                                         "STAT",
                                                         "STAT_ROUND",
                                                         "EVENT_UPDATE",
                                                         "TIME_CONV",
                                                         "HEADER_FEATURE",
                                                         "COMPRESSED",
                                                         "FINISHED_INIT",
                                                         "COMPRESSED2",
                                                         "BPF_METADATA",
                                                         "SCHEDSTAT_CPU",
                                                         "SCHEDSTAT_DOMAIN"};

std::string_view mode_name(CpuMode mode) {
  constexpr std::array<std::string_view, 6> kNames = {"unknown",    "kernel",       "user",
                                                      "hypervisor", "guest kernel", "guest user"};
  const auto index = static_cast<size_t>(mode);
  return index < kNames.size() ? kNames[index] : "?";
}

std::string bytes_text(std::span<const uint8_t> bytes) {
  constexpr size_t kShown = 32;
  std::string text = hex(bytes.first(std::min(bytes.size(), kShown)));
  return bytes.size() > kShown ? text + "..." : text;
}

std::string line(const MmapRecord& r, const Record& record) {
  std::string text = fmt::format("pid {} tid {} [{:#x} +{:#x}) pgoff {:#x} {} {}", r.pid, r.tid, r.addr,
                                 r.len, r.pgoff, mode_name(cpu_mode(record)), r.executable ? "x" : "data");
  if (!r.build_id.empty()) text += " build-id " + r.build_id;
  return text + " " + plain_text(r.filename);
}
std::string line(const CommRecord& r, const Record&) {
  return fmt::format("pid {} tid {} {}{}", r.pid, r.tid, plain_text(r.comm), r.exec ? " (exec)" : "");
}
std::string line(const TaskRecord& r, const Record&) {
  return fmt::format("pid {} tid {} parent pid {} tid {}", r.pid, r.tid, r.ppid, r.ptid);
}
std::string line(const KsymbolRecord& r, const Record&) {
  const char* kind = r.kind == KsymbolRecord::kBpf         ? "bpf"
                     : r.kind == KsymbolRecord::kOutOfLine ? "ool"
                                                           : "unknown";
  return fmt::format("{} [{:#x} +{:#x}) {} {}", r.unregister ? "unregister" : "register", r.addr, r.len, kind,
                     plain_text(r.name));
}
std::string line(const BpfEventRecord& r, const Record&) {
  const char* kind = r.kind == BpfEventRecord::kLoad     ? "load"
                     : r.kind == BpfEventRecord::kUnload ? "unload"
                                                         : "unknown";
  return fmt::format("{} id {} tag {}", kind, r.id, hex(r.tag));
}
std::string line(const TextPokeRecord& r, const Record&) {
  return fmt::format("{:#x} old {} [{}] new {} [{}]", r.addr, r.old_bytes.size(), bytes_text(r.old_bytes),
                     r.new_bytes.size(), bytes_text(r.new_bytes));
}
std::string line(const SwitchRecord& r, const Record&) {
  std::string text = r.out ? (r.preempted ? "out, preempted" : "out") : "in";
  if (r.cpu_wide) {
    text += fmt::format(", {} pid {} tid {}", r.out ? "next" : "previous", r.next_prev_pid, r.next_prev_tid);
  }
  return text;
}
std::string line(const TaskIdRecord& r, const Record&) { return fmt::format("pid {} tid {}", r.pid, r.tid); }
std::string line(const LostRecord& r, const Record&) { return fmt::format("{} lost", r.lost); }
std::string line(const AuxRecord& r, const Record&) {
  std::string text = fmt::format("offset {:#x} size {:#x} flags {:#x}", r.offset, r.size, r.flags);
  constexpr std::array<std::string_view, 4> kFlags = {" truncated", " overwrite", " partial", " collision"};
  for (size_t i = 0; i < kFlags.size(); ++i) {
    if (((r.flags >> i) & 1U) != 0) text += kFlags[i];
  }
  return text;
}
std::string line(const NamespacesRecord& r, const Record&) {
  std::string text = fmt::format("pid {} tid {}", r.pid, r.tid);
  for (const auto& link : r.links) text += fmt::format(" {:#x}/{}", link.dev, link.inode);
  return text;
}
std::string line(const CgroupRecord& r, const Record&) {
  return fmt::format("id {} {}", r.id, plain_text(r.path));
}
std::string line(const ThrottleRecord& r, const Record&) {
  return fmt::format("id {} time {}", r.id, r.time);
}
std::string line(uint64_t hw_id, const Record&) { return fmt::format("hw_id {:#x}", hw_id); }
std::string line(const AuxtraceErrorRecord& r, const Record&) {
  return fmt::format("type {} code {} cpu {} pid {} tid {} ip {:#x} {}", r.type, r.code, r.cpu, r.pid, r.tid,
                     r.ip, plain_text(r.message));
}
std::string line(const ThreadMapRecord& r, const Record&) {
  std::string text = fmt::format("{} threads", r.threads.size());
  for (const auto& thread : r.threads) text += fmt::format(" {}:{}", thread.pid, plain_text(thread.comm));
  return text;
}
std::string line(const CpuMapRecord& r, const Record&) {
  return r.cpus.empty() ? "no CPUs"
                        : fmt::format("{} CPUs, {} to {}", r.cpus.size(), r.cpus.front(), r.cpus.back());
}
std::string line(const AuxtraceInfo& r, const Record&) {
  std::string text = fmt::format("type {}, {} words", r.type, r.priv.size());
  return r.filter.empty() ? text : text + ", filter " + plain_text(r.filter);
}
std::string line(const TimeConvRecord& r, const Record&) {
  return fmt::format("shift {} mult {} zero {}{}", r.shift, r.mult, r.zero,
                     r.cap_short ? ", short counter" : "");
}
std::string line(const SampleRecord& r, const Record& record) {
  std::string text = record.id.attr->name;
  if (r.ip) text += fmt::format("{}ip {:#x}", text.empty() ? "" : " ", *r.ip);
  if (r.addr && *r.addr != 0) text += fmt::format(" addr {:#x}", *r.addr);
  if (!r.raw.empty()) text += fmt::format(" raw {} bytes", r.raw.size());
  if (!r.aux.empty()) text += fmt::format(" aux {} bytes", r.aux.size());
  return text;
}

std::string auxtrace_line(const Record& record) {
  Reader in(record.body, record.swapped);
  const uint64_t size = in.u64(), offset = in.u64(), reference = in.u64();
  const uint32_t idx = in.u32();
  const int32_t tid = in.s32(), cpu = in.s32();
  return in.ok() ? fmt::format("size {:#x} offset {:#x} reference {:#x} idx {} tid {} cpu {}", size, offset,
                               reference, idx, tid, cpu)
                 : std::string("too short for its fields");
}

template <class T>
std::string show(const Result<T>& parsed, const Record& record) {
  return parsed ? line(*parsed, record) : parsed.error().reason;
}

}  // namespace

std::string record_type_name(uint32_t type) {
  if (type > 0 && type < kKernelNames.size()) return std::string(kKernelNames[type]);
  const uint32_t tool = type - perf::kUserTypeStart;
  if (type >= perf::kUserTypeStart && tool < kToolNames.size()) return std::string(kToolNames[tool]);
  return fmt::format("UNKNOWN({})", type);
}

std::vector<std::string> record_type_names() {
  std::vector<std::string> out;
  for (const std::string_view name : kKernelNames) {
    if (!name.empty()) out.emplace_back(name);
  }
  for (const std::string_view name : kToolNames) {
    if (!name.empty()) out.emplace_back(name);
  }
  return out;
}

std::string describe_record(const Record& record) {
  switch (record.type) {
    case perf::kMmap:
    case perf::kMmap2:
      return show(parse_mmap(record), record);
    case perf::kComm:
      return show(parse_comm(record), record);
    case perf::kFork:
    case perf::kExit:
      return show(parse_task(record), record);
    case perf::kKsymbol:
      return show(parse_ksymbol(record), record);
    case perf::kBpfEvent:
      return show(parse_bpf_event(record), record);
    case perf::kTextPoke:
      return show(parse_text_poke(record), record);
    case perf::kSwitch:
    case perf::kSwitchCpuWide:
      return show(parse_switch(record), record);
    case perf::kItraceStart:
      return show(parse_itrace_start(record), record);
    case perf::kLost:
    case perf::kLostSamples:
      return show(parse_lost(record), record);
    case perf::kAux:
      return show(parse_aux(record), record);
    case perf::kNamespaces:
      return show(parse_namespaces(record), record);
    case perf::kCgroup:
      return show(parse_cgroup(record), record);
    case perf::kThrottle:
    case perf::kUnthrottle:
      return show(parse_throttle(record), record);
    case perf::kAuxOutputHwId:
      return show(parse_aux_output_hw_id(record), record);
    case perf::kAuxtraceError:
      return show(parse_auxtrace_error(record), record);
    case perf::kThreadMap:
      return show(parse_thread_map(record), record);
    case perf::kCpuMap:
      return show(parse_cpu_map(record), record);
    case perf::kAuxtraceInfo:
      return show(parse_auxtrace_info(record), record);
    case perf::kTimeConv:
      return show(parse_time_conv(record), record);
    case perf::kSample:
      return record.id.attr == nullptr ? "too short, or of an unknown event"
                                       : show(parse_sample(record), record);
    case perf::kAuxtrace:
      return auxtrace_line(record);
    default:
      return fmt::format("{} bytes", record.bytes.size());
  }
}

}  // namespace asof
