// Streams from AUX buffers. Which bytes belong together: tools/perf/util/auxtrace.c (__auxtrace_mmap__read:
// offset, padding to 8; auxtrace_queues), intel-pt.c (intel_pt_get_buffer, snapshot overlaps); what the
// kernel records about losses: kernel/events/ring_buffer.c (perf_aux_output_end),
// include/uapi/linux/perf_event.h (PERF_AUX_FLAG_*).
#include "decoder/aux/aux_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "decoder/aux/aux_queues.h"
#include "decoder/perf/record_types.h"

namespace asof {
namespace {

constexpr uint64_t kTruncated = 1, kPartial = 4, kCollision = 8;  // PERF_AUX_FLAG_*
constexpr uint64_t kFormatMask = 0xff00, kCoreSightRaw = 0x100;
constexpr const char* kWrapped =
    "TRUNCATED: the AUX buffer was overwritten from its begin on before it was read";
constexpr Code kStopped = Code::kAuxFull, kMissing = Code::kTraceBytesMissing;

// Is there trace after what the last AUX record announces? The kernel writes the record before the trace can be read
// (perf_aux_output_end()), so one was lost, and it was written later than any other.
bool last_record_is_lost(const AuxQueue& queue) {
  constexpr uint64_t kPadding = 8;  // what perf copies is padded to a multiple of it
  if (queue.overlapping || queue.records.empty()) return false;
  uint64_t announced = 0, copied = 0;
  for (const AuxRecord* r : queue.records) announced = std::max(announced, end_of(r->offset, r->size));
  for (const AuxBuffer* b : queue.buffers) copied = std::max(copied, end_of(b->offset, b->bytes.size()));
  return copied >= end_of(announced, kPadding);
}

// The trace of an AUX record was made before it, and after the trace was switched on.
TimeBounds bounds_of(const AuxQueue& queue) {
  TimeBounds bounds;
  Time last = kTimeMin;
  for (const AuxRecord* record : queue.records) last = std::max(last, record->id.time.value_or(kTimeMin));
  for (const AuxBuffer* buffer : queue.buffers) last = std::max(last, buffer->sample_time.value_or(kTimeMin));
  if (last != kTimeMin && !last_record_is_lost(queue)) bounds.hi = last;
  if (queue.started != kTimeMax && queue.started <= bounds.hi) bounds.lo = queue.started;
  return bounds;
}

// In order of offset (at one offset, kStopped comes first). Missing bytes and further stops at the offset
// where the kernel stopped are one loss with the stop.
void merge_losses(std::vector<StreamLoss>& losses) {
  const auto stops = [](const StreamLoss& loss) { return loss.code == kStopped; };
  std::sort(losses.begin(), losses.end(), [](const StreamLoss& a, const StreamLoss& b) {
    return std::tie(a.offset, a.code, a.time) < std::tie(b.offset, b.code, b.time);
  });
  std::vector<StreamLoss> merged;
  size_t stop = SIZE_MAX;  // the last one that stops
  for (StreamLoss& loss : losses) {
    const bool same =
        stop != SIZE_MAX && merged[stop].offset == loss.offset && (stops(loss) || loss.code == kMissing);
    if (same) {
      if (loss.bytes) merged[stop].bytes = std::max(merged[stop].bytes.value_or(0), *loss.bytes);
      continue;
    }
    if (stops(loss)) stop = merged.size();
    merged.push_back(std::move(loss));
  }
  losses = std::move(merged);
}

class StreamMaker {
 public:
  StreamMaker(const PerfData& data, std::vector<Notice>& notices) : data_(data), notices_(notices) {}

  std::vector<AuxRing> make();

 private:
  Stream make_stream(const AuxQueue& queue);
  void add_overlapping(const AuxQueue& queue, Stream& stream);
  void add_sequential(const AuxQueue& queue, Stream& stream);
  void add_missing(const AuxQueue& queue, Stream& stream);
  void add_flagged(const AuxQueue& queue, Stream& stream);
  bool keeps_newest(const AuxRecord& record) const;
  void note(Notice::Severity severity, Code code, const std::string& where, uint64_t offset, Time time,
            uint64_t count, std::string reason, std::string hint = {}) {
    notices_.push_back({severity, code, where, offset, time, std::move(reason), std::move(hint), count});
  }

