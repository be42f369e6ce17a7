// First pass over a source: where its sound records lie. Everything a later pass relies on is checked here,
// so that a wrong size is met and reported once; after damage the scan continues at the next position that
// can only be a record.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "decoder/perf/perf_compressed.h"
#include "decoder/perf/perf_data_impl.h"

namespace asof::perf {

void read_payload_size(RawRecord& raw, std::span<const uint8_t> record, uint64_t room, bool swap) {
  Reader in(record.subspan(kHeaderSize), swap);
  if (raw.type == kAuxtrace && raw.size >= kAuxtraceSize) {
    raw.payload = in.u64();
  } else if (raw.type == kHeaderTracingData && raw.size >= kHeaderSize + sizeof(uint32_t)) {
    raw.payload = (uint64_t{in.u32()} + 7) & ~uint64_t{7};
  }
  if (raw.payload > room - raw.size) raw.fault = RawRecord::Fault::kPayloadPastEnd;
}

namespace {

// Finds where records start again after damage: where sound records follow each other, at the latest at an
// AUXTRACE record the file's index names, or at the bytes of a FINISHED_ROUND or AUXTRACE header.
class Resync {
 public:
  Resync(std::span<const uint8_t> bytes, uint64_t end, bool swap, bool payloads, std::vector<uint64_t> index)
      : bytes_(bytes), end_(end), swap_(swap), payloads_(payloads), index_(std::move(index)) {
    marks_[0] = {header_of(kFinishedRound, kHeaderSize), 0};
    marks_[1] = {header_of(kAuxtrace, kAuxtraceSize), 0};
    std::sort(index_.begin(), index_.end());
  }

  // Is there trace that the index names, and that is there, inside of [begin, end)? A record that runs over it has a
  // wrong size. `begin` never goes back by much.
  bool over_trace(uint64_t begin, uint64_t end) {
    while (at_ < index_.size() && index_[at_] <= begin) ++at_;
    if (at_ == index_.size() || index_[at_] >= end || index_[at_] >= end_) return false;
    return read_raw(bytes_, index_[at_], end_, swap_, payloads_).type == kAuxtrace && plausible(index_[at_]);
  }

  // `begin`: where the records start; all of them are aligned as it is.
  std::optional<uint64_t> next(uint64_t from, uint64_t begin) {
    if (from < looked_from_ || from > mark_) mark_ = next_mark(looked_from_ = from).value_or(end_);
    const uint64_t mark = mark_;
    for (uint64_t pos = from + ((begin - from) & (kAlignment - 1)); pos < mark; pos += kAlignment)
      if (leads_to(pos, mark, kChain, kAlignment)) return pos;
    return mark < end_ ? std::optional(mark) : std::nullopt;
  }

 private:
  struct Mark {
    std::array<uint8_t, kHeaderSize> bytes{};
    uint64_t known = 0;  // no occurrence in [searched from, known): keeps many searches linear together
    uint64_t searched = UINT64_MAX;
  };
  static constexpr uint64_t kMaxTries = 1U << 20;
  static constexpr int kFollowers = 3;
  static constexpr int kChain = 8;  // so many sound records in a row are no accident
  static constexpr uint64_t kAlignment = 8;

  std::optional<uint64_t> next_mark(uint64_t from) {
    for (uint64_t tries = 0; tries < kMaxTries && from < end_; ++tries) {
      uint64_t found = end_;
      const auto named = std::lower_bound(index_.begin(), index_.end(), from);
      if (named != index_.end()) found = std::min(found, *named);
      for (Mark& mark : marks_) found = std::min(found, find(mark, from));
      if (found >= end_) return std::nullopt;
      if (plausible(found)) return found;
      from = found + 1;
    }
    return std::nullopt;
  }

  std::array<uint8_t, kHeaderSize> header_of(uint32_t type, uint64_t size) const {
    std::array<uint8_t, kHeaderSize> header{};
    const bool big = swap_ == (std::endian::native == std::endian::little);
    for (size_t i = 0; i < 4; ++i) header[big ? 3 - i : i] = static_cast<uint8_t>(type >> (8 * i));
    for (size_t i = 0; i < 2; ++i) header[big ? 7 - i : 6 + i] = static_cast<uint8_t>(size >> (8 * i));
    return header;
  }

