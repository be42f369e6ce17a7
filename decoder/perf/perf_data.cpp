#include "decoder/perf/perf_data.h"

#include <fmt/format.h>

#include <filesystem>

#include "decoder/perf/perf_data_impl.h"

namespace asof {

void perf::NoticeList::add(Notice notice) {
  constexpr size_t kListed = 24;  // of one code; after that only counted
  Tally& tally = tallies_[notice.code];
  if (tally.listed < kListed) {
    ++tally.listed;
    tally.last = notices_.size();
    notices_.push_back(std::move(notice));
    return;
  }
  Notice& last = notices_[tally.last];
  if (tally.listed++ == kListed) last.reason += " (the last of its kind that is listed, more are counted)";
  last.count += notice.count;
}

void PerfData::Impl::note(Notice::Severity severity, Code code, const std::string& where, uint64_t offset,
                          std::string reason, std::string hint) {
  Notice notice;
  notice.severity = severity;
  notice.code = code;
  notice.where = where;
  notice.offset = offset;
  notice.reason = std::move(reason);
  notice.hint = std::move(hint);
  notices.add(std::move(notice));
}

PerfData::PerfData(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PerfData::~PerfData() = default;

Result<std::shared_ptr<const PerfData>> PerfData::open(const std::string& path, uint64_t part_bytes) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  std::error_code error;
  if (path != "-" && std::filesystem::is_directory(path, error)) impl->directory = path;
  const std::string file_path = impl->directory.empty() ? path : path + "/data";
  if (auto done = impl->open_source(file_path); !done) return std::unexpected(done.error());
  if (!impl->directory.empty()) {
    if (auto done = impl->open_stream_files(); !done) return std::unexpected(done.error());
  }
  for (perf::Source& source : impl->sources) {
    if (auto done = impl->scan(source); !done) return std::unexpected(done.error());
  }
  if (impl->attrs.empty()) {
    impl->note(Notice::Severity::kError, Code::kBadAttributes, file_path, 0,
               "the file has no event attributes: times, CPUs and threads of its records are unknown");
  }
  impl->ids = perf::IdParser(impl->attrs);
  impl->read_features();
  impl->find_parts(part_bytes);
  impl->collect();
  impl->notice_list = impl->notices.take();
  return std::shared_ptr<const PerfData>(new PerfData(std::move(impl)));
}

std::span<const PerfAttr> PerfData::attrs() const { return impl_->attrs; }
std::span<const AuxBuffer> PerfData::aux_buffers() const { return impl_->aux_buffers; }
std::span<const AuxRecord> PerfData::aux_records() const { return impl_->aux_records; }
const std::optional<AuxtraceInfo>& PerfData::auxtrace_info() const { return impl_->auxtrace_info; }
const std::optional<TimeConvRecord>& PerfData::time_conv() const { return impl_->time_conv; }
std::span<const BpfImage> PerfData::bpf_images() const { return impl_->bpf_images; }
std::span<const std::pair<uint32_t, std::span<const uint8_t>>> PerfData::bpf_btf() const {
  return impl_->bpf_btf;
}
std::span<const BuildIdEntry> PerfData::build_ids() const { return impl_->build_ids; }
std::span<const PerfData::IdIndex> PerfData::id_index() const { return impl_->id_index; }
std::span<const std::pair<uint32_t, std::string>> PerfData::pmu_mappings() const {
  return impl_->pmu_mappings;
}
const std::optional<ClockData>& PerfData::clock_data() const { return impl_->clock_data; }
const std::map<uint32_t, uint64_t>& PerfData::record_counts() const { return impl_->record_counts; }
std::span<const Notice> PerfData::notices() const { return impl_->notice_list; }
std::span<const PassedOver> PerfData::passed_over() const { return impl_->passed_over; }
bool PerfData::may_go_on() const { return impl_->may_go_on; }
const std::string& PerfData::path() const { return impl_->path; }
const std::string& PerfData::directory() const { return impl_->directory; }
bool PerfData::swapped() const { return impl_->swapped; }

std::span<const uint8_t> PerfData::feature(int bit) const {
  const auto it = impl_->features.find(bit);
  return it == impl_->features.end() ? std::span<const uint8_t>() : it->second.bytes;
}

}  // namespace asof
