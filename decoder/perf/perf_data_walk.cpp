// Second pass: records with their ids, in file order, COMPRESSED ones in place; and what is kept of them on
// opening.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/perf/perf_data_impl.h"
#include "decoder/perf/records.h"

namespace asof {

using perf::RawRecord;

namespace {

constexpr int kFeatureTracingData = 1;

// Reads through one source. Unpacked records have a cursor of their own, moved on by each COMPRESSED record.
class Walker {
 public:
  Walker(const perf::Source& source, uint32_t file, bool swapped, const perf::IdParser& ids,
         const PerfData::Impl::Visit& visit)
      : source_(source), file_(file), swapped_(swapped), ids_(ids), visit_(visit) {}

  bool run() {
    const auto bytes = source_.bytes();
    for (const perf::Stretch& stretch : source_.stretches) {
      for (uint64_t pos = stretch.begin; pos < stretch.end;) {
        const RawRecord raw = perf::read_raw(bytes, pos, stretch.end, swapped_, true);
        const uint64_t after = pos + raw.size;
        const uint64_t payload = std::min(raw.payload, stretch.end - after);
        if (raw.type == perf::kCompressed || raw.type == perf::kCompressed2) {
          if (!unpacked(pos)) return false;
        } else if (!give(bytes.subspan(pos, raw.size), raw, pos, Error::kNoOffset,
                         bytes.subspan(after, payload))) {
          return false;
        }
        pos = after + payload;
      }
    }
    return true;
  }

 private:
  bool give(std::span<const uint8_t> bytes, const RawRecord& raw, uint64_t file_offset,
            uint64_t unpacked_offset, std::span<const uint8_t> payload) {
    Record record;
    record.type = raw.type;
    record.misc = raw.misc;
    record.bytes = bytes;
    record.file_offset = file_offset;
    record.unpacked_offset = unpacked_offset;
    record.file = file_;
    record.swapped = swapped_;
    const perf::RecordFault* fault = ids_.parse(record);
    return visit_(record, payload, fault);
  }

  // Delivers what the COMPRESSED record at file_offset completes.
  bool unpacked(uint64_t file_offset) {
    const perf::Unpacked& all = source_.unpacked;
    if (chunk_ >= all.chunks.size() || all.chunks[chunk_].file_offset != file_offset) return true;
    const uint64_t end = all.chunks[chunk_++].end;
    const auto bytes = all.file->bytes();
    while (stretch_ < all.stretches.size()) {
      const perf::Stretch& stretch = all.stretches[stretch_];
      pos_ = std::max(pos_, stretch.begin);
      while (pos_ < stretch.end) {
        const RawRecord raw = perf::read_raw(bytes, pos_, stretch.end, swapped_, false);
        if (pos_ + raw.size > end) return true;
        if (!give(bytes.subspan(pos_, raw.size), raw, file_offset, pos_, {})) return false;
        pos_ += raw.size;
      }
      ++stretch_;
    }
    return true;
  }

  const perf::Source& source_;
  uint32_t file_;
  bool swapped_;
  const perf::IdParser& ids_;
  const PerfData::Impl::Visit& visit_;
  size_t chunk_ = 0, stretch_ = 0;
  uint64_t pos_ = 0;  // in the unpacked bytes
};

bool known_type(uint32_t type) {
  return type != 0 && type < perf::kTypeEnd &&
         (type <= perf::kCallchainDeferred || type >= perf::kUserTypeStart);
}

}  // namespace

void PerfData::Impl::walk(const Visit& visit) const {
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!Walker(sources[i], static_cast<uint32_t>(i), swapped, ids, visit).run()) return;
  }
}

// Attributes of a pipe come as records; their ids fill the rest of it.
void PerfData::Impl::add_header_attr(std::span<const uint8_t> body, const perf::Source& source,
                                     uint64_t file_offset) {
  Reader in = reader(body);
  in.skip(4);
  const uint32_t stated = in.u32();
  const uint64_t size = stated == 0 ? perf::kAttrMinSize : stated;
  in = reader(body);
  const auto bytes = in.take(size);
  auto attr = in.ok() ? read_attr(bytes) : std::nullopt;
  if (!attr) {
    note(Notice::Severity::kError, Code::kBadAttributes, source.path, file_offset,
         fmt::format("HEADER_ATTR: an attribute of {} bytes does not fit", size));
    return;
  }
  while (in.left() >= sizeof(uint64_t)) attr->ids.push_back(in.u64());
  attrs.push_back(std::move(*attr));
}

namespace {

// Keeps what PerfData offers besides the records themselves.
class Collector {
 public:
  explicit Collector(PerfData::Impl& impl) : impl_(impl) {}

  bool take(const Record& record, std::span<const uint8_t> payload, const perf::RecordFault* fault) {
    ++impl_.record_counts[record.type];
    if (fault != nullptr) note(Notice::Severity::kError, fault->code, record, fault->reason);
    switch (record.type) {
      case perf::kAux:
        aux(record);
        break;
      case perf::kSample:
        sample(record);
        break;
      case perf::kAuxtrace:
        auxtrace(record, payload);
        break;
      case perf::kAuxtraceInfo:
        keep(record, parse_auxtrace_info(record), impl_.auxtrace_info);
        break;
      case perf::kTimeConv:
        keep(record, parse_time_conv(record), impl_.time_conv);
        break;
      case perf::kIdIndex:
        id_index(record);
        break;
      case perf::kHeaderBuildId:
        impl_.add_build_id(record.bytes, record.file_offset);
        break;
      case perf::kEventUpdate:
        event_update(record);
        break;
      case perf::kHeaderTracingData:  // of a pipe: what files have as a feature
        impl_.features.try_emplace(kFeatureTracingData,
                                   perf::FeatureBody{payload, record.file_offset + record.bytes.size()});
        break;
      default:
        if (!known_type(record.type)) ++unknown_[record.type];
    }
    return true;
  }

