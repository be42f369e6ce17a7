// Which attribute a record belongs to, and its id fields. include/uapi/linux/perf_event.h (sample_id_all,
// SAMPLE), tools/perf/util/evsel.c (__evsel__sample_id_pos, __evsel__id_pos), evlist.c (evlist__event2evsel).
#include <algorithm>
#include <bit>
#include <cstring>

#include "decoder/perf/perf_data_impl.h"
#include "decoder/perf/records.h"

namespace asof::perf {
namespace {

constexpr RecordFault kShortSample = {Code::kRecordTooShort,
                                      "it is shorter than the fields its attribute says"};
constexpr RecordFault kShortTrailer = {Code::kRecordTooShort, "it is shorter than the id fields at its end"};
constexpr RecordFault kUnknownId = {Code::kUnknownEventId, "no attribute has its event id"};

// Tools write 0 and ~0 into records that they synthesise.
Time time_of(uint64_t ns) {
  if (ns == 0 || ns == UINT64_MAX) return kTimeMin;
  return static_cast<Time>(std::min<uint64_t>(ns, INT64_MAX));
}

template <class T>
T load(const uint8_t* at, bool swap) {
  T value{};
  std::memcpy(&value, at, sizeof value);
  if (!swap) return value;
  if constexpr (sizeof value == sizeof(uint64_t)) {
    return __builtin_bswap64(value);
  } else {
    return static_cast<T>(__builtin_bswap32(static_cast<uint32_t>(value)));
  }
}

// The fields that all records have, in the body of a SAMPLE.
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

bool all_zero(const uint8_t* words, size_t size) {
  uint64_t any = 0;
  for (size_t at = 0; at < size; at += sizeof any) any |= load<uint64_t>(words + at, false);
  return any == 0;
}

// Kinds that may be longer than their contents.
bool may_have_rest(uint32_t type) { return type == kBpfEvent || type == kKsymbol || type == kTextPoke; }

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
  if (fields == 0) return body;
  const size_t end = fields + trailers_.front().size;
  const size_t id_at = size_t{8} * offsets_.front().trailer;
  if (offsets_.front().trailer == IdOffsets::kNone || end >= body.size()) return body;
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

IdParser::Trailer IdParser::trailer_of(uint64_t type) {
  Trailer out;
  const auto take = [&](uint64_t field, uint8_t& to) {
    if ((type & field) == 0) return;
    to = out.size;
    out.size = static_cast<uint8_t>(out.size + sizeof(uint64_t));
  };
  uint8_t unused = 0;
  take(kSampleTid, out.tid);
  take(kSampleTime, out.time);
  take(kSampleIdField, out.id);
  take(kSampleStreamId, unused);
  take(kSampleCpu, out.cpu);
  take(kSampleIdentifier, out.id);
  return out;
}

void IdParser::Trailer::read(const uint8_t* at, bool swap, SampleId& to) const {
  if (tid != kNone) {
    to.pid = load<int32_t>(at + tid, swap);
    to.tid = load<int32_t>(at + tid + sizeof(int32_t), swap);
  }
  if (time != kNone) to.time = time_of(load<uint64_t>(at + time, swap));
  if (id != kNone) to.id = load<uint64_t>(at + id, swap);
  if (cpu != kNone) to.cpu = load<int32_t>(at + cpu, swap);
}

IdParser::IdParser(std::span<const PerfAttr> attrs) : attrs_(attrs) {
  for (size_t i = 0; i < attrs.size(); ++i) {
    offsets_.push_back(offsets_of(attrs[i]));
    trailers_.push_back(trailer_of(attrs[i].sample_type));
    if (std::find(distinct_offsets_.begin(), distinct_offsets_.end(), offsets_[i]) ==
        distinct_offsets_.end()) {
      distinct_offsets_.push_back(offsets_[i]);
    }
    for (const uint64_t id : attrs[i].ids) by_id_.emplace(id, static_cast<uint32_t>(i));
  }
  index_ids();
}

void IdParser::index_ids() {
  constexpr uint64_t kMostNear = 1U << 16U;
  if (by_id_.empty()) return;
  uint64_t last = 0;
  first_id_ = UINT64_MAX;
  for (const auto& [id, attr] : by_id_) first_id_ = std::min(first_id_, id), last = std::max(last, id);
  if (last - first_id_ >= kMostNear) return;
  near_ids_.assign(last - first_id_ + 1, kNoAttr);
  for (const auto& [id, attr] : by_id_) near_ids_[id - first_id_] = attr;
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
    const size_t bytes = size_t{word} * sizeof(uint64_t);
    if (word == IdOffsets::kNone || bytes > body.size()) continue;
    const size_t at = record.type == kSample ? bytes : body.size() - bytes;
    if (body.size() - at < sizeof(uint64_t)) continue;
    const auto id = load<uint64_t>(body.data() + at, record.swapped);
    if (id == 0) continue;
    if (first_id == 0) first_id = id;
    const uint32_t found = index_of(id);
    if (found != kNoAttr && offsets_[found] == offsets) return &attrs_[found];
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
  if (may_have_rest(record.type)) body = without_rest(record, body);
  bool unknown_id = false;
  const PerfAttr* attr = attr_of(record, body, unknown_id);
  const uint64_t type = attr->sample_type;
  if (record.type == kSample) {
    if (!read_sample(Reader(body, record.swapped), type, record.id)) return &kShortSample;
  } else {
    const Trailer& trailer = trailers_[static_cast<size_t>(attr - attrs_.data())];
    if (trailer.size > body.size()) return &kShortTrailer;
    record.body = body.first(body.size() - trailer.size);
    const uint8_t* fields = body.data() + record.body.size();
    if (!all_zero(fields, trailer.size)) {
      trailer.read(fields, record.swapped, record.id);
    } else if ((type & kSampleTime) != 0) {
      record.id.time = kTimeMin;  // made up by the tool: nothing else in it means anything
    }
  }
  record.id.attr = unknown_id ? nullptr : attr;
  return unknown_id ? &kUnknownId : nullptr;
}

}  // namespace asof::perf
