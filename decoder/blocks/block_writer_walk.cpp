// Walks as a block stream encodes them. There are two methods that give the same record: step by step, and
// run by run where the map has every step of a run already. Nearly everything uses the second.
//
// Invariants of known_runs:
//  * A run's `next` is the run that begins where the map leads on that bit; edges of the map never change, so
//    it stays true.
//  * `next` is only set after conditional branches, `returns_` of calls, both to runs with at most one call.
//  * An entry from elsewhere (a gap, an interrupt) is a step of its own, not a run.
//  * A record is left as step() would leave it after the same blocks.
#include <algorithm>

#include "decoder/blocks/block_writer.h"

namespace asof::blocks {
namespace {

constexpr ptrdiff_t kAhead = 12;            // entries: known runs lie anywhere in memory
constexpr uint32_t kMostSteps = UINT8_MAX;  // of a run

}  // namespace

// The step's block, written where it does not follow from the one before.
uint32_t BlockWriter::next(FlowRecord& record, const Step& step) {
  const Exit exit = record.exit;
  const uint32_t expected = exit.block == 0 ? 0 : nodes_[exit.block].exits[exit.slot];
  const uint32_t block = expected != 0 && nodes_[expected].block == step.block ? expected : id_of(step.block);
  nodes_[block].block = step.block;
  const bool jumped = (step.flags & (Step::kAfterGap | Step::kAsyncEntry)) != 0;
  const bool linked = exit.block != 0 && !jumped;
  if (linked && expected == 0) {
    link(exit, block);
  } else if (!linked || expected != block) {
    record.name_block(block);
    return block;
  }
  if (++record.quiet >= kMaxQuiet) record.name_block(block);
  return block;
}

void BlockWriter::step(const Chunk& chunk, FlowRecord& record, const Step& step) {
  if (record.steps == kMaxSteps) part_of_chunk(chunk, record, false);
  const uint32_t block = next(record, step);
  record.attributes(step);
  const BranchKind kind = step.block->kind;
  const bool taken = (step.flags & Step::kTaken) != 0;
  record.exit = {};
  if (is_complete(step)) {
    record.exit = {block, exit_slot(kind, taken)};
    if (kind == BranchKind::kCond) record.bit(taken);
    if (is_call(kind)) record.calls.push(block);
    if (kind == BranchKind::kRet) {
      if (const uint32_t call = record.calls.pop(); call != 0) record.exit = {call, kReturn};
    }
  }
  ++record.steps;
}

// Follows the last branch of the current run, as step() does at once.
void BlockWriter::leave(FlowRecord& record, Position at) {
  if (at.run == RunId::kNone) return;
  const KnownRun& run = runs_[index_of(at.run)];
  const RunEnds& ends = ends_[index_of(at.run)];
  record.quiet = run.bit ? 0 : at.quiet + run.steps;
  record.exit = {ends.last, exit_slot(ends.kind, at.bit != 0)};
  if (is_call(ends.kind)) record.calls.push(ends.last);
  if (ends.kind == BranchKind::kRet) {
    if (const uint32_t call = record.calls.pop(); call != 0) record.exit = {call, kReturn};
  }
}

// Enters a known run after `at`, which was not found to lead there. False: it must be written step by step.
bool BlockWriter::follow(FlowRecord& record, Position at, RunId run) {
  leave(record, at);
  const KnownRun& known = runs_[index_of(run)];
  if (known.steps == 0 || record.quiet + known.steps >= kMaxQuiet) return false;
  const RunEnds& ends = ends_[index_of(run)];
  const uint32_t expected = record.exit.block == 0 ? 0 : nodes_[record.exit.block].exits[record.exit.slot];
  if (expected != ends.first) {
    if (record.exit.block == 0 || expected != 0) {
      record.name_block(ends.first);
      --record.quiet;  // of the run's steps all but the first
    } else {
      link(record.exit, ends.first);
    }
  }
  if (at.run != RunId::kNone && known.calls <= 1 && expected == ends.first) {
    KnownRun& before = runs_[index_of(at.run)];
    if (before.bit) before.next[at.bit] = run;
    if (record.exit.slot == kReturn) returns_[record.exit.block] = run;
  }
  for (uint32_t i = 0; known.calls > 1 && i < known.calls; ++i) record.calls.push(calls_[ends.calls + i]);
  return true;
}

// The codes up to the first that is not a known run, written where the map does not lead to them.
size_t BlockWriter::known_runs(FlowRecord& record, std::span<const StepCode> codes) {
  const size_t most = std::min<size_t>(codes.size(), (kMaxSteps - record.steps) / kMostSteps);
  KnownRun* const runs = runs_.data();
  const auto size = static_cast<uint32_t>(runs_.size());
  Calls& calls = record.calls;
  RunId at{};  // with the next two: Position
  uint32_t at_bit = 0, quiet = 0;
  uint64_t bits = 0;
  unsigned bit_count = 0;
  uint32_t steps = record.steps;
  const StepCode* code = codes.data();
  const StepCode* const end = code + most;
  for (; code != end; ++code) {
    const RunId run = run_of(*code);
    if (index_of(run) >= size) break;  // new, or a step of its own
    if (end - code > kAhead) __builtin_prefetch(runs + std::min(index_of(run_of(code[kAhead])), size));
    if (runs[index_of(at)].next[at_bit] == run) [[likely]] {
      quiet = 0;
    } else if (runs[index_of(at)].returns && returns_[calls.top()] == run &&
               quiet < kMaxQuiet - 2 * kMostSteps) {
      calls.pop();
      quiet += runs[index_of(at)].steps;
    } else {
      record.steps = steps;
      const bool entered = follow(record, {at, at_bit, quiet}, run);
      at = RunId::kNone;
      if (!entered) break;
      quiet = record.quiet;
    }
    const KnownRun& known = runs[index_of(run)];
    calls.push_if(known.push);
    steps += known.steps;
    at = run;
    at_bit = taken_bit(*code);
    const uint32_t has_bit = known.bit ? 1 : 0;
    bits |= static_cast<uint64_t>(at_bit & has_bit) << bit_count;
    bit_count += has_bit;
    if (bit_count == 64) {
      record.bits(bits, bit_count);
      bits = bit_count = 0;
    }
  }
  record.bits(bits, bit_count);
  record.steps = steps;
  leave(record, {at, at_bit, quiet});
  return static_cast<size_t>(code - codes.data());
}

void BlockWriter::spell_run(const Chunk& chunk, FlowRecord& record, StepCode code, Time time) {
  const Block* const* blocks = chunk.steps.run_blocks(code);
  const Run& run = chunk.steps.run(code);
  for (uint32_t i = 0; i < run.size; ++i) {
    Step s;
    s.block = blocks[i];
    s.time = time;
    s.count = blocks[i]->count;
    s.confidence = run.confidence;
    const bool by_code = i + 1U == run.size && blocks[i]->kind == BranchKind::kCond;
    const bool taken = by_code ? taken_bit(code) != 0 : blocks[i]->kind != BranchKind::kNone;
    s.flags = taken ? Step::kTaken : uint8_t{0};
    step(chunk, record, s);
  }
  learn_run(chunk, code);
}

// After its blocks were written one by one: the next time this is not necessary if they follow from each
// other without annotations.
void BlockWriter::learn_run(const Chunk& chunk, StepCode code) {
  const uint32_t id = index_of(run_of(code));
  if (id >= runs_.size()) {
    runs_.resize(id + 1);
    ends_.resize(id + 1);
  }
  if (runs_[id].steps != 0 || chunk.steps.run(code).confidence != Confidence::kCertain) return;
  const Block* const* blocks = chunk.steps.run_blocks(code);
  const uint8_t size = chunk.steps.run(code).size;
  RunEnds ends{.calls = static_cast<uint32_t>(calls_.size()), .kind = blocks[size - 1]->kind};
  ends.first = ends.last = id_of(blocks[0]);
  for (uint32_t i = 1; i < size; ++i) {
    const BranchKind kind = blocks[i - 1]->kind;
    const uint32_t to = id_of(blocks[i]);
    const bool plain = kind != BranchKind::kCond && kind != BranchKind::kRet;
    if (!plain || nodes_[ends.last].exits[exit_slot(kind, true)] != to) {
      calls_.resize(ends.calls);
      return;
    }
    if (is_call(kind)) calls_.push_back(ends.last);
    ends.last = to;
  }
  const size_t calls = calls_.size() - ends.calls;
  runs_[id] = {.push = calls == 1 ? calls_.back() : 0,
               .steps = size,
               .bit = ends.kind == BranchKind::kCond,
               .returns = ends.kind == BranchKind::kRet,
               .calls = static_cast<uint8_t>(calls)};
  ends_[id] = ends;
  known_.push_back(id);
}

}  // namespace asof::blocks
