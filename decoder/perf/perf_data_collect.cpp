// What is kept of the records on opening. Threads read parts of them; what depends on the records before it is
// held, and taken in file order.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "decoder/io/in_order.h"
#include "decoder/perf/perf_data_impl.h"
#include "decoder/perf/records.h"

namespace asof {

namespace {

constexpr int kFeatureTracingData = 1;

bool known_type(uint32_t type) {
  return type != 0 && type < perf::kTypeEnd &&
         (type <= perf::kCallchainDeferred || type >= perf::kUserTypeStart);
}

struct Held {
  Record record;
  std::span<const uint8_t> payload;
  const perf::RecordFault* fault;
};

struct CollectedPart {
  std::map<uint32_t, uint64_t> counts;
  std::vector<AuxRecord> aux;
  std::vector<Held> held;
};

bool matters(const Record& record) {
  switch (record.type) {
    case perf::kSample:
      return record.id.attr != nullptr && (record.id.attr->sample_type & kSampleAux) != 0;
    case perf::kAuxtrace:
    case perf::kAuxtraceInfo:
    case perf::kTimeConv:
    case perf::kIdIndex:
    case perf::kHeaderBuildId:
    case perf::kEventUpdate:
    case perf::kHeaderTracingData:
      return true;
    default:
      return !known_type(record.type);
  }
}

CollectedPart read_part(PerfData::Impl& impl, size_t part) {
  CollectedPart out;
  std::array<uint64_t, perf::kTypeEnd> counts{};
  impl.walk_part(part,
                 [&](const Record& record, std::span<const uint8_t> payload, const perf::RecordFault* fault) {
                   ++(record.type < counts.size() ? counts[record.type] : out.counts[record.type]);
                   bool held = fault != nullptr || matters(record);
                   if (record.type == perf::kAux) {
                     if (const auto parsed = parse_aux(record))
                       out.aux.push_back(*parsed);
                     else
                       held = true;
                   }
                   if (held) out.held.push_back({record, payload, fault});
                   return true;
                 });
  for (uint32_t type = 0; type < counts.size(); ++type) {
    if (counts[type] == 0) continue;
    out.counts[type] = counts[type];
    impl.parts[part].types.set(type);
  }
  return out;
}

// Keeps what PerfData offers besides the records themselves.
class Collector {
 public:
  explicit Collector(PerfData::Impl& impl) : impl_(impl) {}

  void take(const Held& held) {
    const auto& [record, payload, fault] = held;
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

  // Sound ones are taken by read_part().
  void aux(const Record& record) {
    if (const auto parsed = parse_aux(record); !parsed)
      note(Notice::Severity::kError, Code::kRecordTooShort, record, parsed.error().reason);
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
  in_order(
      parts.size(), [this](size_t part) { return read_part(*this, part); },
      [&](CollectedPart part) {
        for (const auto& [type, count] : part.counts) record_counts[type] += count;
        aux_records.insert(aux_records.end(), part.aux.begin(), part.aux.end());
        for (const Held& held : part.held) collector.take(held);
      });
  for (const perf::Source& source : sources) {
    for (const auto& chunk : source.unpacked.chunks) ++record_counts[chunk.type];
  }
  collector.place_samples();
  collector.finish();
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

}  // namespace asof
