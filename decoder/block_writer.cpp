#include "decoder/block_writer.h"

#include <zstd.h>

#include <algorithm>

#include "decoder/block_capture.h"
#include "textstore/check.h"

namespace asof::blocks {
namespace {

constexpr int kLevel = 1;                  // higher ones cost more than they save
constexpr size_t kAhead = 12;              // entries: known runs lie anywhere in memory
constexpr size_t kMaxWaiting = 256 << 10;  // bytes of flow records behind one code record

void put_fixed(std::vector<uint8_t>& out, uint64_t v, unsigned bytes) {
  for (unsigned i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(v >> (8 * i)));
}

void put_event(Writer& w, const Event& e, Time& time) {
  w.u8(static_cast<uint8_t>(e.kind));
  w.difference(static_cast<uint64_t>(time), static_cast<uint64_t>(e.time));
  time = e.time;
  w.varint(e.ip);
  w.varint(e.a);
  w.varint(e.b);
  w.varint(e.offset);
}

void put_gap(Writer& w, const Gap& g) {
  w.varint(g.begin);
  w.difference(g.begin, g.end);
  w.signed_varint(g.time.lo);
  w.signed_varint(g.time.hi);
  w.varint(g.ip);
  w.varint(g.resume_ip);
  w.text(g.code);
  w.text(g.reason);
}

bool is_complete(const Step& step) { return step.count == step.block->count; }

// What a reader takes for granted of a step.
bool is_plain(const Step& step) {
  return is_complete(step) && step.confidence == Confidence::kCertain && (step.flags & ~Step::kTaken) == 0;
}

}  // namespace

// Steps of one flow record, as they are told.
struct BlockWriter::Walk {
  uint32_t steps = 0;
  uint32_t quiet = 0;
  // The step before: its block, and whether and how the flow left it at its end.
  uint32_t block = 0;
  BranchKind kind = BranchKind::kNone;
  bool complete = false, taken = false;
  KnownRun* run = nullptr;  // that ended with it
  Calls calls;
  Time time = kTimeMin;
  Writer told, odd, times, events, gaps;
  uint32_t told_count = 0, odd_count = 0, time_count = 0, event_count = 0, gap_count = 0;
  uint32_t told_at = 0, odd_at = 0, time_at = 0, event_at = 0, gap_at = 0;
  uint32_t told_block = 0;
  Time event_time = 0;
  std::vector<uint8_t> bits;
  uint32_t bit_count = 0;

