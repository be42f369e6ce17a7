#include "tools/profile/branch_count.h"

#include <algorithm>
#include <utility>

#include "tools/decode/decode_style.h"
#include "tools/output/output.h"
#include "tools/output/tally.h"

namespace asof {
namespace {

constexpr size_t kMaxSlots = size_t{1} << 22;  // of one reader: 32 MiB
constexpr size_t kMaxMore = size_t{1} << 21;   // pairs beside

Step step_of(const Run& run, const Block* const* blocks, StepCode code, size_t i, Time t) {
  const Block& b = *blocks[i];
  Step s{.block = &b, .time = t, .count = b.count, .confidence = run.confidence};
  if (leaves_by_branch(b.kind, i + 1 == run.size, taken_bit(code) != 0)) s.flags = Step::kTaken;
  return s;
}

}  // namespace

BranchCountReader::BranchCountReader(const Capture& capture, const std::vector<std::string>& dsos,
                                     TimeBounds time)
    : time_(time),
      names_(capture, dsos),
      flow_(time, [this](const TakenBranch& b) { counts_.add(b, names_); }) {}

Time BranchCountReader::time_of(size_t position) {
  const auto times = steps_->times();
  while (time_mark_ < times.size() && times[time_mark_].position <= position) ++time_mark_;
  return time_mark_ == 0 ? kTimeMin : times[time_mark_ - 1].time;
}

void BranchCountReader::items_before(ChunkItems& items, const Stream& stream, size_t index) {
  items.before(
      index,
      [&](const Gap&) {
        settle();
        flow_.lose();
      },
      [&](const Event& e) {
        if (!BranchFlow::matters(e)) return;
        settle();
        flow_.event(stream, e);
      });
}

void BranchCountReader::read(const Chunk& chunk, const Stream& stream, ChunkEnds& out) {
  const size_t size = chunk.steps.size();
  if (size == 0) return;
  if (chunk.steps.table() != nullptr && chunk.steps.table() != table_) {
    resolve();
    table_ = chunk.steps.table();
  }
  steps_ = &chunk.steps;
  loose_ = time_mark_ = 0;
  open_ = StepCode::kLoose;
  flow_.lose();
  out.first = *chunk.steps.begin();
  ChunkItems items(chunk);
  items.skip_first();
  for (size_t at = 0; at < size;) {
    items.skip_events([](const Event& e) { return !BranchFlow::matters(e); });
    const size_t item = std::min(size, items.next_at());
    if (item > at) entries(at, item);
    at = std::max(at, item);
    if (at < size) items_before(items, stream, at);
  }
  items_before(items, stream, SIZE_MAX);
  settle();
  out.last = flow_.last();
}

// Most go from one run to the one that came after it the first time, too.
void BranchCountReader::entries(size_t from, size_t to) {
  constexpr size_t kAhead = 16;
  const std::span<const StepCode> codes = steps_->codes();
  const bool all_times = time_.lo == kTimeMin && time_.hi == kTimeMax;
  for (size_t i = from; i < to; ++i) {
    if (open_ != StepCode::kLoose && all_times) {
      StepCode last = open_;
      Slot* const slots = slots_.data();
      const size_t begin = i;
      for (; i < to; ++i) {
        if (i + kAhead < codes.size()) __builtin_prefetch(slots + slot_of(codes[i + kAhead]), 1);
        const StepCode code = codes[i];
        Slot& slot = slots[slot_of(last)];
        if (slot.next != run_of(code) || slot.count == UINT32_MAX) break;
        ++slot.count;
        last = code;
      }
      if (i != begin) open_ = last, open_at_ = i - 1;
      if (i == to) return;
    }
    entry(codes[i], i);
    if (!all_times) settle();  // each has its own time
  }
}

void BranchCountReader::entry(StepCode code, size_t position) {
  if (code == StepCode::kLoose) {
    settle();
    flow_.step(steps_->loose()[loose_++]);
    return;
  }
  const bool has_slot = slot_of(code) < kMaxSlots;
  if (has_slot && slot_of(code) >= slots_.size()) {
    slots_.resize(std::min(std::max((slot_of(code) | 1U) + 1, 2 * slots_.size()), kMaxSlots));
    states_.resize(slots_.size() / 2);
  }
  if (!has_slot || open_ == StepCode::kLoose || !count_pair(code)) {
    settle();
    const Block& first = *steps_->run_blocks(code)[0];
    flow_.go_to(first.ip, first.space);
  }
  open_ = code;
  open_at_ = position;
  if (!has_slot) settle();
}

// From the open run to the next, with nothing in between. False: each visit has to be looked at.
bool BranchCountReader::count_pair(StepCode next) {
  if (!is_fixed(open_) || !is_fixed(next)) return false;
  const RunId run = run_of(next);
  Slot& slot = slots_[slot_of(open_)];
  if (slot.next == RunId::kNone) {
    slot = {run, 1};
  } else if (slot.next == run) {
    more_[pair_key(open_, run)] += std::exchange(slot.count, 1);
  } else {
    ++more_[pair_key(open_, run)];
    if (more_.size() > kMaxMore) resolve();
  }
  return true;
}

// Counts what the open run does itself; where it is left for is seen by what comes next.
void BranchCountReader::settle() {
  if (open_ == StepCode::kLoose) return;
  const StepCode code = std::exchange(open_, StepCode::kLoose);
  const Run& run = steps_->run(code);
  const Block* const* blocks = steps_->run_blocks(code);
  const Time t = time_of(open_at_);
  flow_.set_last(step_of(run, blocks, code, 0, t));
  for (size_t i = 1; i < run.size; ++i) flow_.step(step_of(run, blocks, code, i, t));
}

bool BranchCountReader::is_fixed(StepCode code) {
  State& state = states_[index_of(run_of(code))];
  if (state != State::kUnknown) return state == State::kFixed;
  const Block* const* blocks = steps_->run_blocks(code);
  const bool fixed = std::all_of(blocks, blocks + steps_->run(code).size, [&](const Block* b) {
    return names_.holds(b->space, b->ip) && names_.holds(b->space, b->end() - b->lengths[b->count - 1]);
  });
  state = fixed ? State::kFixed : State::kOther;
  return fixed;
}

void BranchCountReader::resolve(StepCode code, RunId next, uint64_t times) {
  const Run& run = (*table_)[run_of(code)];
  const Block* const* blocks = table_->blocks(run_of(code));
  for (size_t i = 0; i < run.size; ++i) {
    const Block& b = *blocks[i];
    const bool last = i + 1 == run.size;
    if (!is_branch(b.kind) || !leaves_by_branch(b.kind, last, taken_bit(code) != 0)) continue;
    const Block& to = last ? *table_->blocks(next)[0] : *blocks[i + 1];
    if (to.ip == 0) continue;
    // Their names are those of any time.
    counts_.add({b.end() - b.lengths[b.count - 1], to.ip, 0, branch_flags(b), b.space, to.space, false},
                names_, times);
  }
}

void BranchCountReader::resolve() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].next == RunId::kNone) continue;
    const StepCode code = step_code(RunId{static_cast<uint32_t>(i / 2)}, static_cast<uint32_t>(i % 2));
    resolve(code, slots_[i].next, slots_[i].count);
    slots_[i] = {};
  }
  for (const auto& [key, count] : more_) {
    const auto slot = static_cast<uint32_t>(key >> 32U);
    resolve(step_code(RunId{slot / 2}, slot % 2), RunId{static_cast<uint32_t>(key)}, count);
  }
  more_.clear();
  std::ranges::fill(states_, State::kUnknown);
}

