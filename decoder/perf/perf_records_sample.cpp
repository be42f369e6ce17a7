// The body of a SAMPLE. Order of its fields: include/uapi/linux/perf_event.h (PERF_RECORD_SAMPLE),
// kernel/events/core.c perf_output_sample(), tools/perf/util/evsel.c evsel__parse_sample().
#include <fmt/format.h>

#include <bit>

#include "decoder/perf/full_sample.h"
#include "decoder/perf/perf_data_impl.h"

namespace asof {
namespace {

constexpr uint64_t kBranchHwIndex = 1U << 17, kBranchCounters = 1U << 19;  // branch_sample_type
constexpr uint64_t kReadEnabled = 1, kReadRunning = 2, kReadId = 4, kReadGroup = 8, kReadLost = 16;
constexpr uint64_t kWord = sizeof(uint64_t);

void skip_read(Reader& in, uint64_t format) {
  const auto times = static_cast<uint64_t>(std::popcount(format & (kReadEnabled | kReadRunning)));
  const auto per_value = 1 + static_cast<uint64_t>(std::popcount(format & (kReadId | kReadLost)));
  if ((format & kReadGroup) == 0) return in.skip((times + per_value) * kWord);
  const uint64_t count = in.u64();
  in.skip(times * kWord);
  if (count > in.left() / kWord) return in.skip(UINT64_MAX);
  in.skip(count * per_value * kWord);
}

// `count` elements of `size` bytes, however large a count a file gives.
std::span<const uint8_t> take_array(Reader& in, uint64_t count, uint64_t size) {
  return in.take(count > in.left() / size ? UINT64_MAX : count * size);
}

void read_regs(Reader& in, uint64_t mask, FullSample::Registers& out) {
  out.abi = in.u64();
  if (out.abi != 0) out.values = in.take(static_cast<uint64_t>(std::popcount(mask)) * kWord);
}

void read_branch_stack(Reader& in, uint64_t branch_type, SampleRecord& r) {
  constexpr uint64_t kEntry = 24;
  const uint64_t count = in.u64();
  if ((branch_type & kBranchHwIndex) != 0) in.skip(kWord);
  r.branch_stack = take_array(in, count, kEntry);
  if ((branch_type & kBranchCounters) != 0) take_array(in, count, kWord);
}

}  // namespace

Result<FullSample> parse_full_sample(const Record& record) {
  const PerfAttr* attr = record.id.attr;
  if (record.type != perf::kSample || attr == nullptr) {
    return fail(Code::kRecordTooShort, record_type_name(record.type), record.file_offset,
                "no SAMPLE of a known attribute");
  }
  const uint64_t type = attr->sample_type;
  const auto has = [type](uint64_t bit) { return (type & bit) != 0; };
  Reader in(record.body, record.swapped);
  FullSample r;
  if (has(kSampleIdentifier)) in.skip(kWord);
  if (has(kSampleIp)) r.ip = in.u64();
  if (has(kSampleTid)) in.skip(kWord);
  if (has(kSampleTime)) in.skip(kWord);
  if (has(kSampleAddr)) r.addr = in.u64();
  if (has(kSampleIdField)) in.skip(kWord);
  if (has(kSampleStreamId)) in.skip(kWord);
  if (has(kSampleCpu)) in.skip(kWord);
  if (has(kSamplePeriod)) r.period = in.u64();
  if (has(kSampleRead)) skip_read(in, attr->read_format);
  if (has(kSampleCallchain)) {
    r.callchain = take_array(in, in.u64(), kWord);
    r.callchain_size = static_cast<uint32_t>(r.callchain.size() / kWord);
  }
  if (has(kSampleRaw)) r.raw = in.take(in.u32());
  if (has(kSampleBranchStack)) read_branch_stack(in, attr->branch_sample_type, r);
  if (has(kSampleRegsUser)) read_regs(in, attr->sample_regs_user, r.user_registers);
  if (has(kSampleStackUser)) {
    if (const uint64_t size = in.u64(); size != 0) {
      in.skip(size);
      in.skip(kWord);
    }
  }
  if (has(kSampleWeight | kSampleWeightStruct)) r.weight = in.u64();
  if (has(kSampleDataSrc)) in.skip(kWord);
  if (has(kSampleTransaction)) in.skip(kWord);
  if (has(kSampleRegsIntr)) read_regs(in, attr->sample_regs_intr, r.interrupted_registers);
  if (has(kSamplePhysAddr)) r.phys_addr = in.u64();
  if (has(kSampleCgroup)) r.cgroup = in.u64();
  if (has(kSampleDataPageSize)) r.data_page_size = in.u64();
  if (has(kSampleCodePageSize)) r.code_page_size = in.u64();
  if (has(kSampleAux)) r.aux = in.take(in.u64());
  if (!in.ok()) {
    return fail(
        Code::kRecordTooShort, "SAMPLE", record.file_offset,
        fmt::format("record of {} bytes is too short for the fields of its attribute", record.bytes.size()));
  }
  return r;
}

Result<SampleRecord> parse_sample(const Record& record) {
  const auto sample = parse_full_sample(record);
  return sample ? Result<SampleRecord>(*sample) : std::unexpected(sample.error());
}

}  // namespace asof
