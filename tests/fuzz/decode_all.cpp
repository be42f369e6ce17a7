#include "tests/fuzz/decode_all.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "arch/chunk_items.h"
#include "arch/x86/packet.h"
#include "decoder/calls/timeline.h"
#include "decoder/io/thrown_error.h"
#include "tests/fuzz/fuzz.h"

namespace asof::fuzz {

void FlowSum::deliver(Chunk& chunk, const Stream&, Prepared*) {
  ChunkItems items(chunk);
  const auto before = [&](size_t position) {
    items.before(
        position, [&](const Gap& g) { add_gap(chunk.stream, g); },
        [&](const Event& e) { add_event(chunk.stream, e); });
  };
  for (auto step = chunk.steps.begin(); step != chunk.steps.end(); ++step) {
    before(step.position());
    add_step(chunk.stream, *step);
    instructions_ += step->count;
  }
  for (const Event& e : chunk.events) FUZZ_CHECK(e.step <= chunk.steps.size());
  for (const Gap& g : chunk.gaps)
    FUZZ_CHECK(g.step <= chunk.steps.size() && g.begin <= g.end && g.code != Code::kNone);
  before(chunk.steps.size());
}

uint64_t FlowSum::value() const {
  Sum all;
  for (const auto& [stream, sum] : streams_) all.add(stream), all.add(sum.value);
  return all.value;
}

void FlowSum::add(size_t stream, std::initializer_list<uint64_t> item) {
  Sum sum;
  sum.add(stream);
  for (const uint64_t number : item) sum.add(number);
  streams_[stream].add(sum.value);
  unordered_ += sum.value;
}

// By instruction: where blocks end is no part of the flow.
void FlowSum::add_step(size_t stream, const Step& s) {
  FUZZ_CHECK(s.count != 0 && s.count <= s.block->count);
  Addr ip = s.block->ip;
  for (uint32_t i = 0; i < s.count; ++i) {
    add(stream, {ip, static_cast<uint64_t>(s.confidence), static_cast<uint64_t>(s.time)});
    ip += s.block->lengths[i];
  }
  FUZZ_CHECK(ip <= s.block->end());
}

void FlowSum::add_event(size_t stream, const Event& e) {
  add(stream, {static_cast<uint64_t>(e.kind), e.ip, e.a, e.b, e.offset, static_cast<uint64_t>(e.time)});
}

void FlowSum::add_gap(size_t stream, const Gap& g) {
  add(stream, {static_cast<uint64_t>(g.code), g.begin, g.end, g.ip, g.resume_ip});
}

namespace {

// The instructions of each segment, up to its first gap.
class SegmentFlow final : public ChunkConsumer {
 public:
  struct Found {
    std::vector<Addr> ips;
    size_t sure = 0;  // the last that is certain or proved is one of so many
    bool gap = false;
  };

  void deliver(Chunk& chunk, const Stream&, Prepared*) override {
    Found& found = segments_[{chunk.stream, chunk.segment}];
    if (found.gap) return;
    found.gap = !chunk.gaps.empty();
    // Entries are counted, of which some have several blocks.
    const size_t last = found.gap ? chunk.gaps.front().step : chunk.steps.size();
    for (auto step = chunk.steps.begin(); step != chunk.steps.end() && step.position() < last; ++step) {
      Addr ip = step->block->ip;
      for (uint32_t i = 0; i < step->count; ++i) {
        found.ips.push_back(ip);
        ip += step->block->lengths[i];
      }
      if (step->confidence <= Confidence::kProved) found.sure = found.ips.size();
    }
  }
  const std::map<std::pair<size_t, size_t>, Found>& segments() const { return segments_; }