  uint64_t find(Mark& mark, uint64_t from) const {
    if (mark.searched <= from && mark.known >= from) return mark.known;
    const auto area = bytes_.subspan(from, end_ - from);
    const void* hit = ::memmem(area.data(), area.size(), mark.bytes.data(), mark.bytes.size());
    mark.searched = from;
    mark.known =
        hit == nullptr ? end_ : from + static_cast<uint64_t>(static_cast<const uint8_t*>(hit) - area.data());
    return mark.known;
  }

  // Do sound records lie one after another from here to `mark`, or `enough` of them?
  bool leads_to(uint64_t pos, uint64_t mark, int enough, uint64_t alignment) const {
    for (int i = 0; i < enough && pos != mark; ++i) {
      const RawRecord raw = read_raw(bytes_, pos, end_, swap_, payloads_);
      // The last payload of a cut file may extend past its end.
      if (raw.fault == RawRecord::Fault::kPayloadPastEnd) return i != 0 && raw.type == kAuxtrace;
      const bool known = raw.type != 0 && raw.type < kTypeEnd;
      if (raw.fault != RawRecord::Fault::kNone || !known || raw.size % alignment != 0) return false;
      pos += raw.size + raw.payload;
      if (pos > mark) return false;
    }
    return true;
  }

  bool plausible(uint64_t pos) const { return leads_to(pos, end_, kFollowers, 1); }

  std::span<const uint8_t> bytes_;
  uint64_t end_;
  bool swap_, payloads_;
  std::vector<uint64_t> index_;
  size_t at_ = 0;  // in index_: the first one behind where over_trace() looked last
  std::array<Mark, 2> marks_;
  // Of next_mark(): many faults in front of one mark look for it once.
  uint64_t looked_from_ = UINT64_MAX, mark_ = 0;
};

// Walks [begin, end) and cuts it into stretches. `visit` gets each sound record once, `lost` is called when
// bytes were passed over.
class Scanner {
 public:
  using Visit = std::function<Result<void>(const RawRecord&, uint64_t pos)>;
  using Damage = std::function<void(const RawRecord&, uint64_t pos, uint64_t resume)>;

  Scanner(std::span<const uint8_t> bytes, bool swap, bool payloads, Resync& resync)
      : bytes_(bytes), swap_(swap), payloads_(payloads), resync_(resync) {}

  Result<void> run(uint64_t begin, uint64_t end, std::vector<Stretch>& stretches, const Visit& visit,
                   const Damage& damage) {
    uint64_t start = begin, pos = begin;
    const auto close = [&](uint64_t at) {
      if (at > start) stretches.push_back({start, at});
    };
    while (pos < end) {
      RawRecord raw = read_raw(bytes_, pos, end, swap_, payloads_);
      const uint64_t payload = raw.fault == RawRecord::Fault::kNone ? raw.payload : 0;
      if (raw.fault != RawRecord::Fault::kTooSmall && resync_.over_trace(pos, pos + raw.size + payload))
        raw.fault = RawRecord::Fault::kOverTrace;
      const bool cut_payload = raw.fault == RawRecord::Fault::kPayloadPastEnd;
      if (raw.fault == RawRecord::Fault::kNone || cut_payload) {
        if (auto done = visit(raw, pos); !done) return done;
      }
      if (raw.fault == RawRecord::Fault::kNone) {
        pos += raw.size + raw.payload;
        continue;
      }
      const uint64_t resume =
          std::min(resync_.next(pos + (cut_payload ? raw.size : 1), begin).value_or(end), end);
      damage(raw, pos, resume);
      close(cut_payload ? resume : pos);
      start = pos = resume;
    }
    close(end);
    return {};
  }