void BranchCountReader::finish(BranchCounts& all) {
  resolve();
  all.add(counts_);
}

CountedBranches::CountedBranches(const Capture& capture, std::vector<std::string> dsos, TimeBounds time)
    : names_(capture, dsos),
      flows_(capture.streams.size(),
             BranchFlow(time, [this](const TakenBranch& b) { counts_.add(b, names_); })),
      readers_([&capture, dsos = std::move(dsos), time] { return BranchCountReader(capture, dsos, time); }) {}

std::unique_ptr<ChunkConsumer::Prepared> CountedBranches::prepare(const Chunk& chunk, const Stream& stream) {
  auto ends = std::make_unique<ChunkEnds>();
  readers_.local().read(chunk, stream, *ends);
  return ends;
}

void CountedBranches::deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) {
  const auto& ends = static_cast<const ChunkEnds&>(*prepared);
  BranchFlow& flow = flows_[chunk.stream];
  const size_t until = ends.first ? 0 : SIZE_MAX;
  for (const Gap& gap : chunk.gaps) {
    if (gap.step <= until) flow.lose();
  }
  for (const Event& e : chunk.events) {
    if (e.step <= until) flow.event(stream, e);
  }
  if (!ends.first) return;
  flow.step(*ends.first);
  if (ends.last)
    flow.set_last(ends.last);
  else
    flow.lose();
}

void CountedBranches::finished(const std::exception_ptr& /*error*/) {
  for (BranchCountReader& reader : readers_) reader.finish(counts_);
}

bool CountedBranches::stopped() const { return interrupted(); }

}  // namespace asof
