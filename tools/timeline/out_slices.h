// SliceSink: a timeline's slices as a table, a line each as they end, nothing folded: comma-separated values
// or JSON lines. Columns: docs/timeline.md.
#pragma once
#include <tsl/robin_map.h>

#include <functional>
#include <string>
#include <vector>

#include "decoder/calls/timeline.h"
#include "tools/disasm/source_text.h"
#include "tools/output/row_text.h"

namespace asof {

// "main.c:12", where a function begins that ran at `t`; empty: not known.
std::string function_line(SourceLines& lines, const TimelineFunction& f, Time t);

class SliceSink final : public TimelineSink {
 public:
  enum class Format : uint8_t { kCsv, kJsonLines };
  using Write = std::function<void(std::string_view)>;
  // Stops when `stop` says so. `lines`: with the line where a function begins; nullptr: without. `head`: CSV begins with
  // the names of columns.
  SliceSink(Format format, Write write, std::function<bool()> stop, SourceLines* lines, bool head = true)
      : format_(format), write_(std::move(write)), stop_(std::move(stop)), lines_(lines), head_(head) {}

  void begin(const Capture& capture) override;
  void track(const TimelineTrack& t) override;
  void function(const TimelineFunction& f) override;
  void slice(const Slice& s) override;
  bool stopped() const override { return stop_(); }

  uint64_t slices() const { return slices_; }

 private:
  void csv(const Slice& s, int32_t tid);
  void json(const Slice& s, int32_t tid);
  const std::string& fields_of(const Slice& s);
  std::string_view last_fields(const Slice& s);

  Format format_;
  Write write_;
  std::function<bool()> stop_;
  SourceLines* lines_;
  bool head_;
  const Capture* capture_ = nullptr;
  // What rows have in common, as it is written.
  struct Track {
    int32_t tid = -1;
    std::string fields;  // track_kind and track
  };
  std::vector<Track> tracks_;  // by id
  struct Function {
    TimelineFunction function;
    std::string fields;  // function, kind, dso, line; made when it first runs
  };
  std::vector<Function> functions_;                    // by id
  tsl::robin_map<uint64_t, std::string> last_fields_;  // flags, source, confidence
  RowText row_;
  uint64_t slices_ = 0;
};

}  // namespace asof