 private:
  std::span<const uint8_t> bytes_;
  bool swap_, payloads_;
  Resync& resync_;
};

std::string say(const RawRecord& raw, uint64_t pos, uint64_t resume, uint64_t end) {
  std::string what;
  const std::string name = record_type_name(raw.type);
  switch (raw.fault) {
    case RawRecord::Fault::kTooSmall:
      what = fmt::format("record (type {}) says its size is {}, less than its header", name, raw.size);
      break;
    case RawRecord::Fault::kOverTrace:
      what = fmt::format("{} record of {} bytes runs over trace that the file's index names", name, raw.size);
      break;
    case RawRecord::Fault::kPayloadPastEnd:
      what = fmt::format("{} record says {} bytes follow it, {} are left", name, raw.payload,
                         end - pos - raw.size);
      break;
    default:
      what = end - pos < kHeaderSize
                 ? fmt::format("{} bytes are left, less than a record header", end - pos)
                 : fmt::format("{} record of {} bytes, but {} are left", name, raw.size, end - pos);
  }
  return resume < end ? fmt::format("{}; reading goes on {} bytes later", what, resume - pos) : what;
}

Code fault_code(RawRecord::Fault fault) {
  switch (fault) {
    case RawRecord::Fault::kTooSmall:
    case RawRecord::Fault::kOverTrace:
      return Code::kBadRecordHeader;
    case RawRecord::Fault::kPayloadPastEnd:
      return Code::kAuxtracePastEnd;
    default:
      return Code::kRecordTruncated;
  }
}

}  // namespace
}  // namespace asof::perf

namespace asof {

using perf::RawRecord;

namespace {

std::vector<uint64_t> auxtrace_index(const std::map<int, perf::FeatureBody>& features, bool swapped) {
  std::vector<uint64_t> offsets;
  const auto it = features.find(perf::kFeatureAuxtrace);
  if (it == features.end()) return offsets;
  Reader in(it->second.bytes, swapped);
  in.skip(8);
  while (in.ok() && in.left() >= 16) {
    offsets.push_back(in.u64());
    in.skip(8);
  }
  return offsets;
}

}  // namespace

// Many pieces are as good as one: whoever asks goes through all of them.
void PerfData::Impl::pass_over(const perf::Source& source, uint64_t begin, uint64_t end) {
  constexpr size_t kMost = 1000;
  const auto file = static_cast<uint32_t>(&source - sources.data());
  const bool same = !passed_over.empty() && passed_over.back().file == file;
  if (same && passed_over.back().begin <= begin &&
      (begin <= passed_over.back().end || passed_over.size() >= kMost)) {
    passed_over.back().end = std::max(passed_over.back().end, end);
  } else {
    passed_over.push_back({file, begin, end});
  }
}

namespace {

// Whether a pipe ends within a round: perf writes FINISHED_ROUND after all that it read from the rings, also the
// last time (tools/perf/builtin-record.c, record__mmap_read_evlist()). A recording of another origin has none.
class PipeEnd {
 public:
  void saw(uint32_t type) {
    if (type == perf::kFinishedRound) {
      rounds_ = true;
      open_ = false;
    } else if ((type < perf::kHeaderAttr && type != perf::kSample && type != perf::kLostSamples) ||
               type == perf::kAuxtrace || type == perf::kCompressed || type == perf::kCompressed2) {
      open_ = true;
    }
  }
  bool is_cut() const { return rounds_ && open_; }

