// PerfDataWriter: the bodies of header features (tools/perf/util/header.c).
#include <algorithm>

#include "tests/support/perf_data_writer.h"
#include "textstore/check.h"

namespace asof::test {

namespace {
constexpr int kBuildIdFeature = 2, kNrCpusFeature = 7, kCmdlineFeature = 11, kEventDescFeature = 12,
              kPmuMappingsFeature = 16, kSampleTimeFeature = 21, kBpfProgInfoFeature = 25,
              kBpfBtfFeature = 26;
constexpr uint64_t kJitedInsnsBit = 1 << 0, kJitedKsymsBit = 1 << 3, kJitedFuncLensBit = 1 << 4,
                   kProgTagsBit = 1 << 8;
}  // namespace

void PerfDataWriter::feature(int bit, std::vector<uint8_t> content) { features_[bit] = std::move(content); }

void PerfDataWriter::put_string(ByteSink& s, std::string_view text) const {
  const size_t length = (text.size() + 1 + 63) / 64 * 64;
  s.u32(static_cast<uint32_t>(length));
  s.text(text);
  s.zeros(length - text.size());
}

void PerfDataWriter::feature_string(int bit, std::string_view text) {
  ByteSink s = body();
  put_string(s, text);
  feature(bit, std::move(s).take());
}

void PerfDataWriter::nr_cpus(uint32_t n) {
  ByteSink s = body();
  s.u32(n), s.u32(n);
  feature(kNrCpusFeature, std::move(s).take());
}

void PerfDataWriter::command_line(std::span<const std::string> words) {
  ByteSink s = body();
  s.u32(static_cast<uint32_t>(words.size()));
  for (const auto& w : words) put_string(s, w);
  feature(kCmdlineFeature, std::move(s).take());
}

void PerfDataWriter::sample_time(uint64_t first, uint64_t last) {
  ByteSink s = body();
  s.u64(first), s.u64(last);
  feature(kSampleTimeFeature, std::move(s).take());
}

void PerfDataWriter::pmu_mappings(std::span<const std::pair<uint32_t, std::string>> pmus) {
  ByteSink s = body();
  s.u32(static_cast<uint32_t>(pmus.size()));
  for (const auto& [type, name] : pmus) s.u32(type), put_string(s, name);
  feature(kPmuMappingsFeature, std::move(s).take());
}

void PerfDataWriter::event_desc() {
  ByteSink s = body();
  s.u32(static_cast<uint32_t>(attrs_.size()));
  s.u32(attrs_.empty() ? 128 : attrs_.front().size);
  for (const AttrSpec& a : attrs_) {
    put_attr(s, a);
    s.u32(static_cast<uint32_t>(a.ids.size()));
    put_string(s, a.name);
    for (const uint64_t id : a.ids) s.u64(id);
  }
  feature(kEventDescFeature, std::move(s).take());
}

void PerfDataWriter::bpf_prog_info(std::span<const BpfProgSpec> programs) {
  ByteSink s = body();
  s.u32(static_cast<uint32_t>(programs.size()));
  for (const BpfProgSpec& p : programs) {
    const auto count = static_cast<uint32_t>(p.functions.size());
    ByteSink data = body();
    for (const auto& f : p.functions) data.raw(f.bytes);
    const auto jited_len = static_cast<uint32_t>(data.size());
    data.align(8);
    const uint64_t ksyms_at = data.size();
    for (const auto& f : p.functions) data.u64(f.address);
    const uint64_t lens_at = data.size();
    for (const auto& f : p.functions) data.u32(static_cast<uint32_t>(f.bytes.size()));
    data.align(8);
    const uint64_t tags_at = data.size();
    for (const auto& f : p.functions) data.raw(f.tag);

    ByteSink info = body();                                      // struct bpf_prog_info, offsets in comments
    info.u32(p.type), info.u32(p.id), info.raw(p.tag);           // 0
    info.u32(jited_len), info.u32(0), info.u64(0), info.u64(0);  // 16: jited, xlated
    info.u64(p.load_time), info.u32(0), info.u32(0), info.u64(0);  // 40: load time, uid, maps
    const size_t name_len = std::min<size_t>(p.name.size(), 15);
    info.text(std::string_view(p.name).substr(0, name_len)), info.zeros(16 - name_len);  // 64
    info.zeros(24);                                // 80: ifindex, gpl, netns
    info.u32(count), info.u32(count);              // 104
    info.u64(ksyms_at), info.u64(lens_at);         // 112
    info.u32(p.btf_id), info.u32(0), info.u64(0);  // 128
    info.zeros(180 - info.size());
    info.u32(count), info.u64(tags_at);  // 180
    ASOF_CHECK(p.info_len >= info.size());
    info.zeros(p.info_len - info.size());

    s.u32(p.info_len), s.u32(static_cast<uint32_t>(data.size()));
    s.u64(kJitedInsnsBit | kJitedKsymsBit | kJitedFuncLensBit | kProgTagsBit);
    s.raw(info.bytes());
    s.raw(data.bytes());
  }
  feature(kBpfProgInfoFeature, std::move(s).take());
}

void PerfDataWriter::bpf_btf(std::span<const std::pair<uint32_t, std::vector<uint8_t>>> btf) {
  ByteSink s = body();
  s.u32(static_cast<uint32_t>(btf.size()));
  for (const auto& [id, content] : btf)
    s.u32(id), s.u32(static_cast<uint32_t>(content.size())), s.raw(content);
  feature(kBpfBtfFeature, std::move(s).take());
}

void PerfDataWriter::build_ids(std::span<const BuildIdSpec> entries) {
  PerfDataWriter scratch(options_);
  for (const auto& e : entries) scratch.build_id_record(e.pid, e.misc, e.id, e.filename);
  ByteSink s = body();
  for (const Item& item : scratch.items_) s.raw(item.record);
  feature(kBuildIdFeature, std::move(s).take());
}

}  // namespace asof::test
