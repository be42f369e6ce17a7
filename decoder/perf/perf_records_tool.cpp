// Contents of the records that perf itself writes (types from 64 on). tools/lib/perf/include/perf/event.h,
// tools/perf/util/intel-pt.c (intel_pt_process_auxtrace_info), cs-etm-base.c.
#include <fmt/format.h>

#include "decoder/perf/perf_data_impl.h"
#include "decoder/perf/records.h"

namespace asof {
namespace {

Reader body_of(const Record& record) { return Reader(record.body, record.swapped); }

std::unexpected<Error> unfit(const Record& record, std::string_view what) {
  return fail(Code::kRecordTooShort, record_type_name(record.type), record.file_offset,
              fmt::format("record of {} bytes: {}", record.bytes.size(), what));
}

}  // namespace

Result<AuxtraceErrorRecord> parse_auxtrace_error(const Record& record) {
  constexpr uint64_t kMessage = 64;
  if (record.type != perf::kAuxtraceError) return unfit(record, "no AUXTRACE_ERROR");
  Reader in = body_of(record);
  AuxtraceErrorRecord r;
  r.type = in.u32();
  r.code = in.u32();
  r.cpu = in.s32();
  r.pid = in.s32();
  r.tid = in.s32();
  const uint32_t format = in.u32();
  r.ip = in.u64();
  if (format >= 1) r.time = in.u64();
  if (!in.ok()) return unfit(record, "too short for its fields");
  r.message = in.text(std::min<uint64_t>(in.left(), kMessage));
  return r;
}

Result<ThreadMapRecord> parse_thread_map(const Record& record) {
  constexpr uint64_t kEntry = 24, kComm = 16;
  if (record.type != perf::kThreadMap) return unfit(record, "no THREAD_MAP");
  Reader in = body_of(record);
  const uint64_t count = in.u64();
  if (!in.ok() || count > in.left() / kEntry)
    return unfit(record, fmt::format("too short for {} threads", count));
  ThreadMapRecord r;
  for (uint64_t i = 0; i < count; ++i) {
    const auto pid = static_cast<int32_t>(in.u64());
    r.threads.push_back({pid, in.text(kComm)});
  }
  return r;
}

Result<CpuMapRecord> parse_cpu_map(const Record& record) {
  enum : uint16_t { kCpus = 0, kMask = 1, kRange = 2 };
  if (record.type != perf::kCpuMap) return unfit(record, "no CPU_MAP");
  Reader in = body_of(record);
  CpuMapRecord r;
  const uint16_t kind = in.u16();
  if (kind == kCpus) {
    for (uint16_t left = in.u16(); left != 0 && in.ok(); --left) r.cpus.push_back(in.u16());
  } else if (kind == kMask) {
    const uint16_t words = in.u16();
    const uint16_t word_size = in.u16();
    if (word_size == 8) in.skip(4);
    if (word_size != 4 && word_size != 8)
      return unfit(record, fmt::format("mask words of {} bytes", word_size));
    for (uint32_t i = 0; i < words && in.ok(); ++i) {
      const uint64_t mask = word_size == 8 ? in.u64() : in.u32();
      for (uint32_t bit = 0; bit < word_size * 8U; ++bit) {
        if (((mask >> bit) & 1U) != 0) r.cpus.push_back(i * word_size * 8U + bit);
      }
    }
  } else if (kind == kRange) {
    r.any = in.u8() != 0;
    in.skip(1);
    const uint16_t first = in.u16(), last = in.u16();
    if (in.ok()) {
      for (uint32_t cpu = first; cpu <= last; ++cpu) r.cpus.push_back(cpu);
    }
  } else {
    return unfit(record, fmt::format("unknown kind {} of CPU map", kind));
  }
  if (!in.ok()) return unfit(record, "too short for its CPUs");
  return r;
}

Result<AuxtraceInfo> parse_auxtrace_info(const Record& record) {
  constexpr size_t kFilterLength = 16;  // index in priv
  if (record.type != perf::kAuxtraceInfo) return unfit(record, "no AUXTRACE_INFO");
  Reader in = body_of(record);
  AuxtraceInfo r;
  r.file_offset = record.file_offset;
  r.type = in.u32();
  in.skip(4);
  if (!in.ok()) return unfit(record, "too short for its type");
  Reader words = in;
  while (words.left() >= sizeof(uint64_t)) r.priv.push_back(words.u64());
  if (r.type != perf::kAuxtraceIntelPt || r.priv.size() <= kFilterLength) return r;
  in.skip((kFilterLength + 1) * sizeof(uint64_t));
  if (const uint64_t length = r.priv[kFilterLength]; length != 0) {
    if (length >= in.left()) return unfit(record, fmt::format("too short for a filter of {} bytes", length));
    r.filter = in.text(length);
    in.skip(std::min<uint64_t>(8 - length % 8, in.left()));  // its NUL, and padding to 8
  }
  r.cap_event_trace = in.u64_or(0) != 0;
  return r;
}

Result<TimeConvRecord> parse_time_conv(const Record& record) {
  if (record.type != perf::kTimeConv) return unfit(record, "no TIME_CONV");
  Reader in = body_of(record);
  TimeConvRecord r;
  r.shift = in.u64();
  r.mult = in.u64();
  r.zero = in.u64();
  if (!in.ok()) return unfit(record, "too short for shift, mult and zero");
  if (in.left() < 3 * sizeof(uint64_t)) return r;  // before Linux 5.9
  r.cycles = in.u64();
  r.mask = in.u64();
  r.cap_zero = in.u8() != 0;
  r.cap_short = in.u8() != 0;
  return r;
}

}  // namespace asof
