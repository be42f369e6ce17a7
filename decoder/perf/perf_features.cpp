// Bodies of header features, and HEADER_BUILD_ID records, which have the layout of feature 2's entries.
// tools/perf/util/header.c (process_*, __event_process_build_id), Documentation/perf.data-file-format.txt.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/perf/perf_data_impl.h"
#include "decoder/perf/records.h"

namespace asof {
namespace {

// do_read_string(): a length, that many bytes, NUL-terminated and padded within.
std::string_view read_string(Reader& in) { return in.text(in.u32()); }

}  // namespace

void PerfData::Impl::read_features() {
  if (const auto it = features.find(perf::kFeatureClockData); it != features.end()) {
    Reader in = reader(it->second.bytes);
    ClockData clock;
    in.skip(4);  // version
    clock.clockid = in.u32();
    clock.time_of_day_ns = in.u64();
    clock.clock_ns = in.u64();
    if (in.ok()) clock_data = clock;
    if (!in.ok()) {
      note(Notice::Severity::kError, Code::kBadFeature, path, it->second.file_offset,
           "feature CLOCK_DATA is too short");
    }
  }
  if (const auto it = features.find(perf::kFeaturePmuMappings); it != features.end()) {
    Reader in = reader(it->second.bytes);
    for (uint32_t left = in.u32(); left != 0; --left) {
      const uint32_t type = in.u32();
      const std::string_view name = read_string(in);
      if (!in.ok()) {
        note(Notice::Severity::kError, Code::kBadFeature, path, it->second.file_offset,
             fmt::format("feature PMU_MAPPINGS ends {} entries early", left));
        break;
      }
      pmu_mappings.emplace_back(type, name);
    }
  }
  read_event_desc();
  read_build_ids();
  read_bpf_images();
  read_bpf_btf();
}

void PerfData::Impl::read_event_desc() {
  const auto it = features.find(perf::kFeatureEventDesc);
  if (it == features.end()) return;
  Reader in = reader(it->second.bytes);
  const uint32_t count = in.u32(), attr_size = in.u32();
  for (uint32_t i = 0; i < count; ++i) {
    in.skip(attr_size);
    const uint32_t nr_ids = in.u32();
    const std::string_view name = read_string(in);
    const uint64_t first_id = nr_ids != 0 ? in.u64() : 0;
    if (nr_ids > 1) in.skip((uint64_t{nr_ids} - 1) * sizeof(uint64_t));
    if (!in.ok()) {
      note(Notice::Severity::kError, Code::kBadFeature, path, it->second.file_offset,
           fmt::format("feature EVENT_DESC ends after {} of {} events", i, count));
      return;
    }
    const PerfAttr* of_id = nr_ids != 0 ? ids.find(first_id) : nullptr;
    if (of_id != nullptr) {
      attrs[static_cast<size_t>(of_id - attrs.data())].name = name;
    } else if (i < attrs.size() && attrs[i].name.empty()) {
      attrs[i].name = name;
    }
  }
}

// s32 pid, id of 20 bytes, its size if bit 15 of misc says so, filename.
void PerfData::Impl::add_build_id(std::span<const uint8_t> record, uint64_t file_offset) {
  constexpr uint16_t kMiscSize = 1U << 15;
  constexpr size_t kIdSize = 20;
  Reader in = reader(record);
  in.skip(4);
  BuildIdEntry entry;
  entry.misc = in.u16();
  in.skip(2);
  entry.pid = in.s32();
  const auto id = in.take(kIdSize);
  const uint8_t size = in.u8();
  in.skip(3);
  if (!in.ok()) {
    note(Notice::Severity::kError, Code::kBadFeature, path, file_offset, "build-id entry is too short");
    return;
  }
  const size_t used = (entry.misc & kMiscSize) != 0 ? std::min<size_t>(size, kIdSize) : kIdSize;
  entry.build_id = hex(id.first(used));
  entry.filename = in.text(in.left());
  build_ids.push_back(std::move(entry));
}

void PerfData::Impl::read_build_ids() {
  const auto it = features.find(perf::kFeatureBuildId);
  if (it == features.end()) return;
  const auto bytes = it->second.bytes;
  for (uint64_t pos = 0; pos < bytes.size();) {
    Reader in = reader(bytes.subspan(pos));
    in.skip(6);
    const uint16_t size = in.u16();
    if (!in.ok() || size < perf::kHeaderSize || size > bytes.size() - pos) {
      note(Notice::Severity::kError, Code::kBadFeature, path, it->second.file_offset + pos,
           fmt::format("feature BUILD_ID: entry of {} bytes, {} are left", size, bytes.size() - pos));
      return;
    }
    add_build_id(bytes.subspan(pos, size), it->second.file_offset + pos);
    pos += size;
  }
}

std::string PerfData::feature_string(int bit) const {
  Reader in = impl_->reader(feature(bit));
  return std::string(read_string(in));
}

std::vector<std::string> PerfData::command_line() const {
  std::vector<std::string> words;
  Reader in = impl_->reader(feature(perf::kFeatureCmdline));
  for (uint32_t left = in.u32(); left != 0 && in.ok(); --left) {
    const std::string_view word = read_string(in);
    if (in.ok()) words.emplace_back(word);
  }
  return words;
}

uint32_t PerfData::nr_cpus() const {
  Reader in = impl_->reader(feature(perf::kFeatureNrCpus));
  in.skip(4);  // configured
  return in.u32();
}

}  // namespace asof
