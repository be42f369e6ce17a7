// Calls as they end, and a Timeline in memory.
#include "asof/timeline.h"

#include <atomic>
#include <deque>
#include <thread>
#include <utility>

#include "api/capture_data.h"
#include "api/convert.h"
#include "api/handover.h"
#include "api/record_source.h"
#include "decoder/calls/timeline.h"
#include "textstore/check.h"

namespace asof::v0 {
namespace {

static_assert(kCallAsync == asof::Slice::kAsync && kCallSyscall == asof::Slice::kSyscall &&
              kCallTail == asof::Slice::kTail && kCallEmulated == asof::Slice::kEmulated &&
              kCallBeganBefore == asof::Slice::kBeganBefore && kCallAcrossGap == asof::Slice::kAcrossGap &&
              kCallEndUnknown == asof::Slice::kEndUnknown && kCallSkipped == asof::Slice::kSkipped &&
              kCallResumed == asof::Slice::kResumed && kCallSwitchedOut == asof::Slice::kSwitchedOut &&
              kCallUnbalanced == asof::Slice::kUnbalanced && kCallSignal == asof::Slice::kSignal &&
              kCallClippedBegin == asof::Slice::kClippedBegin && kCallClippedEnd == asof::Slice::kClippedEnd);
static_assert(std::to_underlying(FunctionKind::kUntraced) ==
              std::to_underlying(asof::TimelineFunction::Kind::kUntraced));
static_assert(std::to_underlying(TextLifetime::Kind::kSnapshot) ==
              std::to_underlying(asof::LifetimeSlice::Kind::kSnapshot));

constexpr size_t kBatch = 1024;             // calls
constexpr uint64_t kMostWaiting = 4 << 20;  // bytes of calls between the pipeline and the reader

asof::TimelineOptions to_internal(const Filter& filter, Tracks tracks) {
  asof::TimelineOptions out;
  out.pipeline = v0::to_internal(filter);
  out.cpu_tracks = tracks == Tracks::kCpu;
  out.thread_tracks = tracks == Tracks::kThread;
  return out;
}

// The strings stay with the function and the track.
Call to_public(const asof::Slice& s, const asof::TimelineFunction& f, const asof::TimelineTrack& track) {
  Call c;
  c.id = s.id;
  c.parent = s.parent;
  c.function = f.name;
  c.dso = f.dso;
  c.kind = static_cast<FunctionKind>(f.kind);
  c.confidence = v0::to_public(s.confidence);
  c.version = s.version;
  c.versions = f.versions();
  c.begin = s.begin;
  c.end = s.end;
  c.instructions = s.instructions;
  c.self_instructions = s.self_instructions;
  c.entry = s.entry;
  c.call_site = s.call_site;
  c.cpu = s.cpu;
  c.pid = track.pid;
  c.tid = track.tid;
  c.flags = s.flags;
  c.depth = s.depth;
  return c;
}

class CallSource final : public RecordSource<Call>, private asof::TimelineSink {
 public:
  CallSource(std::shared_ptr<const CaptureData> data, const CallOptions& options)
      : data_(std::move(data)),
        options_(to_internal(options.filter, options.tracks)),
        batches_(kMostWaiting) {
    // Of all that a sink receives, only slices are wanted.
    making_.reserve(kBatch);
  }
  ~CallSource() override {
    closed_ = true;
    batches_.close();
    if (thread_.joinable()) thread_.join();
  }

  std::span<const Call> next() override {
    if (!thread_.joinable()) thread_ = std::thread([this] { decode(); });
    reading_.clear();
    if (!batches_.take(reading_)) reading_.clear();
    return reading_;
  }

 private:
  void function(const asof::TimelineFunction& f) override { at(functions_, f.id) = f; }
  void track(const asof::TimelineTrack& t) override { at(tracks_, t.id) = t; }
  void slice(const asof::Slice& s) override {
    making_.push_back(to_public(s, functions_[s.function], tracks_[s.track]));
    if (making_.size() == kBatch) hand_over();
  }
  bool stopped() const override { return closed_; }

