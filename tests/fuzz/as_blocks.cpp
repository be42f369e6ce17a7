#include "tests/fuzz/as_blocks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "decoder/blocks/block_writer.h"
#include "decoder/calls/call_part.h"
#include "decoder/calls/call_stub.h"
#include "decoder/calls/cycle_costs.h"
#include "decoder/calls/timeline.h"
#include "tests/fuzz/decode_all.h"
#include "tests/fuzz/fuzz.h"

namespace asof::fuzz {
namespace {

class BlockRecorder final : public ChunkConsumer {
 public:
  explicit BlockRecorder(const Capture& capture)
      : job_(capture, {}),
        stubs_(capture, job_),
        writer_(
            capture, [this](Bytes b) { written_.insert(written_.end(), b.begin(), b.end()); }, true) {}
  void deliver(Chunk& chunk, const Stream&, Prepared*) override { writer_.add(chunk, stubs_.of(chunk)); }
  const std::vector<uint8_t>& finish() {
    writer_.finish();
    return written_;
  }

 private:
  FlowJob job_;
  CallStubs stubs_;
  std::vector<uint8_t> written_;
  blocks::BlockWriter writer_;
};

// All that a timeline has of calls, in order, and of the rest.
class Told final : public TimelineSink {
 public:
  void slice(const Slice& s) override {
    Sum& sum = slices;
    sum.add(s.id), sum.add(s.parent), sum.add(tracks_[s.track].value), sum.add(functions_[s.function].value),
        sum.add(s.instructions);
    sum.add(s.self_instructions), sum.add(s.entry), sum.add(s.call_site), sum.add(s.flags),
        sum.add(s.version);
    sum.add(s.begin), sum.add(s.end), sum.add(s.confidence), sum.add(s.cpu);
  }
  // Parts number functions in another order.
  void track(const TimelineTrack& t) override {
    Sum& sum = tracks_[t.id];
    sum = {}, sum.add(t.kind), sum.add(t.cpu), sum.add(t.tid);
    for (const char c : t.name) sum.add(c);
  }
  void function(const TimelineFunction& f) override {
    Sum& sum = functions_[f.id];
    sum = {}, sum.add(f.key), sum.add(f.kind), sum.add(f.range.begin), sum.add(f.changes.size());
    for (const char c : f.name) sum.add(c);
  }
  void gap(const GapSlice& g) override {
    gaps.add(g.stream), gaps.add(g.begin), gaps.add(g.end), gaps.add(g.code), gaps.add(g.ip),
        gaps.add(g.bytes);
  }
  void event(const EventMark& e) override {
    events.add(e.stream), events.add(e.event.kind), events.add(e.event.a), events.add(e.event.time);
  }
  void run(const RunSlice& r) override {
    rest.add(r.cpu), rest.add(r.tid), rest.add(r.begin), rest.add(r.end);
  }
  void poke(const PokeSlice& p) override {
    rest.add(p.address), rest.add(p.begin), rest.add(p.end), rest.add(p.mechanism), rest.add(p.breakpoints);
    rest.add(p.visits.size());
  }
  void lifetime(const LifetimeSlice& l) override {
    rest.add(l.range.begin), rest.add(l.begin), rest.add(l.end);
  }
  bool operator==(const Told& other) const {
    return slices == other.slices && gaps == other.gaps && events == other.events && rest == other.rest;
  }
  Sum slices, gaps, events, rest;

 private:
  std::map<uint32_t, Sum> tracks_, functions_;
};

TimelineSummary follow(const Capture& capture, Told& told, std::optional<Shard> part = {}) {
  TimelineOptions options;
  options.pipeline.jobs = 1;
  const auto done =
      part ? run_timeline_part(capture, options, *part, told) : run_timeline(capture, options, told);
  FUZZ_CHECK(done.has_value());
  return *done;
}

// Kernel text that changes, with all that it can have been.
uint64_t changes_of(const TextStore& text) {
  Sum sum;
  for (const Cell& cell : text.cells(kKernelSpace, {Addr{1} << 63U, UINT64_MAX})) {
    if (cell.versions.empty() || cell.stable()) continue;
    sum.add(cell.range.begin), sum.add(cell.range.end);
    for (const Version& v : cell.versions) {
      sum.add(v.from), sum.add(v.until), sum.add(v.unsure), sum.add(v.origin), sum.add(v.bytes != nullptr);
      for (size_t i = 0; v.bytes != nullptr && i < cell.range.size(); ++i) sum.add(v.bytes[i]);
    }
  }
  for (const PokeRecord& p : text.pokes()) sum.add(p.addr), sum.add(p.time), sum.add(p.old_len);
  for (const LostRecords& l : text.losses()) sum.add(l.after), sum.add(l.until), sum.add(l.count);
  sum.add(text.unsure_from());
  return sum.value;
}

}  // namespace

void check_block_stream(const Capture& capture, const std::string& path) {
  PipelineOptions pipeline;
  pipeline.jobs = 1;
  BlockRecorder recorder(capture);
  FUZZ_CHECK(run_pipeline(capture, pipeline, ChunkOrder::kByTime, recorder).has_value());
  write_file(path, recorder.finish());
  CaptureOptions options;
  options.host_files = false;
  options.jobs = 1;
  const auto copy = open_capture(path, options);
  FUZZ_CHECK(copy.has_value());
  FUZZ_CHECK(changes_of(*copy->text) == changes_of(*capture.text));
  FUZZ_CHECK(decode_all(*copy, pipeline).value() == decode_all(capture, pipeline).value());
  Told whole, back, parts;
  const TimelineSummary summary = follow(capture, whole);
  follow(*copy, back);
  FUZZ_CHECK(whole == back);
  uint64_t of_parts = 0;
  for (const uint32_t k : {0U, 1U}) of_parts += follow(*copy, parts, Shard{k, 2}).slices;
  FUZZ_CHECK(of_parts == summary.slices && parts.slices == whole.slices && parts.gaps == whole.gaps);
}

void check_folded(const Capture& capture) {
  TimelineOptions options;
  options.pipeline.jobs = 1;
  const auto folded = make_timeline(capture, options, {.slices = 20, .events = 5, .blocks = 5});
  FUZZ_CHECK(folded.has_value());
  FUZZ_CHECK(folded->slices.size() + folded->folded == folded->summary.slices);
}

void check_cycles(const Capture& capture) {
  PipelineOptions options;
  options.jobs = 1;
  CycleCosts costs(capture);
  FUZZ_CHECK(count_cycles(capture, options, costs).has_value());
  const auto in_order = [](const CycleCost& c) {
    return c.cycles_least <= c.cycles_most && c.instructions_least <= c.instructions_most;
  };
  FUZZ_CHECK(std::ranges::all_of(costs.functions(), in_order, &FunctionCycles::cost));
  FUZZ_CHECK(std::ranges::all_of(costs.blocks(), in_order, &BlockCycles::cost));
  FUZZ_CHECK(std::ranges::all_of(costs.calls(), [](const CallCycles& c) { return c.least <= c.most; }));
}

}  // namespace asof::fuzz
