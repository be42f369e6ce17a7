// What `asof validate` knows and checks: the facts that one decoding of the capture gives, and the questions
// about them. Each question has one answer (a Check); the capture passes when none has failed. What each
// question can and cannot find: docs/validation.md.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"
#include "tools/doctor/health.h"
#include "tools/output/coverage.h"
#include "tools/output/tally.h"
#include "tools/validate/live_events.h"

namespace asof {

struct Check {
  enum class Result : uint8_t { kPass, kNote, kSkip, kFail };
  static constexpr size_t kMaxPlaces = 5;

  Result result = Result::kPass;
  std::string_view topic;             // stable: "flow", "sync", "text", "chain", "clock", ...
  std::string answer{};               // one sentence
  std::vector<std::string> places{};  // the first ones
};
std::string_view result_name(Check::Result r);  // "pass", "note", "skip", "fail"

// A function of the kernel that writes records of one kind.
enum class Anchor : uint8_t { kSwitch, kTextPoke };
inline constexpr size_t kAnchors = 2;

// One call of it that wrote a record: from its entry to the first time known to be after its end.

struct AnchorVisit {
  Anchor anchor = Anchor::kSwitch;
  int32_t cpu = -1;
  TimeBounds time;
};

struct SegmentFacts {
  IpHash ips;
  bool constant = true;  // only text that never changes ran, and no trace is missing
};

// What the decoded flow gives beyond what Coverage counts.
struct FlowFacts {
  struct Cause {
    uint64_t count = 0;
    std::vector<std::string> places;  // the first ones, with the text that was there
  };
  static constexpr size_t kMostDisagreements = 64;
  static constexpr size_t kMostVisits = 1U << 20U;

  struct Doubt {
    uint64_t count = 0;
    uint64_t good = 0, good_since = 0;  // visits that did fit, between the first and the last; after the last
    Time time = kTimeMin;               // first
    int32_t cpu = -1;
    // 1: since the first one all were bad. A site whose change is missing is conspicuous, one that is merely
    // on the path to it is not.
    double share() const { return static_cast<double>(count) / static_cast<double>(count + good); }
  };
  static constexpr size_t kMostDoubts = 4096;

  std::map<Code, Cause> gaps;                            // by code
  std::map<Addr, Doubt> contradicted;                    // sites whose versions all contradicted the trace
  std::vector<std::pair<size_t, size_t>> disagreements;  // stream and segment of the first E-FLOW gaps
  std::map<std::pair<size_t, size_t>, SegmentFacts> segments;
  std::vector<AnchorVisit> visits;
  std::array<uint64_t, 5> by_confidence{};
  uint64_t sync_points = 0,
           interrupted = 0;  // interrupted: at an address that the trace named and the walk met
};

// Fills FlowFacts from chunks in stream order. prepare() may be called by many threads.
class FlowObserver {
 public:
  // A step of text that changes: its entry, and which of the loose steps it is.
  struct VersionedStep {
    size_t position, loose;
  };
  struct Prepared {
    Tally tally;
    bool constant = true;
    std::vector<VersionedStep> versioned;
    std::vector<AnchorVisit> visits;
  };
  FlowObserver(const Capture& capture, const LiveEvents& events);

  void prepare(const Chunk& chunk, const Stream& stream, Prepared& out) const;
  // Of the chunk's steps only the loose ones are read.
  void add(const Chunk& chunk, const Stream& stream, Prepared& prepared);
  FlowFacts take() { return std::move(facts_); }

 private:
  struct Writer {
    Anchor anchor;
    Addr end;
  };

  void find_visits(const Chunk& chunk, const Stream& stream, Prepared& out) const;
  const Writer* writer_at(Addr ip) const;
  void add_gap(const Chunk& chunk, const Stream& stream, const Gap& gap);
  void count_doubt(const Step& step, const Stream& stream);

  const Capture& capture_;
  const LiveEvents& events_;
  std::map<Addr, Writer> anchors_;  // by entry
  std::vector<Addr> written_;       // entries of perf_output_end()
  FlowFacts facts_;
  // The last site with more than one version that was walked, and its stream.
  size_t versioned_stream_ = SIZE_MAX;
  Addr versioned_ip_ = 0;
  OriginRef versioned_origin_ = kNoOrigin;
};

struct ValidationInput {
  const Capture& capture;
  const HealthInput& health;
  const LiveEvents& events;
  const FlowFacts& flow;
  const Coverage& coverage;
  const PipelineOptions& options;
  double min_coverage = 99.9;        // percent of traced time, losses of trace left out
  uint64_t cross_check = 16U << 20;  // bytes of trace that the reference decodes; 0: none
};

// The questions. Each adds its answers.
void check_flow(const ValidationInput& in, std::vector<Check>& out);        // flow, sync, confidence
void check_coverage(const ValidationInput& in, std::vector<Check>& out);    // text, losses
void check_records(const ValidationInput& in, std::vector<Check>& out);     // chain, changes, kcore, files
void check_start_copy(const ValidationInput& in, std::vector<Check>& out);  // start
void check_batches(const ValidationInput& in, std::vector<Check>& out);     // batches
void check_times(const ValidationInput& in, std::vector<Check>& out);       // clock
void check_reference(const ValidationInput& in, std::vector<Check>& out);   // reference

// Where trace and text disagree: does that end when the trace's clock is moved? Empty: no, or not tried.
std::string find_clock_shift(const ValidationInput& in);

}  // namespace asof
