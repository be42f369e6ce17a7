#include "decoder/perf/records.h"

#include <fmt/format.h>

#include "decoder/perf/perf_data_impl.h"

namespace asof {
namespace {

constexpr uint16_t kMiscBit13 = 1U << 13;  // MMAP_DATA, COMM_EXEC, FORK_EXEC, SWITCH_OUT
constexpr uint16_t kMiscBit14 = 1U << 14;  // SWITCH_OUT_PREEMPT, MMAP_BUILD_ID
constexpr uint32_t kProtExec = 4;

Reader body_of(const Record& record) { return Reader(record.body, record.swapped); }

std::unexpected<Error> too_short(const Record& record, std::string_view field) {
  return fail(Code::kRecordTooShort, record_type_name(record.type), record.file_offset,
              fmt::format("record of {} bytes is too short for {}", record.bytes.size(), field));
}

std::unexpected<Error> wrong_type(const Record& record, std::string_view wanted) {
  return fail(Code::kRecordTooShort, record_type_name(record.type), record.file_offset,
              fmt::format("this record is no {}", wanted));
}

}  // namespace

std::string hex(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(bytes.size() * 2, '0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    text[2 * i] = kDigits[bytes[i] >> 4U];
    text[2 * i + 1] = kDigits[bytes[i] & 15U];
  }
  return text;
}

Result<MmapRecord> parse_mmap(const Record& record) {
  if (record.type != perf::kMmap && record.type != perf::kMmap2) return wrong_type(record, "MMAP");
  Reader in = body_of(record);
  MmapRecord r;
  r.is_mmap2 = record.type == perf::kMmap2;
  r.pid = in.s32();
  r.tid = in.s32();
  r.addr = in.u64();
  r.len = in.u64();
  r.pgoff = in.u64();
  r.executable = (record.misc & kMiscBit13) == 0;
  if (r.is_mmap2) {
    if ((record.misc & kMiscBit14) != 0) {
      const uint8_t size = in.u8();
      in.skip(3);
      const auto id = in.take(20);
      if (in.ok()) r.build_id = hex(id.first(std::min<size_t>(size, id.size())));
    } else {
      r.maj = in.u32();
      r.min = in.u32();
      r.inode = in.u64();
      r.inode_generation = in.u64();
    }
    r.prot = in.u32();
    r.flags = in.u32();
    r.executable = (r.prot & kProtExec) != 0;
  }
  if (!in.ok()) return too_short(record, "its fields");
  r.filename = in.text(in.left());
  return r;
}

Result<CommRecord> parse_comm(const Record& record) {
  if (record.type != perf::kComm) return wrong_type(record, "COMM");
  Reader in = body_of(record);
  CommRecord r;
  r.pid = in.s32();
  r.tid = in.s32();
  if (!in.ok()) return too_short(record, "pid and tid");
  r.comm = in.text(in.left());
  r.exec = (record.misc & kMiscBit13) != 0;
  return r;
}

Result<TaskRecord> parse_task(const Record& record) {
  if (record.type != perf::kFork && record.type != perf::kExit) return wrong_type(record, "FORK or EXIT");
  Reader in = body_of(record);
  TaskRecord r;
  r.pid = in.s32();
  r.ppid = in.s32();
  r.tid = in.s32();
  r.ptid = in.s32();
  r.time = in.u64();
  r.exec = record.type == perf::kFork && (record.misc & kMiscBit13) != 0;
  if (!in.ok()) return too_short(record, "pids and time");
  return r;
}

Result<KsymbolRecord> parse_ksymbol(const Record& record) {
  if (record.type != perf::kKsymbol) return wrong_type(record, "KSYMBOL");
  Reader in = body_of(record);
  KsymbolRecord r;
  r.addr = in.u64();
  r.len = in.u32();
  r.kind = in.u16();
  r.unregister = (in.u16() & 1U) != 0;
  if (!in.ok()) return too_short(record, "address, length and flags");
  r.name = in.text(in.left());
  return r;
}

Result<BpfEventRecord> parse_bpf_event(const Record& record) {
  if (record.type != perf::kBpfEvent) return wrong_type(record, "BPF_EVENT");
  Reader in = body_of(record);
  BpfEventRecord r;
  r.kind = in.u16();
  r.flags = in.u16();
  r.id = in.u32();
  const auto tag = in.take(r.tag.size());
  if (!in.ok()) return too_short(record, "id and tag");
  std::copy(tag.begin(), tag.end(), r.tag.begin());
  return r;
}

Result<TextPokeRecord> parse_text_poke(const Record& record) {
  if (record.type != perf::kTextPoke) return wrong_type(record, "TEXT_POKE");
  Reader in = body_of(record);
  TextPokeRecord r;
  r.addr = in.u64();
  const uint16_t old_len = in.u16(), new_len = in.u16();
  if (!in.ok()) return too_short(record, "address and lengths");
  r.old_bytes = in.take(old_len);
  r.new_bytes = in.take(new_len);
  if (!in.ok()) return too_short(record, fmt::format("{} old and {} new bytes", old_len, new_len));
  // The kernel pads to eight bytes. More than that after the bytes means that the lengths are damaged.
  if (in.left() >= 8) {
    return fail(Code::kRecordTooShort, record_type_name(record.type), record.file_offset,
                fmt::format("record of {} bytes is too long for {} old and {} new bytes", record.bytes.size(),
                            old_len, new_len));
  }
  return r;
}

Result<SwitchRecord> parse_switch(const Record& record) {
  if (record.type != perf::kSwitch && record.type != perf::kSwitchCpuWide)
    return wrong_type(record, "SWITCH");
  SwitchRecord r;
  r.out = (record.misc & kMiscBit13) != 0;
  r.preempted = r.out && (record.misc & kMiscBit14) != 0;
  r.cpu_wide = record.type == perf::kSwitchCpuWide;
  if (!r.cpu_wide) return r;
  Reader in = body_of(record);
  r.next_prev_pid = in.s32();
  r.next_prev_tid = in.s32();
  if (!in.ok()) return too_short(record, "pid and tid");
  return r;
}

Result<TaskIdRecord> parse_itrace_start(const Record& record) {
  if (record.type != perf::kItraceStart) return wrong_type(record, "ITRACE_START");
  Reader in = body_of(record);
  TaskIdRecord r;
  r.pid = in.s32();
  r.tid = in.s32();
  if (!in.ok()) return too_short(record, "pid and tid");
  return r;
}

Result<LostRecord> parse_lost(const Record& record) {
  if (record.type != perf::kLost && record.type != perf::kLostSamples) return wrong_type(record, "LOST");
  Reader in = body_of(record);
  LostRecord r;
  if (record.type == perf::kLost) r.id = in.u64();
  r.lost = in.u64();
  if (!in.ok()) return too_short(record, "the count");
  return r;
}

Result<AuxRecord> parse_aux(const Record& record) {
  if (record.type != perf::kAux) return wrong_type(record, "AUX");
  Reader in = body_of(record);
  AuxRecord r;
  r.offset = in.u64();
  r.size = in.u64();
  r.flags = in.u64();
  if (!in.ok()) return too_short(record, "offset, size and flags");
  r.id = record.id;
  r.file_offset = record.file_offset;
  return r;
}

Result<NamespacesRecord> parse_namespaces(const Record& record) {
  if (record.type != perf::kNamespaces) return wrong_type(record, "NAMESPACES");
  Reader in = body_of(record);
  NamespacesRecord r;
  r.pid = in.s32();
  r.tid = in.s32();
  const uint64_t count = in.u64();
  if (!in.ok() || count > in.left() / 16) return too_short(record, fmt::format("{} namespaces", count));
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t dev = in.u64();
    r.links.push_back({dev, in.u64()});
  }
  return r;
}

Result<CgroupRecord> parse_cgroup(const Record& record) {
  if (record.type != perf::kCgroup) return wrong_type(record, "CGROUP");
  Reader in = body_of(record);
  CgroupRecord r;
  r.id = in.u64();
  if (!in.ok()) return too_short(record, "the id");
  r.path = in.text(in.left());
  return r;
}

Result<ThrottleRecord> parse_throttle(const Record& record) {
  if (record.type != perf::kThrottle && record.type != perf::kUnthrottle)
    return wrong_type(record, "THROTTLE");
  Reader in = body_of(record);
  ThrottleRecord r;
  r.time = in.u64();
  r.id = in.u64();
  r.stream_id = in.u64();
  if (!in.ok()) return too_short(record, "time and ids");
  return r;
}

Result<uint64_t> parse_aux_output_hw_id(const Record& record) {
  if (record.type != perf::kAuxOutputHwId) return wrong_type(record, "AUX_OUTPUT_HW_ID");
  Reader in = body_of(record);
  const uint64_t id = in.u64();
  if (!in.ok()) return too_short(record, "the id");
  return id;
}

}  // namespace asof