 private:
  bool rounds_ = false, open_ = false;
};

}  // namespace

Result<void> PerfData::Impl::scan(perf::Source& source) {
  perf::Unpacker unpacker(source.path, notices);
  const auto bytes = source.bytes();
  const bool is_main = &source == &sources.front();
  perf::Resync resync(bytes, source.end, swapped, true,
                      is_main ? auxtrace_index(features, swapped) : std::vector<uint64_t>());
  PipeEnd pipe_end;
  const auto unpack = [&](const RawRecord& raw, std::span<const uint8_t> packed, uint64_t pos) {
    auto done = unpacker.feed(raw.type, packed, pos);
    if (unpacker.failed()) pass_over(source, pos, pos + 1);
    return done;
  };
  const auto visit = [&](const RawRecord& raw, uint64_t pos) -> Result<void> {
    const auto body = bytes.subspan(pos + perf::kHeaderSize, raw.size - perf::kHeaderSize);
    pipe_end.saw(raw.type);
    switch (raw.type) {
      case perf::kCompressed:
        return unpack(raw, body, pos);
      case perf::kCompressed2: {
        Reader in = reader(body);
        const auto packed = in.take(in.u64());
        if (in.ok()) return unpack(raw, packed, pos);
        note(Notice::Severity::kError, Code::kBadCompressedRecord, source.path, pos,
             "COMPRESSED2 record is shorter than its data");
        unpacker.lose();
        pass_over(source, pos, pos + 1);
        return {};
      }
      case perf::kHeaderAttr:
        add_header_attr(body, source, pos);
        return {};
      case perf::kHeaderFeature: {
        Reader in = reader(body);
        const uint64_t bit = in.u64();
        if (in.ok() && bit < perf::kFeatureBits && in.left() != 0) {
          features[static_cast<int>(bit)] = {in.rest(), pos + 16};
        }
        return {};
      }
      default:
        return {};
    }
  };
  const auto damage = [&](const RawRecord& raw, uint64_t pos, uint64_t resume) {
    note(Notice::Severity::kLoss, perf::fault_code(raw.fault), source.path, pos,
         perf::say(raw, pos, resume, source.end));
    unpacker.lose();
    pass_over(source, pos, resume < source.end ? resume : UINT64_MAX);
  };
  perf::Scanner scanner(bytes, swapped, true, resync);
  if (auto done = scanner.run(source.begin, source.end, source.stretches, visit, damage); !done) return done;
  // While it is recorded, whoever reads knows how far the records are complete.
  const bool ends = pipe && is_main && !(path == "-" && FileBytes::standard_input_goes_on());
  may_go_on = may_go_on || (ends && !pipe_end.is_cut());
  if (ends && pipe_end.is_cut()) {
    note(Notice::Severity::kLoss, Code::kPerfDataTruncated, source.path, source.end,
         "the pipe ends within a round: the recorder was killed, or what it wrote was not kept to its end",
         "what is there is read; changes of text may be missing");
    pass_over(source, source.end, UINT64_MAX);
  }
  auto unpacked = unpacker.finish();
  if (!unpacked) return std::unexpected(unpacked.error());
  source.unpacked = std::move(*unpacked);
  return scan_unpacked(source);
}

// Unpacked records form runs; a run ends where the zstd stream was lost.
Result<void> PerfData::Impl::scan_unpacked(perf::Source& source) {
  perf::Unpacked& unpacked = source.unpacked;
  if (!unpacked.file) return {};
  const auto bytes = unpacked.file->bytes();
  const auto visit = [](const RawRecord&, uint64_t) -> Result<void> { return {}; };
  size_t chunk = 0;
  while (chunk < unpacked.chunks.size()) {
    const uint64_t begin = chunk == 0 ? 0 : unpacked.chunks[chunk - 1].end;
    size_t last = chunk;
    while (last + 1 < unpacked.chunks.size() && !unpacked.chunks[last + 1].fresh) ++last;
    const uint64_t end = std::min<uint64_t>(unpacked.chunks[last].end, bytes.size());
    const auto damage = [&](const RawRecord& raw, uint64_t pos, uint64_t resume) {
      const auto holder_of = [&](uint64_t unpacked_at) {
        const auto found =
            std::upper_bound(unpacked.chunks.begin(), unpacked.chunks.end(), unpacked_at,
                             [](uint64_t at, const perf::Unpacked::Chunk& c) { return at < c.end; });
        return found == unpacked.chunks.end() ? unpacked.chunks.back().file_offset : found->file_offset;
      };
      pass_over(source, holder_of(pos), holder_of(resume) + 1);
      note(Notice::Severity::kLoss, perf::fault_code(raw.fault), source.path, holder_of(pos),
           fmt::format("in unpacked records, at {}: {}", pos, perf::say(raw, pos, resume, end)));
    };
    perf::Resync resync(bytes, end, swapped, false, {});
    perf::Scanner scanner(bytes, swapped, false, resync);
    if (auto done = scanner.run(begin, end, unpacked.stretches, visit, damage); !done) return done;
    chunk = last + 1;
  }
  return {};
}

}  // namespace asof
