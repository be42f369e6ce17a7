// Which attribute a record belongs to, and its id fields. include/uapi/linux/perf_event.h (sample_id_all,
// SAMPLE), tools/perf/util/evsel.c (__evsel__sample_id_pos, __evsel__id_pos), evlist.c (evlist__event2evsel).
#include <algorithm>
#include <bit>

#include "decoder/perf/perf_data_impl.h"
#include "decoder/perf/records.h"

namespace asof::perf {
namespace {

constexpr uint64_t kTrailerFields =
    kSampleTid | kSampleTime | kSampleIdField | kSampleStreamId | kSampleCpu | kSampleIdentifier;

constexpr RecordFault kShortSample = {Code::kRecordTooShort,
                                      "it is shorter than the fields its attribute says"};
constexpr RecordFault kShortTrailer = {Code::kRecordTooShort, "it is shorter than the id fields at its end"};
constexpr RecordFault kUnknownId = {Code::kUnknownEventId, "no attribute has its event id"};

// Tools write 0 and ~0 into records that they synthesise.
Time time_of(uint64_t ns) {
  if (ns == 0 || ns == UINT64_MAX) return kTimeMin;
  return static_cast<Time>(std::min<uint64_t>(ns, INT64_MAX));
}

// The fields in the order of the record's end, for sample_type.
void read_trailer(Reader in, uint64_t type, SampleId& id) {
  if ((type & kSampleTid) != 0) {
    id.pid = in.s32();
    id.tid = in.s32();
  }
  if ((type & kSampleTime) != 0) id.time = time_of(in.u64());
  if ((type & kSampleIdField) != 0) id.id = in.u64();
  if ((type & kSampleStreamId) != 0) in.skip(8);
  if ((type & kSampleCpu) != 0) {
    id.cpu = in.s32();
    in.skip(4);
  }
  if ((type & kSampleIdentifier) != 0) id.id = in.u64();
}

// The same fields in the body of a SAMPLE.
bool read_sample(Reader in, uint64_t type, SampleId& id) {
  if ((type & kSampleIdentifier) != 0) id.id = in.u64();
  if ((type & kSampleIp) != 0) in.skip(8);
  if ((type & kSampleTid) != 0) {
    id.pid = in.s32();
    id.tid = in.s32();
  }
  if ((type & kSampleTime) != 0) id.time = time_of(in.u64());
  if ((type & kSampleAddr) != 0) in.skip(8);
  if ((type & kSampleIdField) != 0) id.id = in.u64();
  if ((type & kSampleStreamId) != 0) in.skip(8);
  if ((type & kSampleCpu) != 0) {
    id.cpu = in.s32();
    in.skip(4);
  }
  return in.ok();
}

size_t trailer_size(uint64_t type) {
  return sizeof(uint64_t) * static_cast<size_t>(std::popcount(type & kTrailerFields));
}

// The size of the fixed fields of records that may be longer than their contents; 0: of no such record.
size_t own_fields(const Record& record, std::span<const uint8_t> body) {
  constexpr size_t kNameAt = 16, kPokeBytesAt = 12;
  const auto aligned = [](size_t n) { return (n + 7) / 8 * 8; };
  if (record.type == kBpfEvent) return 16;
  if (record.type == kKsymbol && body.size() > kNameAt) {
    const auto name = body.subspan(kNameAt);
    return kNameAt + aligned(static_cast<size_t>(std::ranges::find(name, 0) - name.begin()) + 1);
  }
  if (record.type != kTextPoke || body.size() < kPokeBytesAt) return 0;
  Reader in(body, record.swapped);
  in.skip(8);
  const uint16_t old_len = in.u16(), new_len = in.u16();
  return aligned(kPokeBytesAt + old_len + new_len);
}

}  // namespace

// The kernel makes KSYMBOL, BPF_EVENT and TEXT_POKE records longer for each event that listens to them, and
// writes the id fields after the fields (kernel/events/core.c, perf_event_ksymbol_output() and its like do
// not set the size back). A known event id there shows that this is so; lengths of a TEXT_POKE may be
// damaged, so there must be none at the end.
std::span<const uint8_t> IdParser::without_rest(const Record& record, std::span<const uint8_t> body) const {
  const size_t fields = own_fields(record, body);
  const size_t end = fields + trailer_size(attrs_.front().sample_type);
  const size_t id_at = size_t{8} * offsets_.front().trailer;
  if (fields == 0 || offsets_.front().trailer == IdOffsets::kNone || end >= body.size()) return body;
  const auto known_id = [&](size_t size) {
    Reader in(body, record.swapped);
    in.seek(size - id_at);
    return find(in.u64()) != nullptr;
  };
  if (!known_id(end) || (record.type == kTextPoke && known_id(body.size()))) return body;
  return body.first(end);
}

IdParser::IdOffsets IdParser::offsets_of(const PerfAttr& attr) {
  const uint64_t type = attr.sample_type;
  IdOffsets offsets;
  if ((type & kSampleIdentifier) != 0) return {0, 1};
  if ((type & kSampleIdField) == 0) return offsets;
  offsets.sample =
      static_cast<uint8_t>(std::popcount(type & (kSampleIp | kSampleTid | kSampleTime | kSampleAddr)));
  offsets.trailer = static_cast<uint8_t>(1 + std::popcount(type & (kSampleStreamId | kSampleCpu)));
  return offsets;
}

IdParser::IdParser(std::span<const PerfAttr> attrs) : attrs_(attrs) {
  for (size_t i = 0; i < attrs.size(); ++i) {
    offsets_.push_back(offsets_of(attrs[i]));
    if (std::find(distinct_offsets_.begin(), distinct_offsets_.end(), offsets_[i]) ==
        distinct_offsets_.end()) {
      distinct_offsets_.push_back(offsets_[i]);
    }
    for (const uint64_t id : attrs[i].ids) by_id_.emplace(id, static_cast<uint32_t>(i));
  }
}

// With one attribute there is no choice. Otherwise the id decides, read where its attribute puts it. perf
// requires the same offsets of all attributes; here every pair in use is tried, and the attribute found must
// have that pair.
const PerfAttr* IdParser::attr_of(const Record& record, std::span<const uint8_t> body,
                                  bool& unknown_id) const {
  if (attrs_.size() == 1) return attrs_.data();
  uint64_t first_id = 0;
  for (const IdOffsets& offsets : distinct_offsets_) {
    const uint8_t word = record.type == kSample ? offsets.sample : offsets.trailer;
    if (word == IdOffsets::kNone) continue;
    Reader in(body, record.swapped);
    const uint64_t bytes = uint64_t{word} * sizeof(uint64_t);
    if (record.type != kSample && bytes > body.size()) continue;
    in.seek(record.type == kSample ? bytes : body.size() - bytes);
    const uint64_t id = in.u64();
    if (!in.ok() || id == 0) continue;
    if (first_id == 0) first_id = id;
    const auto found = by_id_.find(id);
    if (found != by_id_.end() && offsets_[found->second] == offsets) return &attrs_[found->second];
  }
  // Records the tool made up have id 0, and the layout of the first attribute.
  unknown_id = first_id != 0;
  return attrs_.data();
}

const RecordFault* IdParser::parse(Record& record) const {
  auto body = record.bytes.subspan(kHeaderSize);
  record.body = body;
  record.id = {};
  if (record.type >= kUserTypeStart || attrs_.empty()) return nullptr;
  const bool all = (attrs_.front().flags & kAttrSampleIdAll) != 0;
  if (record.type != kSample && !all) return nullptr;
  if (record.type != kSample) body = without_rest(record, body);
  bool unknown_id = false;
  const PerfAttr* attr = attr_of(record, body, unknown_id);
  const uint64_t type = attr->sample_type;
  if (record.type == kSample) {
    if (!read_sample(Reader(body, record.swapped), type, record.id)) return &kShortSample;
  } else {
    const size_t size = trailer_size(type);
    if (size > body.size()) return &kShortTrailer;
    record.body = body.first(body.size() - size);
    const auto trailer = body.subspan(body.size() - size);
    const bool blank = std::all_of(trailer.begin(), trailer.end(), [](uint8_t b) { return b == 0; });
    if (!blank) {
      read_trailer(Reader(trailer, record.swapped), type, record.id);
    } else if ((type & kSampleTime) != 0) {
      record.id.time = kTimeMin;  // made up by the tool: nothing else in it means anything
    }
  }
  record.id.attr = unknown_id ? nullptr : attr;
  return unknown_id ? &kUnknownId : nullptr;
}

}  // namespace asof::perf
