// PerfDataWriter: records of the kernel and of the tool.
#include <algorithm>

#include "tests/support/perf_data_writer.h"
#include "textstore/check.h"

namespace asof::test {

namespace {

constexpr uint32_t kMmapType = 1, kLostType = 2, kCommType = 3, kExitType = 4, kForkType = 7, kSampleType = 9,
                   kMmap2Type = 10, kAuxType = 11, kItraceStartType = 12, kLostSamplesType = 13,
                   kSwitchType = 14, kSwitchCpuWideType = 15, kKsymbolType = 17, kBpfEventType = 18,
                   kTextPokeType = 20, kBuildIdType = 67, kFinishedRoundType = 68, kIdIndexType = 69,
                   kAuxtraceInfoType = 70, kAuxtraceType = 71, kThreadMapType = 73, kTimeConvType = 79,
                   kFinishedInitType = 82;
constexpr uint16_t kMiscKernel = 1, kMiscUser = 2, kMiscBit13 = 1 << 13, kMiscBit14 = 1 << 14,
                   kMiscBit15 = 1 << 15;

}  // namespace

void PerfDataWriter::mmap(const MmapSpec& m, const Trailer& t) {
  ByteSink s = body();
  s.u32(static_cast<uint32_t>(m.pid)), s.u32(static_cast<uint32_t>(m.tid));
  s.u64(m.addr), s.u64(m.len), s.u64(m.pgoff);
  s.c_string(m.filename, 8);
  emit(kMmapType, m.kernel ? kMiscKernel : kMiscUser, s, t);
}

void PerfDataWriter::mmap2(const MmapSpec& m, const Trailer& t) {
  ByteSink s = body();
  s.u32(static_cast<uint32_t>(m.pid)), s.u32(static_cast<uint32_t>(m.tid));
  s.u64(m.addr), s.u64(m.len), s.u64(m.pgoff);
  if (m.build_id.empty()) {
    s.u32(8), s.u32(1), s.u64(1), s.u64(0);  // device 8:1, inode 1
  } else {
    ASOF_CHECK(m.build_id.size() <= 20);
    s.u8(static_cast<uint8_t>(m.build_id.size())), s.u8(0), s.u16(0);
    s.raw(m.build_id), s.zeros(20 - m.build_id.size());
  }
  s.u32(m.prot), s.u32(m.flags);
  s.c_string(m.filename, 8);
  const uint16_t mode = m.kernel ? kMiscKernel : kMiscUser;
  emit(kMmap2Type, static_cast<uint16_t>(mode | (m.build_id.empty() ? 0 : kMiscBit14)), s, t);
}

void PerfDataWriter::lost(uint64_t id, uint64_t count, const Trailer& t) {
  ByteSink s = body();
  s.u64(id), s.u64(count);
  emit(kLostType, 0, s, t);
}

void PerfDataWriter::lost_samples(uint64_t count, const Trailer& t) {
  ByteSink s = body();
  s.u64(count);
  emit(kLostSamplesType, 0, s, t);
}

void PerfDataWriter::comm(int32_t pid, int32_t tid, std::string_view name, bool exec, const Trailer& t) {
  ByteSink s = body();
  s.u32(static_cast<uint32_t>(pid)), s.u32(static_cast<uint32_t>(tid));
  s.c_string(name, 8);
  emit(kCommType, static_cast<uint16_t>(kMiscUser | (exec ? kMiscBit13 : 0)), s, t);
}

void PerfDataWriter::fork(int32_t pid, int32_t ppid, int32_t tid, int32_t ptid, const Trailer& t) {
  ByteSink s = body();
  for (const int32_t v : {pid, ppid, tid, ptid}) s.u32(static_cast<uint32_t>(v));
  s.u64(t.time);
  emit(kForkType, 0, s, t);
}

void PerfDataWriter::exit(int32_t pid, int32_t ppid, int32_t tid, int32_t ptid, const Trailer& t) {
  ByteSink s = body();
  for (const int32_t v : {pid, ppid, tid, ptid}) s.u32(static_cast<uint32_t>(v));
  s.u64(t.time);
  emit(kExitType, 0, s, t);
}

void PerfDataWriter::aux(uint64_t offset, uint64_t size, uint64_t flags, const Trailer& t) {
  ByteSink s = body();
  s.u64(offset), s.u64(size), s.u64(flags);
  emit(kAuxType, 0, s, t);
}

void PerfDataWriter::itrace_start(int32_t pid, int32_t tid, const Trailer& t) {
  ByteSink s = body();
  s.u32(static_cast<uint32_t>(pid)), s.u32(static_cast<uint32_t>(tid));
  emit(kItraceStartType, 0, s, t);
}

void PerfDataWriter::context_switch(bool out, bool preempted, const Trailer& t) {
  const uint16_t misc = static_cast<uint16_t>((out ? kMiscBit13 : 0) | (out && preempted ? kMiscBit14 : 0));
  emit(kSwitchType, misc, body(), t);
}

void PerfDataWriter::context_switch_cpu_wide(bool out, bool preempted, int32_t pid, int32_t tid,
                                             const Trailer& t) {
  ByteSink s = body();
  s.u32(static_cast<uint32_t>(pid)), s.u32(static_cast<uint32_t>(tid));
  const uint16_t misc = static_cast<uint16_t>((out ? kMiscBit13 : 0) | (out && preempted ? kMiscBit14 : 0));
  emit(kSwitchCpuWideType, misc, s, t);
}

void PerfDataWriter::ksymbol(uint64_t addr, uint32_t len, uint16_t type, uint16_t flags,
                             std::string_view name, const Trailer& t) {
  ByteSink s = body();
  s.u64(addr), s.u32(len), s.u16(type), s.u16(flags);
  s.c_string(name, 8);
  emit(kKsymbolType, 0, s, t);
}

void PerfDataWriter::bpf_event(uint16_t type, uint32_t id, const std::array<uint8_t, 8>& tag,
                               const Trailer& t) {
  ByteSink s = body();
  s.u16(type), s.u16(0), s.u32(id);
  s.raw(tag);
  emit(kBpfEventType, 0, s, t);
}

void PerfDataWriter::text_poke(uint64_t addr, std::span<const uint8_t> old_bytes,
                               std::span<const uint8_t> new_bytes, const Trailer& t) {
  ByteSink s = body();
  s.u64(addr);
  s.u16(static_cast<uint16_t>(old_bytes.size())), s.u16(static_cast<uint16_t>(new_bytes.size()));
  s.raw(old_bytes), s.raw(new_bytes);
  s.align(8);
  emit(kTextPokeType, kMiscKernel, s, t);
}

void PerfDataWriter::sample(const SampleSpec& v) {
  const AttrSpec& a = attrs_.at(v.attr);
  const uint64_t id = id_of({.cpu = v.cpu, .attr = v.attr, .has_id = true});
  ByteSink s = body();
  if (a.sample_type & sample::kIdentifier) s.u64(id);
  if (a.sample_type & sample::kIp) s.u64(v.ip);
  if (a.sample_type & sample::kTid) s.u32(static_cast<uint32_t>(v.pid)), s.u32(static_cast<uint32_t>(v.tid));
  if (a.sample_type & sample::kTime) s.u64(v.time);
  if (a.sample_type & sample::kAddr) s.u64(v.addr);
  if (a.sample_type & sample::kId) s.u64(id);
  if (a.sample_type & sample::kStreamId) s.u64(v.stream_id);
  if (a.sample_type & sample::kCpu) s.u32(v.cpu), s.u32(0);
  if (a.sample_type & sample::kPeriod) s.u64(v.period);
  if (a.sample_type & sample::kAux) {
    s.u64((v.aux.size() + 7) / 8 * 8);
    s.raw(v.aux);
    s.align(8);
  }
  emit(kSampleType, v.misc, s);
}

void PerfDataWriter::auxtrace_info(uint32_t type, std::span<const uint64_t> priv, std::string_view filter) {
  ByteSink s = body();
  s.u32(type), s.u32(0);
  for (const uint64_t v : priv) s.u64(v);
  if (!filter.empty()) s.c_string(filter, 8);
  emit(kAuxtraceInfoType, 0, s);
}

void PerfDataWriter::auxtrace_info(const PtInfoSpec& i) {
  ByteSink s = body();
  s.u32(1), s.u32(0);
  const uint64_t priv[] = {i.pmu_type,
                           i.time.shift,
                           i.time.mult,
                           i.time.zero,
                           i.time.cap_zero ? 1U : 0U,
                           pt_config_bit::kTsc,
                           pt_config_bit::kNoRetComp,
                           i.have_sched_switch,
                           i.snapshot ? 1U : 0U,
                           i.per_cpu ? 1U : 0U,
                           pt_config_bit::kMtc,
                           0x3c000,
                           i.tsc_ctc_n,
                           i.tsc_ctc_d,
                           pt_config_bit::kCyc,
                           i.max_nonturbo,
                           i.filter.size()};
  for (const uint64_t v : priv) s.u64(v);
  if (!i.filter.empty()) s.c_string(i.filter, 8);
  if (i.with_event_trace_word) s.u64(i.event_trace ? 1 : 0);
  emit(kAuxtraceInfoType, 0, s);
}

void PerfDataWriter::auxtrace(const AuxtraceSpec& a, std::span<const uint8_t> payload) {
  ByteSink padded = body();
  padded.raw(payload);
  padded.align(8);
  ByteSink s = body();
  s.u64(padded.size()), s.u64(a.offset), s.u64(a.reference);
  s.u32(a.idx), s.u32(static_cast<uint32_t>(a.tid)), s.u32(static_cast<uint32_t>(a.cpu)), s.u32(0);
  emit(kAuxtraceType, 0, s);
  items_.back().payload = std::move(padded).take();
}

void PerfDataWriter::time_conv(const TimeConvSpec& c, bool short_form) {
  ByteSink s = body();
  s.u64(c.shift), s.u64(c.mult), s.u64(c.zero);
  if (!short_form) {
    s.u64(c.cycles), s.u64(c.mask);
    s.u8(c.cap_zero), s.u8(c.cap_short), s.zeros(6);
  }
  emit(kTimeConvType, 0, s);
}

void PerfDataWriter::finished_round() { emit(kFinishedRoundType, 0, body()); }
void PerfDataWriter::finished_init() { emit(kFinishedInitType, 0, body()); }

void PerfDataWriter::id_index(std::span<const IdIndexEntry> entries) {
  ByteSink s = body();
  s.u64(entries.size());
  for (const auto& e : entries) {
    s.u64(e.id), s.u64(e.idx), s.u64(static_cast<uint64_t>(e.cpu)), s.u64(static_cast<uint64_t>(e.tid));
  }
  emit(kIdIndexType, 0, s);
}

void PerfDataWriter::thread_map(std::span<const std::pair<int32_t, std::string>> threads) {
  ByteSink s = body();
  s.u64(threads.size());
  for (const auto& [pid, comm] : threads) {
    s.u64(static_cast<uint64_t>(static_cast<int64_t>(pid)));
    const size_t n = std::min<size_t>(comm.size(), 15);
    s.text(std::string_view(comm).substr(0, n)), s.zeros(16 - n);
  }
  emit(kThreadMapType, 0, s);
}

void PerfDataWriter::build_id_record(int32_t pid, uint16_t misc, std::span<const uint8_t> id,
                                     std::string_view filename) {
  ASOF_CHECK(id.size() <= 20);
  ByteSink s = body();
  s.u32(static_cast<uint32_t>(pid));
  s.raw(id), s.zeros(20 - id.size());
  s.u8(static_cast<uint8_t>(id.size())), s.zeros(3);
  s.c_string(filename, 8);
  s.align(8);
  emit(kBuildIdType, static_cast<uint16_t>(misc | kMiscBit15), s);
}

}  // namespace asof::test
