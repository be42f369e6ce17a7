#include "tests/support/live_pipe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

#include "decoder/open/capture_perf.h"
#include "decoder/perf/record_types.h"
#include "tests/support/etm_frames.h"

namespace asof::test {
namespace {

using Bytes = std::vector<uint8_t>;

template <class T>
void put(Bytes& out, T value) {
  const auto* p = reinterpret_cast<const uint8_t*>(&value);
  out.insert(out.end(), p, p + sizeof value);
}
template <class T>
T get(const Bytes& in, size_t at) {
  T value{};
  std::memcpy(&value, in.data() + at, sizeof value);
  return value;
}
template <class T>
void set(Bytes& in, size_t at, T value) {
  std::memcpy(in.data() + at, &value, sizeof value);
}

void put_record(Bytes& out, uint32_t type, const Bytes& body) {
  put<uint32_t>(out, type);
  put<uint16_t>(out, 0);
  put<uint16_t>(out, static_cast<uint16_t>(8 + body.size()));
  out.insert(out.end(), body.begin(), body.end());
}

Bytes file_bytes(const std::string& path) {
  std::ifstream in(std::filesystem::is_directory(path) ? path + "/data" : path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Maker {
 public:
  Maker(const std::string& path, const CaptureOptions& options)
      : file_(file_bytes(path)),
        data_(PerfData::open(path).value()),
        capture_(open_capture(path, options).value()) {}

  LivePipe make(size_t rounds, Time skew, bool frames) {
    put<uint64_t>(out_.bytes, get<uint64_t>(file_, 0));
    put<uint64_t>(out_.bytes, 16);
    attributes();
    features();
    out_.data_begin = out_.bytes.size();
    read_records();
    read_trace();
    cut_aux_records();
    if (frames) put_in_frames();
    put_record(out_.bytes, perf::kFinishedInit, {});
    std::vector<Time> times;
    for (auto& [cpu, ring] : rings_) {
      std::ranges::stable_sort(ring.records, {}, &Timed::time);
      for (const Timed& t : ring.records) times.push_back(t.time);
    }
    std::ranges::sort(times);
    for (size_t k = 1; k <= rounds; ++k)
      round(k == rounds ? kTimeMax : times[times.size() * k / rounds], k == rounds ? 0 : skew);
    out_.bytes.insert(out_.bytes.end(), end_.begin(), end_.end());
    file_parts();
    return std::move(out_);
  }

 private:
  struct Timed {
    Time time;
    Bytes bytes;
    uint64_t trace_end = 0;  // of an AUX record
  };
  struct Ring {
    std::vector<Timed> records;
    size_t next = 0;
    const AuxBuffer* buffer = nullptr;  // a sample of its buffers
    uint64_t begin = 0, given = 0;      // of trace
    Bytes trace;
  };

  void attributes() {
    const auto attr_size = get<uint64_t>(file_, 16), at = get<uint64_t>(file_, 24),
               size = get<uint64_t>(file_, 32);
    for (uint64_t a = at; a < at + size; a += attr_size) {
      Bytes body(file_.begin() + static_cast<ptrdiff_t>(a),
                 file_.begin() + static_cast<ptrdiff_t>(a + attr_size - 16));
      const auto ids = get<uint64_t>(file_, a + attr_size - 16),
                 ids_size = get<uint64_t>(file_, a + attr_size - 8);
      body.insert(body.end(), file_.begin() + static_cast<ptrdiff_t>(ids),
                  file_.begin() + static_cast<ptrdiff_t>(ids + ids_size));
      put_record(out_.bytes, perf::kHeaderAttr, body);
    }
  }

  void features() {
    constexpr int kTracingData = 1, kBuildId = 2, kAuxtrace = 18;
    for (int bit = 1; bit < 64; ++bit) {
      const auto body = data_->feature(bit);
      if (body.empty() || bit == kAuxtrace || body.size() > 65000) continue;
      if (bit == kTracingData) {
        Bytes size;
        put<uint32_t>(size, static_cast<uint32_t>(body.size()));
        put_record(out_.bytes, perf::kHeaderTracingData, size);
        out_.bytes.insert(out_.bytes.end(), body.begin(), body.end());
        out_.bytes.resize(out_.bytes.size() + (8 - body.size() % 8) % 8);
      } else if (bit == kBuildId) {
        const Bytes all(body.begin(), body.end());
        for (size_t at = 0; at + 8 <= all.size(); at += get<uint16_t>(all, at + 6)) {
          Bytes one(all.begin() + static_cast<ptrdiff_t>(at),
                    all.begin() + static_cast<ptrdiff_t>(at + get<uint16_t>(all, at + 6)));
          set<uint32_t>(one, 0, perf::kHeaderBuildId);
          out_.bytes.insert(out_.bytes.end(), one.begin(), one.end());
        }
      } else {
        Bytes record;
        put<uint64_t>(record, static_cast<uint64_t>(bit));
        record.insert(record.end(), body.begin(), body.end());
        put_record(out_.bytes, perf::kHeaderFeature, record);
      }
    }
  }

  void file_parts() {
    constexpr size_t kDataSize = 48;
    const auto data = get<uint64_t>(file_, 40), size = get<uint64_t>(file_, kDataSize);
    const uint64_t now = out_.bytes.size() - out_.data_begin;
    out_.file_begin = out_.finished_begin =
        Bytes(file_.begin(), file_.begin() + static_cast<ptrdiff_t>(data));
    set<uint64_t>(out_.file_begin, kDataSize, 0);
    set<uint64_t>(out_.finished_begin, kDataSize, now);
    out_.file_end = Bytes(file_.begin() + static_cast<ptrdiff_t>(data + size), file_.end());
    size_t features = 0;
    for (size_t i = 72; i < 104; ++i) features += static_cast<size_t>(std::popcount(file_[i]));
    for (size_t i = 0; i < features; ++i)
      set<uint64_t>(out_.file_end, 16 * i, get<uint64_t>(out_.file_end, 16 * i) - size + now);
  }

  void read_records() {
    bool begun = false;
    data_->for_each([&](const asof::Record& r) {
      if (r.type == perf::kFinishedInit || r.type == perf::kFinishedRound || r.type == perf::kAuxtrace)
        return true;
      const Bytes bytes(r.bytes.begin(), r.bytes.end());
      const bool timed = r.type < perf::kUserTypeStart && r.time() != kTimeMin;
      if (timed) {
        begun = true;
        rings_[r.id.cpu].records.push_back({r.time(), bytes});
      } else {
        Bytes& to = begun && r.type == perf::kLostSamples ? end_ : out_.bytes;
        to.insert(to.end(), bytes.begin(), bytes.end());
      }
      return true;
    });
  }

  void read_trace() {
    for (const AuxBuffer& buffer : data_->aux_buffers()) {
      Ring& ring = rings_[buffer.cpu];
      if (ring.buffer == nullptr) ring.begin = ring.given = buffer.offset;
      ring.buffer = &buffer;
      if (buffer.offset < ring.begin) throw std::runtime_error("buffers out of order");
      ring.trace.resize(std::max(ring.trace.size(), buffer.offset - ring.begin + buffer.bytes.size()));
      std::ranges::copy(buffer.bytes,
                        ring.trace.begin() + static_cast<ptrdiff_t>(buffer.offset - ring.begin));
    }
  }

  // At the sync points that have a time, which is that of the record in front. Not within CoreSight frames, where
  // offsets of the stream are not those of the buffer.
  void cut_aux_records() {
    constexpr uint64_t kFormat = 0xff00;  // of the flags: what trace it is, not what became of it
    const auto arch = capture_.arch().value();
    for (size_t i = 0; i < capture_.streams.size(); ++i) {
      const Stream& stream = capture_.streams[i];
      if (std::ranges::any_of(stream.pieces, [](const StreamPiece& p) { return p.source != nullptr; }))
        continue;
      Ring& ring = rings_[stream.cpu];
      const auto segments = arch->split(stream, i);
      std::vector<Timed> all;
      for (Timed& t : ring.records) {
        if (get<uint32_t>(t.bytes, 0) != perf::kAux) {
          all.push_back(std::move(t));
          continue;
        }
        uint64_t at = get<uint64_t>(t.bytes, 8);
        const uint64_t end = at + get<uint64_t>(t.bytes, 16), flags = get<uint64_t>(t.bytes, 24);
        for (const Segment& s : segments) {
          if (s.begin > at && s.begin < end && s.start_time != kTimeMin && s.start_time < t.time)
            all.push_back(part_of(t, std::exchange(at, s.begin), s.begin, s.start_time, flags & kFormat));
        }
        all.push_back(part_of(t, at, end, t.time, flags));
      }
      ring.records = std::move(all);
    }
  }

  // As a sink with a formatter would have written it: what an AUX record is about, in frames of its own.
  void put_in_frames() {
    constexpr uint64_t kFormat = 0xff00;
    for (size_t i = 0; i < capture_.streams.size(); ++i) {
      Ring& ring = rings_[capture_.streams[i].cpu];
      Bytes all;
      for (Timed& t : ring.records) {
        if (get<uint32_t>(t.bytes, 0) != perf::kAux) continue;
        const auto from = ring.trace.begin() + static_cast<ptrdiff_t>(get<uint64_t>(t.bytes, 8) - ring.begin);
        const Bytes raw(from, from + static_cast<ptrdiff_t>(get<uint64_t>(t.bytes, 16)));
        EtmFrames frames;
        frames.write(capture_.arm64.sources[i].trace_id, raw);
        frames.flush();
        set<uint64_t>(t.bytes, 8, ring.begin + all.size());
        set<uint64_t>(t.bytes, 16, frames.bytes().size());
        set<uint64_t>(t.bytes, 24, get<uint64_t>(t.bytes, 24) & ~kFormat);
        all.insert(all.end(), frames.bytes().begin(), frames.bytes().end());
        t.trace_end = ring.begin + all.size();
      }
      ring.trace = std::move(all);
    }
  }

  static Timed part_of(const Timed& whole, uint64_t begin, uint64_t end, Time time, uint64_t flags) {
    Timed out = whole;
    out.time = time;
    out.trace_end = end;
    set<uint64_t>(out.bytes, 8, begin);
    set<uint64_t>(out.bytes, 16, end - begin);
    set<uint64_t>(out.bytes, 24, flags);
    for (size_t at = 32; at + 8 <= out.bytes.size(); at += 8) {
      if (get<uint64_t>(whole.bytes, at) == static_cast<uint64_t>(whole.time))
        set<uint64_t>(out.bytes, at, static_cast<uint64_t>(time));
    }
    return out;
  }

  void round(Time until, Time skew) {
    for (auto& [cpu, ring] : rings_) {
      uint64_t trace_end = ring.given;
      for (; ring.next < ring.records.size() && ring.records[ring.next].time <= until; ++ring.next) {
        const Timed& t = ring.records[ring.next];
        out_.bytes.insert(out_.bytes.end(), t.bytes.begin(), t.bytes.end());
        trace_end = std::max(trace_end, t.trace_end);
      }
      if (until == kTimeMax) trace_end = ring.begin + ring.trace.size();
      if (ring.buffer != nullptr && trace_end > ring.given)
        trace(ring, std::min(trace_end, ring.begin + ring.trace.size()));
      until = saturating_add(until, skew);
    }
    put_record(out_.bytes, perf::kFinishedRound, {});
    out_.round_ends.push_back(out_.bytes.size());
  }

  void trace(Ring& ring, uint64_t end) {
    const uint64_t size = end - ring.given, padded = (size + 7) & ~uint64_t{7};
    Bytes body;
    put<uint64_t>(body, padded);
    put<uint64_t>(body, ring.given);
    put<uint64_t>(body, ring.buffer->reference);
    put<uint32_t>(body, ring.buffer->idx);
    put<int32_t>(body, ring.buffer->tid);
    put<int32_t>(body, ring.buffer->cpu);
    put<uint32_t>(body, 0);
    put_record(out_.bytes, perf::kAuxtrace, body);
    const auto from = ring.trace.begin() + static_cast<ptrdiff_t>(ring.given - ring.begin);
    out_.bytes.insert(out_.bytes.end(), from, from + static_cast<ptrdiff_t>(size));
    out_.bytes.resize(out_.bytes.size() + (padded - size));
    ring.given = end;
  }

  const Bytes file_;
  const std::shared_ptr<const PerfData> data_;
  const Capture capture_;
  std::map<int32_t, Ring> rings_;  // by CPU
  LivePipe out_;
  Bytes end_;
};

}  // namespace

LivePipe as_live_pipe(const std::string& path, size_t rounds, const CaptureOptions& options, Time skew,
                      bool frames) {
  return Maker(path, options).make(rounds, skew, frames);
}

}  // namespace asof::test