  void finish() {
    for (const auto& [type, count] : unknown_) {
      Notice notice;
      notice.code = Code::kUnknownRecordsSkipped;
      notice.where = impl_.path;
      notice.reason = fmt::format("records of type {} are not known and were skipped", type);
      notice.count = count;
      impl_.notices.add(std::move(notice));
    }
  }

 private:
  void note(Notice::Severity severity, Code code, const Record& record, std::string reason) {
    impl_.note(severity, code, impl_.sources[record.file].path, record.file_offset,
               fmt::format("{}: {}", record_type_name(record.type), reason));
  }

  // The first one counts, as in perf.
  template <class T>
  void keep(const Record& record, Result<T> parsed, std::optional<T>& to) {
    if (!parsed) {
      note(Notice::Severity::kError, Code::kRecordTooShort, record, parsed.error().reason);
    } else if (!to) {
      to = std::move(*parsed);
    }
  }

  void aux(const Record& record) {
    auto parsed = parse_aux(record);
    if (!parsed) return note(Notice::Severity::kError, Code::kRecordTooShort, record, parsed.error().reason);
    impl_.aux_records.push_back(*parsed);
  }

  void sample(const Record& record) {
    if (record.id.attr == nullptr || (record.id.attr->sample_type & kSampleAux) == 0) return;
    auto parsed = parse_sample(record);
    if (!parsed) return note(Notice::Severity::kError, Code::kRecordTooShort, record, parsed.error().reason);
    if (parsed->aux.empty()) return;
    AuxBuffer buffer;
    buffer.cpu = record.id.cpu;
    buffer.tid = record.id.tid;
    buffer.bytes = parsed->aux;
    buffer.file_offset = record.file_offset;
    if (record.unpacked_offset == Error::kNoOffset) {
      buffer.file_offset += static_cast<uint64_t>(parsed->aux.data() - record.bytes.data());
    }
    buffer.sample_time = record.time();
    samples_.emplace_back(impl_.aux_buffers.size(), record.id.id);
    impl_.aux_buffers.push_back(buffer);
  }

  void auxtrace(const Record& record, std::span<const uint8_t> payload) {
    if (record.bytes.size() < perf::kAuxtraceSize || record.unpacked_offset != Error::kNoOffset) {
      return note(Notice::Severity::kError, Code::kBadAuxtrace, record,
                  "too short, or packed: its payload is not taken");
    }
    Reader in(record.body, record.swapped);
    in.skip(8);  // size: what exists of it is `payload`
    AuxBuffer buffer;
    buffer.offset = in.u64();
    buffer.reference = in.u64();
    buffer.idx = in.u32();
    buffer.tid = in.s32();
    buffer.cpu = in.s32();
    buffer.bytes = payload;
    buffer.file_offset = record.file_offset + record.bytes.size();
    impl_.aux_buffers.push_back(buffer);
  }

  void id_index(const Record& record) {
    Reader in(record.body, record.swapped);
    const uint64_t count = in.u64();
    for (uint64_t i = 0; i < count; ++i) {
      PerfData::IdIndex entry{};
      entry.id = in.u64();
      entry.idx = in.u64();
      entry.cpu = static_cast<int32_t>(in.u64());
      entry.tid = static_cast<int32_t>(in.u64());
      if (!in.ok()) {
        return note(Notice::Severity::kError, Code::kRecordTooShort, record,
                    fmt::format("says {} entries, has {}", count, i));
      }
      impl_.id_index.push_back(entry);
    }
  }

  void event_update(const Record& record) {
    constexpr uint64_t kName = 2;
    Reader in(record.body, record.swapped);
    const uint64_t kind = in.u64(), id = in.u64();
    if (!in.ok() || kind != kName) return;
    const std::string name(in.text(in.left()));
    if (const PerfAttr* attr = impl_.ids.find(id); attr != nullptr) {
      impl_.attrs[static_cast<size_t>(attr - impl_.attrs.data())].name = name;
    }
  }

 public:
  // AUX samples name their queue by the event's id.
  void place_samples() {
    std::unordered_map<uint64_t, uint64_t> queue_of;
    for (const auto& entry : impl_.id_index) queue_of.emplace(entry.id, entry.idx);
    for (const auto& [index, id] : samples_) {
      AuxBuffer& buffer = impl_.aux_buffers[index];
      const auto found = queue_of.find(id);
      const int32_t own = buffer.cpu >= 0 ? buffer.cpu : buffer.tid;
      buffer.idx =
          found != queue_of.end() ? static_cast<uint32_t>(found->second) : static_cast<uint32_t>(own);
    }
  }

 private:
  PerfData::Impl& impl_;
  std::map<uint32_t, uint64_t> unknown_;
  std::vector<std::pair<size_t, uint64_t>> samples_;  // buffer, id
};

}  // namespace

void PerfData::Impl::collect() {
  Collector collector(*this);
  walk([&](const Record& record, std::span<const uint8_t> payload, const perf::RecordFault* fault) {
    return collector.take(record, payload, fault);
  });
  for (const perf::Source& source : sources) {
    for (const auto& chunk : source.unpacked.chunks) ++record_counts[chunk.type];
  }
  collector.place_samples();
  collector.finish();
}

}  // namespace asof
