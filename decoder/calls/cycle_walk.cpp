#include "decoder/calls/cycle_walk.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "arch/chunk_items.h"

namespace asof {

bool is_decision(const Step& s) {
  if (s.count != s.block->count) return false;
  switch (s.block->kind) {
    case BranchKind::kNone:
    case BranchKind::kJump:
    case BranchKind::kCall:
    case BranchKind::kPtwrite:  // may be without a packet
    case BranchKind::kPaging:
      return false;
    default:
      return true;
  }
}

bool has_cycles(const Chunk& chunk) {
  return std::ranges::any_of(chunk.events, [](const Event& e) { return e.kind == EventKind::kCycles; });
}

Error no_cycles(const Capture& capture) {
  if (capture.blocks) {
    return {Code::kNoCyclePackets, capture.path, Error::kNoOffset, "a block stream has no counts of cycles",
            "name the recording that it was made of"};
  }
  const bool pt = capture.machine == "x86_64";
  return {Code::kNoCyclePackets, capture.path, Error::kNoOffset,
          pt ? "there are no CYC packets in this trace"
             : "there are no cycle counts in this trace, or none of instructions that had retired",
          pt ? "record with -e intel_pt/cyc,cyc_thresh=0/"
             : "record with -e cs_etm/cycacc/; trace units that speculate (TRCIDR8 not 0) are not counted"};
}

void CycleWalk::settle() {
  if (open_ && std::exchange(doubtful_, false)) settled();
}

void CycleWalk::lose() {
  if (!std::exchange(open_, false)) return;
  doubtful_ = false;
  end();
}

void CycleWalk::on_count(const Event& e, size_t index) {
  constexpr uint64_t kUnknown = 1;  // Event::b
  settle();
  if (e.b == kUnknown) lose();
  if (open_) {
    count(e.a, index);
  } else {
    begin();
  }
  open_ = doubtful_ = true;
}

void CycleWalk::on_event(const Event& e, size_t index) {
  switch (e.kind) {
    case EventKind::kCycles:
      return on_count(e, index);
    case EventKind::kAsync:
      return settle();
    case EventKind::kTraceStart:
    case EventKind::kTraceStop:
    case EventKind::kOverflow:
      settle();
      return lose();
    default:
      return;
  }
}

void CycleWalk::take(const Chunk& chunk) {
  if (chunk.segment != segment_) {
    lose();
    segment_ = chunk.segment;
  }
  ChunkItems items(chunk);
  const auto items_before = [&](size_t index) {
    items.before(
        index, [&](const Gap&) { lose(); }, [&](const Event& e) { on_event(e, items.events_taken() - 1); });
  };
  for (auto s = chunk.steps.begin(); s != chunk.steps.end(); ++s) {
    items_before(s.position());
    if ((s->flags & Step::kAfterGap) != 0) lose();
    if (!open_ || s->count == 0) continue;
    step(*s, doubtful_);
    if (is_decision(*s)) settle();
  }
  items_before(SIZE_MAX);
}

namespace {

class SpansOfChunk final : public CycleWalk {
 public:
  std::vector<CycleSpan> spans;

 private:
  void begin() override { now_ = {}; }
  void step(const Step& s, bool doubtful) override {
    now_.instructions += s.count;
    now_.most += s.count;
    if (!doubtful) now_.least += s.count;
    if (doubtful && before_) before_->most += s.count;
  }
  void count(uint64_t cycles, size_t event) override {
    settled();
    now_.cycles = cycles;
    now_.event = event;
    before_ = std::exchange(now_, {});
  }
  void settled() override {
    if (before_) spans.push_back(*std::exchange(before_, std::nullopt));
  }
  void end() override { before_.reset(); }

  CycleSpan now_;
  std::optional<CycleSpan> before_;  // whose end is not settled
};

}  // namespace

std::vector<CycleSpan> cycle_spans(const Chunk& chunk) {
  SpansOfChunk walk;
  walk.take(chunk);
  walk.finish();
  return std::move(walk.spans);
}

}  // namespace asof