  const PerfData& data_;
  std::vector<Notice>& notices_;
};

// Snapshots of one ring, or AUX samples: what a buffer repeats of the one before it is left out. Stream
// offsets count the bytes kept; the ring's own offsets are not enough here (they restart each time the ring
// wraps).
void StreamMaker::add_overlapping(const AuxQueue& queue, Stream& stream) {
  const AuxBuffer* before = nullptr;
  size_t joined = 0;
  for (const AuxBuffer* buffer : queue.buffers) {
    std::optional<Join> join;
    if (before != nullptr) join = join_of(*before, *buffer);
    const size_t skip = join ? join->skip : 0;
    if (join && !stream.pieces.empty()) {
      auto& earlier = stream.pieces.back().bytes;
      earlier = earlier.first(earlier.size() - std::min(join->padding, earlier.size()));
      if (earlier.empty()) stream.pieces.pop_back();
    }
    StreamPiece piece;
    piece.offset = stream.end();
    piece.bytes = buffer->bytes.subspan(skip);
    piece.discontinuity = !join.has_value();
    piece.reference = buffer->reference;
    piece.file_offset = buffer->file_offset + skip;
    piece.mapped = true;
    joined += join ? 1 : 0;
    if (!piece.bytes.empty()) stream.pieces.push_back(piece);
    if (!buffer->bytes.empty()) before = buffer;
  }
  note(Notice::Severity::kInfo, Code::kSnapshotsDoNotJoin, stream.name, Error::kNoOffset, kTimeMin,
       queue.buffers.size(),
       fmt::format(
           "{} snapshots of its ring, {} of them continue the one before; trace between the others was never "
           "written",
           queue.buffers.size(), joined));
}

// One run of trace, copied from the ring as it grew.
void StreamMaker::add_sequential(const AuxQueue& queue, Stream& stream) {
  std::vector<const AuxBuffer*> buffers = queue.buffers;
  std::sort(buffers.begin(), buffers.end(), comes_before<AuxBuffer>);
  std::vector<uint64_t> ends;  // of AUX records: there, and only there, a buffer can end
  ends.reserve(queue.records.size());
  for (const AuxRecord* record : queue.records) ends.push_back(end_of(record->offset, record->size));
  std::sort(ends.begin(), ends.end());
  for (size_t i = 0; i < buffers.size(); ++i) {
    const AuxBuffer& buffer = *buffers[i];
    const uint64_t next = i + 1 < buffers.size() ? buffers[i + 1]->offset : UINT64_MAX;
    auto bytes = without_padding(buffer, next, ends);
    uint64_t offset = buffer.offset;
    const uint64_t end = stream.pieces.empty() ? offset : stream.end();
    const uint64_t repeated = end > offset ? std::min<uint64_t>(end - offset, bytes.size()) : 0;
    if (repeated != 0) {
      note(Notice::Severity::kError, Code::kBadTraceBuffers, stream.name, buffer.file_offset, kTimeMin, 1,
           fmt::format("AUXTRACE buffer at {:#x} repeats {} bytes of the one before it: they are taken once",
                       offset, repeated));
      bytes = bytes.subspan(repeated);
      offset += repeated;
    }
    if (bytes.size() > UINT64_MAX - offset) {
      note(Notice::Severity::kError, Code::kBadTraceBuffers, stream.name, buffer.file_offset, kTimeMin, 1,
           fmt::format("AUXTRACE buffer of {} bytes at {:#x} runs past the end of any stream: it is left out",
                       bytes.size(), offset));
      continue;
    }
    if (bytes.empty()) continue;
    StreamPiece piece;
    piece.offset = offset;
    piece.bytes = bytes;
    piece.discontinuity = stream.pieces.empty() ? offset != 0 : offset != end;
    piece.reference = buffer.reference;
    piece.file_offset = buffer.file_offset + repeated;
    piece.mapped = true;
    stream.pieces.push_back(piece);
  }
}

// Bytes that AUX records announce, or that lie between two pieces, and that no buffer has.
void StreamMaker::add_missing(const AuxQueue& queue, Stream& stream) {
  const auto lose = [&](uint64_t from, uint64_t to, const char* reason) {
    const auto after =
        std::upper_bound(queue.records.begin(), queue.records.end(), from,
                         [](uint64_t at, const AuxRecord* r) { return at < end_of(r->offset, r->size); });
    StreamLoss loss;
    loss.offset = from;
    loss.bytes = to - from;
    if (after != queue.records.begin())
      loss.time = (*std::prev(after))->id.time.value_or(kTimeMin);
    else if (queue.started != kTimeMax)
      loss.time = queue.started;
    const auto last = std::ranges::lower_bound(after, queue.records.end(), to, {},
                                               [](const AuxRecord* r) { return end_of(r->offset, r->size); });
    if (last != queue.records.end()) loss.until = (*last)->id.instant().value_or(kTimeMax);
    loss.code = kMissing;
    loss.reason = fmt::format("{} bytes of trace {}", to - from, reason);
    stream.losses.push_back(loss);
  };
  for (size_t i = 1; i < stream.pieces.size(); ++i) {
    const StreamPiece& before = stream.pieces[i - 1];
    const uint64_t end = before.offset + before.bytes.size();
    if (end < stream.pieces[i].offset) lose(end, stream.pieces[i].offset, "are in no AUXTRACE buffer");
  }
  if (queue.records.empty() || stream.pieces.empty()) return;
  uint64_t recorded_end = 0;
  for (const AuxRecord* record : queue.records)
    recorded_end = std::max(recorded_end, end_of(record->offset, record->size));
  const uint64_t recorded_begin = queue.records.front()->offset;
  if (recorded_begin < stream.begin())
    lose(recorded_begin, stream.begin(), "before the first AUXTRACE buffer are missing");
  if (recorded_end > stream.end())
    lose(stream.end(), recorded_end, "after the last AUXTRACE buffer are missing");
}

// A sink of CoreSight frames wraps in its buffer: what the kernel calls TRUNCATED has lost its beginning.
// Intel PT, and a TRBE with its raw trace, stop at the end.
bool StreamMaker::keeps_newest(const AuxRecord& record) const {
  const auto& info = data_.auxtrace_info();
  return info && info->type == perf::kAuxtraceCsEtm && (record.flags & kFormatMask) != kCoreSightRaw;
}

// What the kernel flagged. After TRUNCATED the stream does not continue where it stopped: packets may be cut
// there. Nor does it after COLLISION: the arm_trbe driver sets this when a buffer was filled
// (drivers/hwtracing/coresight/coresight-trbe.c), and what came until the next one was lost.
void StreamMaker::add_flagged(const AuxQueue& queue, Stream& stream) {
  struct Flag {
    uint64_t bit;
    Code code;
    const char* what;
    const char* hint;
    uint64_t count = 0;
    const AuxRecord* first = nullptr;
  };
  std::array<Flag, 3> flags = {
      Flag{kTruncated, kStopped, "TRUNCATED: the AUX buffer was full and the kernel stopped the trace",
           "record with a larger AUX buffer (-m,SIZE) or less trace (filters, no CYC)"},
      Flag{kPartial, Code::kAuxWithHoles, "PARTIAL: the trace in it has holes (virtualisation)", ""},
      Flag{kCollision, Code::kAuxSamplesCollided, "COLLISION: samples collided in the AUX buffer", ""}};
  std::vector<uint64_t> cuts;
  for (size_t i = 0; i < queue.records.size(); ++i) {
    const AuxRecord& record = *queue.records[i];
    for (Flag& flag : flags) {
      if ((record.flags & flag.bit) == 0) continue;
      if (flag.count++ == 0) flag.first = &record;
      StreamLoss loss;
      loss.offset = queue.overlapping ? stream.end() : record.offset;
      loss.time = record.id.time.value_or(kTimeMin);
      loss.code = flag.code;
      loss.reason = fmt::format("AUX record of {} bytes is flagged {}", record.size, flag.what);
      if (flag.bit == kTruncated && !queue.overlapping && keeps_newest(record)) {
        loss.reason = fmt::format("AUX record of {} bytes is flagged {}", record.size, kWrapped);
        loss.time = i == 0 ? kTimeMin : queue.records[i - 1]->id.time.value_or(kTimeMin);
        loss.until = record.id.instant().value_or(kTimeMax);
        cuts.push_back(record.offset);
        cuts.push_back(end_of(record.offset, record.size));
      } else if (flag.bit != kPartial && !queue.overlapping) {
        loss.offset = end_of(record.offset, record.size);
        cuts.push_back(loss.offset);
        const AuxRecord* next = i + 1 < queue.records.size() ? queue.records[i + 1] : nullptr;
        if (next != nullptr && next->offset > loss.offset) loss.bytes = next->offset - loss.offset;
      }
      stream.losses.push_back(loss);
    }
  }
  cut_pieces(stream, cuts);
  for (const Flag& flag : flags) {
    if (flag.count == 0) continue;
    const bool wrapped = flag.bit == kTruncated && !queue.overlapping && keeps_newest(*flag.first);
    note(Notice::Severity::kLoss, flag.code, stream.name, flag.first->file_offset,
         flag.first->id.time.value_or(kTimeMin), flag.count,
         fmt::format("{} flagged {}",
                     flag.count == 1 ? "1 AUX record is" : fmt::format("{} AUX records are", flag.count),
                     wrapped ? kWrapped : flag.what),
         flag.hint);
  }
}

// A buffer without the counter has that of the last one before it that has one, or else of the first after it.
void fill_references(std::vector<StreamPiece>& pieces) {
  const auto first = std::ranges::find_if(pieces, [](const StreamPiece& p) { return p.reference != 0; });
  if (first == pieces.end()) return;
  uint64_t last = first->reference;
  for (StreamPiece& p : pieces) {
    if (p.reference == 0) p.reference = last;
    last = p.reference;
  }
}

Stream StreamMaker::make_stream(const AuxQueue& queue) {
  Stream stream;
  const AuxBuffer& first = *queue.buffers.front();
  const bool by_thread = first.tid >= 0 && (first.cpu < 0 || !per_cpu_rings(data_));
  if (by_thread) {
    stream.tid = first.tid;
    stream.name = fmt::format("tid{}", first.tid);
  } else {
    stream.cpu = first.cpu;
    stream.name = first.cpu >= 0 ? fmt::format("cpu{}", first.cpu) : fmt::format("queue{}", queue.idx);
  }
  if (queue.overlapping) {
    add_overlapping(queue, stream);
  } else {
    add_sequential(queue, stream);
    add_missing(queue, stream);
  }
  add_flagged(queue, stream);
  fill_references(stream.pieces);
  merge_losses(stream.losses);
  stream.bounds = bounds_of(queue);
  return stream;
}

// By the place of its bytes in the file: a buffer may be joined to the one before it, or be left out. Both are
// in the order of the file.
std::vector<uint64_t> ends_in_ring(const Stream& stream, const AuxQueue& queue) {
  std::vector<uint64_t> out;
  size_t next = 0;
  for (const StreamPiece& piece : stream.pieces) {
    const auto holds = [&](const AuxBuffer* b) {
      return piece.file_offset >= b->file_offset && piece.file_offset - b->file_offset < b->bytes.size();
    };
    while (next < queue.buffers.size() && !holds(queue.buffers[next])) ++next;
    const AuxBuffer* b = next < queue.buffers.size() ? queue.buffers[next] : nullptr;
    out.push_back(b == nullptr ? UINT64_MAX
                               : end_of(b->offset, piece.file_offset - b->file_offset + piece.size()));
  }
  return out;
}

std::vector<AuxRing> StreamMaker::make() {
  std::vector<AuxRing> rings;
  std::map<std::string, int> names;
  for (AuxQueue& queue : collect_queues(data_, notices_)) {
    AuxRing ring{make_stream(queue), std::move(queue.records), queue.overlapping};
    if (queue.overlapping) ring.ring_ends = ends_in_ring(ring.stream, queue);
    // Two rings of one CPU (two trace events): the queue distinguishes them.
    if (names[ring.stream.name]++ != 0) ring.stream.name += fmt::format("#{}", queue.idx);
    rings.push_back(std::move(ring));
  }
  return rings;
}

}  // namespace

std::vector<AuxRing> make_rings(const PerfData& data, std::vector<Notice>& notices) {
  return StreamMaker(data, notices).make();
}

std::vector<Stream> make_streams(const PerfData& data, std::vector<Notice>& notices) {
  std::vector<Stream> streams;
  for (AuxRing& ring : make_rings(data, notices)) streams.push_back(std::move(ring.stream));
  return streams;
}

}  // namespace asof
