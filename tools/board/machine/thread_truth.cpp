// The truth of trace that follows a thread (perf record --per-thread): each AUX record is what one CPU wrote from one
// start of tracing to its end. Which CPU's and which start it was, its first TSC packet tells.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"
#include "tools/board/machine/machine_truth.h"
#include "tools/board/machine/truth_writer.h"

namespace asof::machine {
namespace {

constexpr uint8_t kTsc = 0x19, kPsbByte = 0x02;
constexpr size_t kPsbBytes = 16, kTscBytes = 8;
constexpr uint64_t kTscMask = (uint64_t{1} << 56) - 1;

// Tracing starts with TSC, or PSB and TSC.
std::optional<uint64_t> first_tsc(std::span<const uint8_t> bytes) {
  const size_t at = !bytes.empty() && bytes[0] == kPsbByte ? kPsbBytes : 0;
  if (at + kTscBytes > bytes.size() || bytes[at] != kTsc) return {};
  uint64_t tsc = 0;
  std::memcpy(&tsc, bytes.data() + at + 1, kTscBytes - 1);
  return tsc;
}

// One CPU's log, read from one start of tracing to another.
class CpuReader {
 public:
  explicit CpuReader(const std::filesystem::path& file) : log_(file) {}

  // Reads on to the start at this time.
  bool find(uint64_t tsc) {
    while (log_.next(record_, position_)) {
      if (is_mark(record_, Mark::kOff)) off_ = position_;
      if (is_mark(record_, Mark::kOn) && (record_.clock & kTscMask) == tsc) return true;
    }
    return false;
  }
  // What `bytes` of trace from that start on show.
  void read(uint64_t bytes, TruthWriter& writer) {
    const uint64_t end = off_ + bytes;
    while (log_.next(record_, position_)) {
      if (is_mark(record_, Mark::kOff)) break;
      if (record_.code == kLogMark) continue;
      if ((record_.flags & kLogLost) != 0 || position_ > end) {
        writer.leave_out(record_);
      } else {
        writer.add(record_);
      }
    }
    off_ = position_;
  }

 private:
  CpuLog log_;
  LogRecord record_{};
  uint64_t position_ = 0, off_ = 0;  // off_: all that was written when tracing ended last
};

// CPU and time of each start of tracing.
std::map<uint64_t, int> read_starts(const std::filesystem::path& log, const std::vector<int>& cpus) {
  std::map<uint64_t, int> starts;
  for_each_record(log, cpus, [&](int cpu, const LogRecord& r, uint64_t) {
    if (is_mark(r, Mark::kOn)) starts[r.clock & kTscMask] = cpu;
  });
  return starts;
}

// The bytes [offset, offset + size) of a thread's ring, as far as the recording has them.
std::vector<uint8_t> cut(const PerfData& data, int tid, uint64_t offset, uint64_t size) {
  std::vector<uint8_t> out;
  for (const AuxBuffer& b : data.aux_buffers()) {
    if (b.tid != tid || b.offset > offset + out.size() || offset + out.size() >= b.offset + b.bytes.size())
      continue;
    const auto rest = b.bytes.subspan(offset + out.size() - b.offset);
    const size_t n = std::min<uint64_t>(rest.size(), size - out.size());
    out.insert(out.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(n));
  }
  return out;
}

}  // namespace

std::vector<ThreadTrace> thread_traces(const PerfData& data) {
  std::vector<ThreadTrace> threads;
  const auto thread = [&](int tid) -> ThreadTrace& {
    const auto it = std::ranges::find(threads, tid, &ThreadTrace::tid);
    return it != threads.end() ? *it : threads.emplace_back(ThreadTrace{tid, {}});
  };
  for (const AuxBuffer& b : data.aux_buffers()) {
    if (b.cpu < 0 && b.tid > 0) thread(b.tid);
  }
  if (threads.empty()) return threads;
  data.for_each([&](const Record& r) {
    if (r.type != perf::kAux) return true;
    const auto aux = parse_aux(r);
    // The record's own thread may be the one that ran before; a single thread needs no telling apart.
    const int tid = threads.size() == 1 ? threads.front().tid : r.id.tid;
    if (!aux || aux->size == 0 || std::ranges::find(threads, tid, &ThreadTrace::tid) == threads.end())
      return true;
    const auto bytes = cut(data, tid, aux->offset, aux->size);
    thread(tid).pieces.push_back({first_tsc(bytes), bytes.size()});
    return true;
  });
  return threads;
}

ThreadTruth write_thread_truth(const std::filesystem::path& log, const std::vector<int>& cpus,
                               const CodeTable& code, const ThreadTrace& thread, const TimeConversion& clock,
                               const std::filesystem::path& folder,
                               const std::function<bool(Addr, std::span<const uint8_t>)>& known) {
  ThreadTruth out;
  TruthWriter writer(folder / fmt::format("tid{}.blocks.zst", thread.tid), code, clock, known);
  const auto starts = read_starts(log, cpus);
  std::map<int, CpuReader> readers;
  int last = -1;
  for (const ThreadPiece& piece : thread.pieces) {
    const auto start = piece.tsc ? starts.find(*piece.tsc) : starts.end();
    const int cpu = start == starts.end() ? -1 : start->second;
    if (cpu < 0 || !readers.try_emplace(cpu, log_file(log, cpu)).first->second.find(*piece.tsc)) {
      ++out.unplaced;
      continue;
    }
    out.moves += last >= 0 && cpu != last ? 1 : 0;
    last = cpu;
    readers.at(cpu).read(piece.bytes, writer);
  }
  out.truth = writer.finish();
  return out;
}

}  // namespace asof::machine