  // By id, at an address that does not change.
  template <class T>
  static T& at(std::deque<T>& list, size_t id) {
    while (list.size() <= id) list.emplace_back();
    return list[id];
  }
  void hand_over() {
    if (making_.empty()) return;
    batches_.give(making_, making_.size() * sizeof(Call));
    making_.reserve(kBatch);
  }
  void decode() {
    std::exception_ptr error;
    try {
      // open() has checked for the backend, which is all that can fail.
      const auto done = asof::run_timeline(data_->capture, options_, *this);
      ASOF_CHECK(done);
      hand_over();
    } catch (...) {
      error = std::current_exception();
    }
    batches_.end(error);
  }

  const std::shared_ptr<const CaptureData> data_;
  const asof::TimelineOptions options_;
  Handover<std::vector<Call>> batches_;
  std::atomic<bool> closed_ = false;
  std::thread thread_;
  std::vector<Call> reading_;
  // Of the decoding side.
  std::vector<Call> making_;
  std::deque<asof::TimelineFunction> functions_;
  std::deque<asof::TimelineTrack> tracks_;
};

Gap to_public(const asof::GapSlice& g) {
  Gap out{text_of(g.code), g.reason, {g.begin, g.end}, g.ip, g.resume_ip};
  out.end = g.bytes;
  out.file_offset = g.file_offset;
  out.cpu = g.cpu;
  out.tid = g.tid;
  return out;
}

ChangeSlice to_public(const asof::PokeSlice& p) {
  ChangeSlice out{p.index,  p.begin,  p.end, std::string(asof::mechanism_name(p.mechanism)),
                  p.action, p.symbol, {}};
  for (const asof::PokeVisit& v : p.visits)
    out.visits.push_back({v.cpu, v.last_old, v.first_new, v.breakpoints});
  return out;
}

TextLifetime to_public(const asof::LifetimeSlice& l) {
  return {static_cast<TextLifetime::Kind>(l.kind),
          l.name,
          v0::to_public(l.range),
          {l.begin, l.end},
          l.bpf_id,
          l.bpf_tag};
}

}  // namespace

struct Timeline::Data {
  asof::Timeline timeline;  // has the names
  std::vector<Call> calls;
  std::vector<ChangeSlice> changes;
  std::vector<RunSlice> runs;
  std::vector<Gap> gaps;
  std::vector<TextLifetime> lifetimes;
};

Timeline::Timeline(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
std::span<const Call> Timeline::calls() const { return data_->calls; }
std::span<const ChangeSlice> Timeline::changes() const { return data_->changes; }
std::span<const RunSlice> Timeline::runs() const { return data_->runs; }
std::span<const Gap> Timeline::gaps() const { return data_->gaps; }
std::span<const TextLifetime> Timeline::lifetimes() const { return data_->lifetimes; }
uint64_t Timeline::instructions() const { return data_->timeline.summary.instructions; }
uint64_t Timeline::folded() const { return data_->timeline.folded; }

Calls Capture::calls(const CallOptions& options) const {
  return Calls(std::make_unique<CallSource>(data_, options));
}

Timeline Capture::timeline(const TimelineOptions& options) const {
  asof::TimelineLimits limits;
  limits.slices = options.max_calls;
  auto made = asof::make_timeline(data_->capture, to_internal(options.filter, options.tracks), limits);
  ASOF_CHECK(made);  // open() has checked for the backend, which is all that can fail
  auto data = std::make_shared<Timeline::Data>();
  data->timeline = *std::move(made);
  asof::Timeline& t = data->timeline;
  data->calls.reserve(t.slices.size());
  for (const asof::Slice& s : t.slices)
    data->calls.push_back(to_public(s, t.functions[s.function], t.tracks[s.track]));
  for (const asof::PokeSlice& p : t.pokes) data->changes.push_back(to_public(p));
  for (const asof::RunSlice& r : t.runs) data->runs.push_back({r.cpu, r.pid, r.tid, r.comm, r.begin, r.end});
  for (const asof::GapSlice& g : t.gaps) data->gaps.push_back(to_public(g));
  for (const asof::LifetimeSlice& l : t.lifetimes) data->lifetimes.push_back(to_public(l));
  // Everything except the names is in its public form now.
  t.slices = {};
  t.events = {};
  t.counters = {};
  return Timeline(std::move(data));
}

}  // namespace asof::v0