  void tell(uint32_t block_number) {
    ++told_count;
    told.varint(steps - told_at);
    told.difference(told_block, block_number);
    told_at = steps;
    told_block = block_number;
    quiet = 0;
  }
  void bit(bool taken) {
    if (bit_count % 8 == 0) bits.push_back(0);
    if (taken) bits.back() |= static_cast<uint8_t>(1U << bit_count % 8);
    ++bit_count;
    quiet = 0;
  }
  void at(Time t) {
    if (t == time) return;
    ++time_count;
    times.varint(steps - time_at);
    times.difference(static_cast<uint64_t>(time), static_cast<uint64_t>(t));
    time_at = steps;
    time = t;
  }
  void attributes(const Step& step) {
    at(step.time);
    if (is_plain(step)) return;
    ++odd_count;
    odd.varint(steps - odd_at);
    odd.varint(step.count);
    // Beside conditional branches the flag says nothing, and not every walk sets it.
    odd.u8(step.block->kind == BranchKind::kCond ? step.flags : step.flags & ~Step::kTaken & 0xff);
    odd.u8(static_cast<uint8_t>(step.confidence));
    odd_at = steps;
  }
  void event(const Event& e) {
    ++event_count;
    events.varint(steps - event_at);
    event_at = steps;
    put_event(events, e, event_time);
  }
  void gap(const Gap& g) {
    ++gap_count;
    gaps.varint(steps - gap_at);
    gap_at = steps;
    put_gap(gaps, g);
  }
};

BlockWriter::BlockWriter(const Capture& capture, Write write)
    : write_(std::move(write)), zstd_(ZSTD_createCCtx(), [](ZSTD_CCtx_s* c) { ZSTD_freeCCtx(c); }) {
  ASOF_CHECK(zstd_ != nullptr);
  ZSTD_CCtx_setParameter(zstd_.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(zstd_.get(), ZSTD_c_checksumFlag, 1);
  const std::vector<uint8_t> body = put_capture(capture);
  symbols_ = put_symbols(capture);
  std::vector<uint8_t> out(kMagic.begin(), kMagic.end());
  put_fixed(out, kVersion, 2);
  put_fixed(out, kHeaderSize, 2);
  put_fixed(out, 0, 4);
  put_fixed(out, identity_of(body), 8);
  record(RecordType::kCapture, {}, body, out);
  write_(out);
}

BlockWriter::~BlockWriter() = default;

void BlockWriter::record(RecordType type, std::span<const uint8_t> prefix, std::span<const uint8_t> body,
                         std::vector<uint8_t>& out) {
  const size_t at = out.size();
  const size_t bound = ZSTD_compressBound(body.size());
  out.resize(at + kRecordHeader + prefix.size() + bound);
  std::ranges::copy(prefix, out.begin() + static_cast<std::ptrdiff_t>(at + kRecordHeader));
  const size_t packed = ZSTD_compress2(zstd_.get(), out.data() + at + kRecordHeader + prefix.size(), bound,
                                       body.data(), body.size());
  ASOF_CHECK(ZSTD_isError(packed) == 0);
  out.resize(at + kRecordHeader + prefix.size() + packed);
  std::vector<uint8_t> header;
  put_fixed(header, kRecordMagic, 4);
  put_fixed(header, static_cast<uint8_t>(type), 1);
  put_fixed(header, prefix.size(), 1);
  put_fixed(header, 0, 2);
  put_fixed(header, prefix.size() + packed, 4);
  put_fixed(header, body.size(), 4);
  std::ranges::copy(header, out.begin() + static_cast<std::ptrdiff_t>(at));
}

uint32_t BlockWriter::id_of(const Block* block) {
  const auto known = by_pointer_.find(block);
  if (known != by_pointer_.end()) return known->second;
  const Block& b = *block;
  const Key key{b.ip, b.from, b.until, b.space, b.origin, b.size, b.count, b.mode, b.kind};
  const auto [entry, is_new] = by_content_.insert({key, static_cast<uint32_t>(nodes_.size())});
  if (is_new) {
    nodes_.emplace_back();
    define(b);
  }
  by_pointer_[block] = entry->second;
  return entry->second;
}

void BlockWriter::define(const Block& b) {
  Writer& w = new_blocks_;
  const bool target = b.target != 0, timed = b.from != kTimeMin || b.until != kTimeMax;
  w.u8(static_cast<uint8_t>(b.kind));
  w.u8(static_cast<uint8_t>(b.mode >> 4 | (target ? 8 : 0) | (timed ? 16 : 0)));
  w.difference(last_end_, b.ip);
  w.varint(b.space);
  w.varint(b.origin);
  if (target) w.difference(b.ip, b.target);
  if (timed) {
    w.signed_varint(b.from);
    w.signed_varint(b.until);
  }
  w.varint(b.count);
  w.bytes({b.lengths, b.count});
  w.bytes({b.bytes, b.size});
  last_end_ = b.end();
}

void BlockWriter::link(Exit from, uint32_t to) {
  nodes_[from.block].ways[from.way] = to;
  ++new_way_count_;
  new_ways_.difference(last_way_, from.block);
  new_ways_.u8(from.way);
  new_ways_.difference(from.block, to);
  last_way_ = from.block;
}

// The step's block, told where it does not follow from the one before.
uint32_t BlockWriter::next(Walk& walk, const Step& step) {
  Exit exit;
  if (walk.block != 0 && walk.complete) {
    exit = exit_of(walk.block, walk.kind, walk.taken, walk.calls);
    walk.calls.leave(walk.block, walk.kind);
  }
  const uint32_t expected = exit.block == 0 ? 0 : nodes_[exit.block].ways[exit.way];
  const uint32_t block = expected != 0 && nodes_[expected].block == step.block ? expected : id_of(step.block);
  nodes_[block].block = step.block;
  const bool jumped = (step.flags & (Step::kAfterGap | Step::kAsyncEntry)) != 0;
  const bool linked = exit.block != 0 && !jumped;
  if (linked && expected == 0) {
    link(exit, block);
  } else if (!linked || expected != block) {
    walk.tell(block);
    return block;
  }
  if (++walk.quiet >= kMaxQuiet) walk.tell(block);
  return block;
}

void BlockWriter::step(const Chunk& chunk, Walk& walk, const Step& step) {
  if (walk.steps == kMaxSteps) part_of_chunk(chunk, walk, false);
  walk.run = nullptr;
  walk.block = next(walk, step);
  walk.attributes(step);
  walk.kind = step.block->kind;
  walk.complete = is_complete(step);
  walk.taken = (step.flags & Step::kTaken) != 0;
  if (walk.kind == BranchKind::kCond && walk.complete) walk.bit(walk.taken);
  ++walk.steps;
}

// A run that is in the map from its first block to its last, entered where the map says. False: nothing was
// done.
bool BlockWriter::whole_run(Walk& walk, uint32_t code) {
  if (code >> StepList::kRunShift >= runs_.size()) return false;
  KnownRun& run = runs_[code >> StepList::kRunShift];
  if (run.first == 0 || walk.block == 0 || !walk.complete || walk.quiet + run.steps >= kMaxQuiet ||
      walk.steps + run.steps > kMaxSteps)
    return false;
  const Exit exit = exit_of(walk.block, walk.kind, walk.taken, walk.calls);
  // A way that is set stays, so the run before may keep those of its last block.
  KnownRun* const before = exit.block == walk.block ? walk.run : nullptr;
  uint32_t expected = before == nullptr ? 0 : before->ways[exit.way];
  if (expected == 0) {
    expected = nodes_[exit.block].ways[exit.way];
    if (before != nullptr) before->ways[exit.way] = expected;
  }
  if (expected != run.first) return false;
  walk.run = &run;
  walk.calls.leave(walk.block, walk.kind);
  for (uint32_t i = 0; i < run.call_count; ++i) walk.calls.push(calls_[run.calls + i]);
  walk.quiet += run.steps;
  walk.block = run.last;
  walk.kind = run.kind;
  walk.taken =
      run.kind == BranchKind::kCond ? (code & StepList::kTakenBit) != 0 : run.kind != BranchKind::kNone;
  if (run.kind == BranchKind::kCond) walk.bit(walk.taken);
  walk.steps += run.steps;
  return true;
}

// After its blocks were said one by one: the next time they need not be, if they follow from each other and
// nothing is odd about them.
void BlockWriter::learn_run(const Chunk& chunk, uint32_t code) {
  const uint32_t id = code >> StepList::kRunShift;
  if (id >= runs_.size()) runs_.resize(id + 1);
  if (runs_[id].first != 0 || chunk.steps.run(code).confidence != Confidence::kCertain) return;
  const Block* const* blocks = chunk.steps.run_blocks(code);
  const uint32_t size = chunk.steps.run(code).size;
  KnownRun run{.steps = size, .calls = static_cast<uint32_t>(calls_.size()), .kind = blocks[size - 1]->kind};
  run.first = run.last = id_of(blocks[0]);
  for (uint32_t i = 1; i < size; ++i) {
    const BranchKind kind = blocks[i - 1]->kind;
    const uint32_t to = id_of(blocks[i]);
    const bool plain = kind != BranchKind::kCond && kind != BranchKind::kRet;
    if (!plain || nodes_[run.last].ways[kind == BranchKind::kNone ? kOther : kTaken] != to) {
      calls_.resize(run.calls);
      return;
    }
    if (is_call(kind)) calls_.push_back(run.last);
    run.last = to;
  }
  run.call_count = static_cast<uint16_t>(calls_.size() - run.calls);
  runs_[id] = run;
}

void BlockWriter::part_of_chunk(const Chunk& chunk, Walk& walk, bool last) {
  Writer prefix, body;
  prefix.varint(chunk.stream);
  prefix.varint(chunk.segment);
  prefix.u8(last ? 1 : 0);
  prefix.signed_varint(chunk.segment_start);
  ASOF_CHECK(prefix.size() <= UINT8_MAX);
  body.bytes(prefix.data());
  body.varint(walk.steps);
  const auto section = [&](uint32_t count, const Writer& content) {
    body.varint(count);
    body.bytes(content.data());
  };
  section(walk.told_count, walk.told);
  section(walk.odd_count, walk.odd);
  section(walk.time_count, walk.times);
  section(walk.event_count, walk.events);
  section(walk.gap_count, walk.gaps);
  body.varint(walk.bit_count);
  body.bytes(walk.bits);
  record(RecordType::kFlow, prefix.data(), body.data(), waiting_);
  ++flow_records_;
  steps_ += walk.steps;
  walk = Walk();
}

void BlockWriter::add(const Chunk& chunk) {
  Walk walk;
  size_t event = 0, gap = 0, time = 0, loose = 0;
  size_t next_item = 0;  // the entry in front of which the next of them stands
  const auto items_before = [&](size_t position) {
    while (event < chunk.events.size() && chunk.events[event].step <= position)
      walk.event(chunk.events[event++]);
    while (gap < chunk.gaps.size() && chunk.gaps[gap].step <= position) walk.gap(chunk.gaps[gap++]);
    next_item = std::min<size_t>(event < chunk.events.size() ? chunk.events[event].step : SIZE_MAX,
                                 gap < chunk.gaps.size() ? chunk.gaps[gap].step : SIZE_MAX);
  };
  const StepList& steps = chunk.steps;
  if (steps.table() != nullptr && steps.table() != table_) {
    table_ = steps.table();
    runs_.clear();
    calls_.clear();
  }
  const std::span<const uint32_t> codes = steps.codes();
  const auto times = steps.times();
  for (size_t i = 0; i < codes.size(); ++i) {
    if (walk.steps == kMaxSteps) part_of_chunk(chunk, walk, false);
    if (i >= next_item) items_before(i);
    if (i + kAhead < codes.size() && codes[i + kAhead] >> StepList::kRunShift < runs_.size())
      __builtin_prefetch(&runs_[codes[i + kAhead] >> StepList::kRunShift]);
    if (codes[i] == StepList::kLoose) {
      instructions_ += steps.loose()[loose].count;
      step(chunk, walk, steps.loose()[loose++]);
      continue;
    }
    while (time < times.size() && times[time].position <= i) ++time;
    const Time now = time == 0 ? kTimeMin : times[time - 1].time;
    walk.at(now);
    if (whole_run(walk, codes[i])) continue;
    const Block* const* blocks = steps.run_blocks(codes[i]);
    const uint32_t size = steps.run(codes[i]).size;
    for (uint32_t b = 0; b < size; ++b) {
      Step s;
      s.block = blocks[b];
      s.time = now;
      s.count = blocks[b]->count;
      s.confidence = steps.run(codes[i]).confidence;
      const bool by_code = b + 1 == size && blocks[b]->kind == BranchKind::kCond;
      const bool taken =
          by_code ? (codes[i] & StepList::kTakenBit) != 0 : blocks[b]->kind != BranchKind::kNone;
      s.flags = taken ? Step::kTaken : uint8_t{0};
      step(chunk, walk, s);
    }
    learn_run(chunk, codes[i]);
  }
  items_before(SIZE_MAX);
  instructions_ += steps.instructions_in_runs();
  part_of_chunk(chunk, walk, chunk.last);
  if (waiting_.size() > kMaxWaiting) flush();
}

void BlockWriter::flush() {
  std::vector<uint8_t> out;
  const auto blocks = static_cast<uint32_t>(nodes_.size()) - first_new_;
  if (blocks != 0 || new_way_count_ != 0) {
    Writer body;
    body.varint(first_new_);
    body.varint(blocks);
    body.bytes(new_blocks_.data());
    body.varint(new_way_count_);
    body.bytes(new_ways_.data());
    record(RecordType::kCode, {}, body.data(), out);
    new_blocks_.clear();
    new_ways_.clear();
    first_new_ = static_cast<uint32_t>(nodes_.size());
    new_way_count_ = 0;
    last_end_ = 0;
    last_way_ = 0;
  }
  write_(out);
  write_(waiting_);
  waiting_.clear();
}

void BlockWriter::finish() {
  flush();
  std::vector<uint8_t> out;
  record(RecordType::kSymbols, {}, symbols_, out);
  Writer end;
  end.varint(flow_records_);
  end.varint(steps_);
  end.varint(instructions_);
  record(RecordType::kEnd, {}, end.data(), out);
  write_(out);
}

}  // namespace asof::blocks
