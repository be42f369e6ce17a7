// Merger: output of all streams in one order, by time, ties by stream. Chunks arrive segment by segment,
// ordered by the start of their segments, so nothing that arrives later is before the current segment; what
// lies before that is written at once.
//
// Memory is bounded: when more than `limit` bytes wait, the earliest is written although something earlier
// may follow from another stream (a segment much longer than the others). That is counted, and the verb
// reports it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "textstore/time.h"

namespace asof {

// Lines of one stream in order; marks show where the time changes.
struct TimedText {
  struct Mark {
    Time time;
    size_t begin;  // in text, to the next mark
  };
  std::string text;
  std::vector<Mark> marks;

  // What is appended to `text` from here on has this time.
  void at(Time t) {
    if (!marks.empty() && marks.back().time == t) return;
    if (!marks.empty() && marks.back().begin == text.size()) {
      marks.back().time = t;
    } else {
      marks.push_back({t, text.size()});
    }
  }
};

class Merger {
 public:
  static constexpr uint64_t kDefaultLimit = 256 << 20;
  using Write = std::function<void(std::string_view)>;
  // Reuses the memory of lines that are written.
  using Recycle = std::function<void(TimedText&&)>;

  Merger(size_t streams, Write write, uint64_t limit = kDefaultLimit, Recycle recycle = {})
      : queues_(streams), write_(std::move(write)), recycle_(std::move(recycle)), limit_(limit) {}

  // There are at least so many.
  void have_streams(size_t streams) { queues_.resize(std::max(queues_.size(), streams)); }
  // The next lines of a stream. No later call brings a line before `watermark`, of any stream.
  void add(size_t stream, TimedText text, Time watermark);
  void finish();
  // Lines may be out of order: the limit forced something out early.
  uint64_t forced() const { return forced_; }

 private:
  struct Piece {
    TimedText text;
    size_t mark = 0;
  };
  struct Queue {
    std::deque<Piece> pieces;
    Time latest = kTimeMin;  // time does not go back inside a stream
  };
  void flush(Time before, bool all, uint64_t down_to);

  std::vector<Queue> queues_;
  Write write_;
  Recycle recycle_;
  uint64_t limit_;
  uint64_t waiting_ = 0;
  uint64_t forced_ = 0;
};

}  // namespace asof
