// Stream: the AUX bytes of one CPU or thread in order, losses marked, plus who ran there when. Filled by
// decoder/, const while segments are decoded.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "textstore/address.h"
#include "textstore/code.h"
#include "textstore/time.h"

namespace asof {

// Trace bytes that lie in no one place and are put together when asked for: those of one source within
// CoreSight frames (decoder/coresight/cs_frames.h). Const; any number of threads may read.
class TraceBytes {
 public:
  virtual ~TraceBytes() = default;
  // Bytes [at, at + out.size()), which must exist.
  virtual void read(uint64_t at, std::span<uint8_t> out) const = 0;
  // Where byte `at` is in the file.
  virtual uint64_t file_offset(uint64_t at) const = 0;
  // Releases the memory of bytes [from, to) where they can be read again.
  virtual void forget(uint64_t from, uint64_t to) const = 0;
};

// Gives the memory of a part of a read-only mapping of a file back to the system, whole pages only: reading
// it again costs a look into the file.
void forget_mapping(std::span<const uint8_t> bytes);

// Bytes [offset, offset + size()) of the stream. Pieces are sorted, do not overlap, and are contiguous
// unless `discontinuity` says that trace is missing before this one.
struct StreamPiece {
  uint64_t offset = 0;
  std::span<const uint8_t> bytes;  // lives in the Capture (usually a mapped file); empty with `source`
  bool discontinuity = false;
  // Counter value when the buffer was copied (AUXTRACE.reference), or one near it; 0: the stream has none.
  uint64_t reference = 0;
  uint64_t file_offset = 0;  // of the first byte, for reports
  TimeBounds time{};         // when these bytes were made, by AUX records (CoreSight)
  // Set: the piece is source_size bytes of `source`, from its byte source_begin on.
  std::shared_ptr<const TraceBytes> source{};
  uint64_t source_begin = 0, source_size = 0;
  // `bytes` lie in a read-only mapping of a file: their pages can be given back and come again (forget()).
  bool mapped = false;

  uint64_t size() const { return source ? source_size : bytes.size(); }
};

// Trace lost before `offset`: AUX records with TRUNCATED or PARTIAL, missing buffers, ...
struct StreamLoss {
  uint64_t offset = 0;
  std::optional<uint64_t> bytes;  // size when it is known
  // What was lost ran after this: the time of the record that says so, which is when the trace stopped. Of bytes
  // that are missing (E-LOST-107) or overwritten (E-LOST-004, frames), that of the record before them.
  Time time = kTimeMin;
  Time until = kTimeMax;  // and before this, where it is known
  Code code = Code::kNone;
  std::string reason;
};

// From `time` on this task runs here.
struct ContextChange {
  Time time = kTimeMin;
  int32_t pid = -1;
  int32_t tid = -1;
  Space space = kNoSpace;  // of its user-mode addresses
  bool preempts = false;   // the task before was taken off its CPU and could have run on
};

struct Stream {
  std::string name;  // "cpu0", "tid4711"
  int32_t cpu = -1;  // -1: per-thread stream
  int32_t tid = -1;  // -1: per-CPU stream
  std::vector<StreamPiece> pieces;
  std::vector<StreamLoss> losses;
  std::vector<ContextChange> contexts;  // sorted by time; before the first: that one's task is assumed
  TimeBounds bounds;  // of the whole stream by its AUX records, when the trace itself has no time

  uint64_t begin() const { return pieces.empty() ? 0 : pieces.front().offset; }
  uint64_t end() const { return pieces.empty() ? 0 : pieces.back().offset + pieces.back().size(); }

  // Bytes [from, to), which must not cross a discontinuity. Points into a piece, or into `scratch` when they
  // cross from one piece to the next or have to be put together.
  std::span<const uint8_t> bytes(uint64_t from, uint64_t to, std::vector<uint8_t>& scratch) const;
  // Gives the memory of [from, to) back to the system, where it is the mapping of a file: a trace need not
  // fit into memory. The bytes can still be read; that costs a look into the file.
  void forget(uint64_t from, uint64_t to) const;
  // Where byte `at` of the stream is in the file; nullopt when it is in no piece.
  std::optional<uint64_t> file_offset(uint64_t at) const;
  // Task at instant t; nullptr when nothing is known.
  const ContextChange* context_at(Time t) const;
};

// Bytes of trace in all of them.
inline uint64_t trace_bytes(std::span<const Stream> streams) {
  uint64_t n = 0;
  for (const Stream& s : streams) {
    for (const StreamPiece& p : s.pieces) n += p.size();
  }
  return n;
}

}  // namespace asof