 private:
  std::map<std::pair<size_t, size_t>, Found> segments_;
};

}  // namespace

FlowSum decode_all(const Capture& capture, const PipelineOptions& options) {
  FlowSum sum;
  const auto done = run_pipeline(capture, options, ChunkOrder::kByStream, sum);
  FUZZ_CHECK(done.has_value());
  return sum;
}

namespace {

class Followed final : public TimelineSink {
 public:
  void slice(const Slice& s) override { FUZZ_CHECK(s.begin <= s.end); }
  void run(const RunSlice& r) override { FUZZ_CHECK(r.begin <= r.end); }
  void gap(const GapSlice& g) override { FUZZ_CHECK(g.begin <= g.end); }
};

}  // namespace

void follow_calls(const Capture& capture) {
  TimelineOptions options;
  options.pipeline.jobs = 1;
  options.detail = true;
  Followed sink;
  FUZZ_CHECK(run_timeline(capture, options, sink).has_value());
}

std::optional<uint64_t> decode_opened(const Result<Capture>& capture) {
  if (!capture) {
    FUZZ_CHECK(!capture.error().reason.empty());
    return std::nullopt;
  }
  if (!capture->arch()) return std::nullopt;
  PipelineOptions pipeline;
  pipeline.jobs = 1;
  try {
    const uint64_t sum = decode_all(*capture, pipeline).value();
    follow_calls(*capture);
    return sum;
  } catch (const ThrownError& e) {
    FUZZ_CHECK(e.error().code == Code::kTraceChanged);
    return std::nullopt;
  }
}

void check_same_flow(const Capture& capture, bool with_threads) {
  PipelineOptions one, four, plain;
  one.jobs = plain.jobs = 1;
  four.jobs = 4;
  plain.decode.block_cache = false;
  const uint64_t sum = decode_all(capture, one).value();
  FUZZ_CHECK(decode_all(capture, plain).value() == sum);
  follow_calls(capture);
  if (with_threads) FUZZ_CHECK(decode_all(capture, four).value() == sum);
}

namespace {

// Intel PT: does libipt make no event of a packet? Of a FUP in front of missing trace: it leaves out what ran up to there, too.
// Of a TIP.PGD with an address that no branch goes to: it goes on there. Which branches there are, the packets do not say.
bool reference_misses_event(const Stream& stream, const Segment& segment) {
  std::vector<uint8_t> scratch;
  const auto bytes = stream.bytes(segment.begin, segment.end, scratch);
  const uint8_t* p = bytes.data();
  const uint8_t* const end = p + bytes.size();
  bool fup = false;  // nothing of the flow followed it
  for (uint8_t block_bytes = 0;;) {
    const x86::Packet k = x86::read_packet(p, end, block_bytes);
    switch (k.type) {
      case x86::Pk::kEnd:
      case x86::Pk::kBad:
        return fup;
      case x86::Pk::kOvf:
        if (fup) return true;
        break;
      case x86::Pk::kFup:
        fup = true;
        break;
      case x86::Pk::kPgd:
        if (k.ipc != 0) return true;
        [[fallthrough]];
      case x86::Pk::kTnt:
      case x86::Pk::kTip:
      case x86::Pk::kPge:
        fup = false;
        break;
      default:
        break;
    }
    block_bytes = x86::next_block_bytes(k, block_bytes);
    p += k.size;
  }
}

// By stream and index of the segment.
std::set<std::pair<size_t, size_t>> not_to_compare(const Capture& capture) {
  std::set<std::pair<size_t, size_t>> out;
  const auto arch = capture.arch();
  if (!arch || capture.machine != "x86_64") return out;
  for (size_t i = 0; i < capture.streams.size(); ++i) {
    for (const Segment& segment : (*arch)->split(capture.streams[i], i)) {
      if (reference_misses_event(capture.streams[i], segment)) out.emplace(i, segment.index);
    }
  }
  return out;
}

}  // namespace

void check_as_reference(const Capture& capture) {
  PipelineOptions own, theirs;
  own.jobs = theirs.jobs = 1;
  theirs.decode.reference_engine = true;
  SegmentFlow here, there;
  FUZZ_CHECK(run_pipeline(capture, theirs, ChunkOrder::kByStream, there).has_value());
  if (std::ranges::all_of(there.segments(),
                          [](const auto& s) { return s.second.gap || s.second.ips.empty(); }))
    return;
  FUZZ_CHECK(run_pipeline(capture, own, ChunkOrder::kByStream, here).has_value());
  const auto skip = not_to_compare(capture);
  for (const auto& [key, found] : there.segments()) {
    if (found.gap || skip.contains(key)) continue;
    const auto ours = here.segments().find(key);
    FUZZ_CHECK(ours != here.segments().end());
    // What the reference does not notice (bytes that are no instruction, a branch that the text does not have) is a gap.
    // Where it waits for a packet that damage took away, it ends without a word; nothing behind that is sure.
    const std::vector<Addr>& ips = ours->second.ips;
    const size_t both = std::min(ips.size(), found.ips.size());
    FUZZ_CHECK(ours->second.gap || ips.size() >= found.ips.size());
    FUZZ_CHECK(ours->second.sure <= found.ips.size());
    FUZZ_CHECK(std::ranges::equal(std::span(ips).first(both), std::span(found.ips).first(both)));
  }
}

}  // namespace asof::fuzz
