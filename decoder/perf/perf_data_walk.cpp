// Second pass: records with their ids, in file order, COMPRESSED ones in place. It can begin and end at any
// cursor, so that several threads read parts of it.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/perf/perf_data_impl.h"

namespace asof {

using perf::RawRecord;

namespace {

// Reads through one source. Unpacked records have a cursor of their own, moved on by each COMPRESSED record.
// `give` gets each record's header and bytes.
template <class Give>
class Walker {
 public:
  Walker(const perf::Source& source, bool swapped, const perf::Cursor& from, Give& give)
      : source_(source), swapped_(swapped), at_(from), give_(give) {}

  // Until `end`, or until give() returns false: then the result is false.
  bool run(const perf::Cursor& end) {
    const auto bytes = source_.bytes();
    if (at_.chunk > 0 && !unpacked(end)) return false;
    for (; at_.stretch < source_.stretches.size(); ++at_.stretch, at_.pos = 0) {
      const perf::Stretch& stretch = source_.stretches[at_.stretch];
      at_.pos = std::max(at_.pos, stretch.begin);
      while (at_.pos < stretch.end) {
        if (reached(end)) return true;
        const RawRecord raw = perf::read_raw(bytes, at_.pos, stretch.end, swapped_, true);
        const uint64_t pos = at_.pos, after = pos + raw.size;
        const uint64_t payload = std::min(raw.payload, stretch.end - after);
        at_.pos = after + payload;
        if (raw.type == perf::kCompressed || raw.type == perf::kCompressed2) {
          if (next_chunk(pos) && !unpacked(end)) return false;
        } else if (!give_(raw, bytes.subspan(pos, raw.size), pos, Error::kNoOffset,
                          bytes.subspan(after, payload))) {
          return false;
        }
      }
    }
    return true;
  }

  const perf::Cursor& at() const { return at_; }

 private:
  bool reached(const perf::Cursor& end) const {
    return at_.stretch > end.stretch || (at_.stretch == end.stretch && at_.pos >= end.pos);
  }

  bool next_chunk(uint64_t file_offset) {
    const auto& chunks = source_.unpacked.chunks;
    if (at_.chunk >= chunks.size() || chunks[at_.chunk].file_offset != file_offset) return false;
    ++at_.chunk;
    return true;
  }

  // Delivers what the last COMPRESSED record completes, as far as that was not done.
  bool unpacked(const perf::Cursor& end) {
    const perf::Unpacked& all = source_.unpacked;
    const perf::Unpacked::Chunk& chunk = all.chunks[at_.chunk - 1];
    const auto bytes = all.file->bytes();
    while (at_.unpacked_stretch < all.stretches.size()) {
      const perf::Stretch& stretch = all.stretches[at_.unpacked_stretch];
      at_.unpacked_pos = std::max(at_.unpacked_pos, stretch.begin);
      while (at_.unpacked_pos < stretch.end) {
        const uint64_t pos = at_.unpacked_pos;
        if (at_.chunk == end.chunk && pos >= end.unpacked_pos) return true;
        const RawRecord raw = perf::read_raw(bytes, pos, stretch.end, swapped_, false);
        if (pos + raw.size > chunk.end) return true;
        at_.unpacked_pos += raw.size;
        if (!give_(raw, bytes.subspan(pos, raw.size), chunk.file_offset, pos, {})) return false;
      }
      ++at_.unpacked_stretch;
    }
    return true;
  }

  const perf::Source& source_;
  bool swapped_;
  perf::Cursor at_;
  Give& give_;
};

perf::Cursor end_of_source(const perf::Source& source) {
  perf::Cursor end;
  end.stretch = source.stretches.size();
  end.chunk = SIZE_MAX;
  return end;
}

// Makes records of headers, with their ids, for visit().
template <class Visit>
auto giver(const PerfData::Impl& impl, size_t source, const Visit& visit, const perf::TypeSet* wanted) {
  return [&impl, source, &visit, wanted](const RawRecord& raw, std::span<const uint8_t> bytes,
                                         uint64_t file_offset, uint64_t unpacked_offset,
                                         std::span<const uint8_t> payload) {
    if (wanted != nullptr && (raw.type >= wanted->size() || !wanted->test(raw.type))) return true;
    Record record;
    record.type = raw.type;
    record.misc = raw.misc;
    record.bytes = bytes;
    record.file_offset = file_offset;
    record.unpacked_offset = unpacked_offset;
    record.file = static_cast<uint32_t>(source);
    record.swapped = impl.swapped;
    const perf::RecordFault* fault = impl.ids.parse(record);
    return visit(record, payload, fault);
  };
}

// False: visit() returned false.
template <class Visit>
bool walk_records(const PerfData::Impl& impl, const perf::Part& part, const Visit& visit,
                  const perf::TypeSet* wanted = nullptr) {
  auto give = giver(impl, part.source, visit, wanted);
  return Walker(impl.sources[part.source], impl.swapped, part.begin, give).run(part.end);
}

// Of what is visited, the record alone.
auto records_to(const std::function<bool(const Record&)>& visit) {
  return [&visit](const Record& record, std::span<const uint8_t>, const perf::RecordFault*) {
    return visit(record);
  };
}

}  // namespace

void PerfData::Impl::walk_part(size_t part, const Visit& visit) const {
  walk_records(*this, parts[part], visit);
}

void PerfData::for_each(const std::function<bool(const Record&)>& visit) const {
  for (const perf::Part& part : impl_->parts) {
    if (!walk_records(*impl_, part, records_to(visit))) return;
  }
}

void PerfData::for_each(std::initializer_list<uint32_t> types,
                        const std::function<bool(const Record&)>& visit) const {
  perf::TypeSet wanted;
  for (const uint32_t type : types) wanted.set(type);
  for (const perf::Part& part : impl_->parts) {
    if ((part.types & wanted).any() && !walk_records(*impl_, part, records_to(visit), &wanted)) return;
  }
}

size_t PerfData::parts() const { return impl_->parts.size(); }

void PerfData::for_each_in(size_t part, const std::function<bool(const Record&)>& visit) const {
  walk_records(*impl_, impl_->parts[part], records_to(visit));
}

// Only headers are read here.
void PerfData::Impl::find_parts(uint64_t part_bytes) {
  for (size_t i = 0; i < sources.size(); ++i) {
    uint64_t taken = 0;
    auto give = [&](const RawRecord& raw, std::span<const uint8_t>, uint64_t, uint64_t,
                    std::span<const uint8_t>) {
      taken += raw.size;
      return taken < part_bytes;
    };
    const perf::Cursor end = end_of_source(sources[i]);
    perf::Part part{.source = i, .begin = {}, .end = {}, .types = {}};
    Walker walker(sources[i], swapped, {}, give);
    while (!walker.run(end)) {
      part.end = walker.at();
      parts.push_back(part);
      part.begin = part.end;
      taken = 0;
    }
    part.end = end;
    parts.push_back(part);
  }
}

}  // namespace asof
