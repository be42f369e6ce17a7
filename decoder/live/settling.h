// Settling: which segments of a recording that still goes on are decoded already as they will be in the end
// (docs/design.md, "While it is being recorded").
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"

namespace asof {

// Up to which time all records are there, and losses known.
struct SettledRecords {
  Time until = kTimeMin;    // kTimeMin: none
  Time newest = kTimeMin;   // of all records
  std::string waits_for{};  // what the rest waits for, if no time is settled
};

// `capture` is open on what is there of a pipe, up to the end of a round (RecordFramer). `file`: of a file
// (FollowedFile), whose build-ids and BPF programs perf writes when it ends.
SettledRecords settled_records(const Capture& capture, bool file);

struct FileRange {
  uint64_t begin = 0, end = 0;
};

class Settling {
 public:
  // `choice`: what is wanted of the capture.
  Settling(PipelineOptions choice, bool file) : choice_(std::move(choice)), file_(file) {}

  struct Step {
    PipelineOptions options;   // the segments to decode now, in order of time before all that are left
    std::vector<Time> before;  // by stream, for continue_pipeline()
    bool any = false;          // there are some
    Time until = kTimeMin;     // what is settled of the records
    Time reached = kTimeMin;   // nothing earlier is left
    Time newest = kTimeMin;
    std::string waits_for{};
  };
  // Each time with more of the same recording. What a step names counts as decoded.
  Step step(const Capture& capture);
  // Of a stream, only segments up to this one, which started then, could be given out; later ones wait for the end.
  void ends_with(const Capture& capture, size_t stream, std::optional<size_t> segment, Time start);
  // All that is left, of the whole recording.
  Step rest(const Capture& capture) const;
  uint64_t given_bytes() const { return given_bytes_; }
  // Bytes of the input that nothing that is left needs: whole pages of trace that was given out, but for what is looked
  // at in front of a segment. Each time what came to it. Offsets are those of `capture`, the one of the last step.
  std::vector<FileRange> spent(const Capture& capture);
  // Does `now` have the same trace where that of `before` was given out? `same_file`: at the same places of it.
  bool same_trace(const Capture& before, const Capture& now, bool same_file) const;

 private:
  struct Mark {
    uint64_t begin = 0;
    Time start = kTimeMin;  // no earlier than those before it
  };
  struct Lane {
    uint64_t given = 0;  // the first segment that was not given out begins here or later
    Time reached = kTimeMin;
    std::deque<Mark> settled;  // and not given out
    Mark first_open;           // that is not settled; its group is there
    bool has_open = false;
    uint64_t scan_from = 0;
    std::deque<uint64_t> last_given;  // where they begin
    uint64_t spent = 0;               // trace before this offset is
    size_t found = 0;                 // segments
    uint64_t checked = 0;             // where text is compared with when the recording is opened again ends

    // What is not settled starts no earlier.
    Time open_start() const {
      return has_open ? first_open.start : settled.empty() ? reached : settled.back().start;
    }
  };
  uint64_t needed_from(const Capture& capture, size_t stream) const;
  void spent_frames(const Capture& capture, std::vector<FileRange>& out) const;
  void scan(const Arch& arch, const Capture& capture, size_t stream, uint64_t covered, Time until);
  std::string missing_stream(const Capture& capture) const;

  // As many segments with a time stay in front of what is left: a search in the middle of a stream passes some
  // (arch/segments_from.h).
  static constexpr size_t kLookedAt = 4;
  // First segments of which a part is decoded at each opening (decoder/open/text_check.h), with room.
  static constexpr size_t kChecked = 12;

  const PipelineOptions choice_;
  const bool file_;
  std::vector<Lane> lanes_;  // by stream
  uint64_t given_bytes_ = 0;
};

}  // namespace asof
