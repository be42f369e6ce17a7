#include "decoder/calls/flow_ops.h"

#include <algorithm>

#include "decoder/calls/flow_step.h"

namespace asof {
namespace {

constexpr uint32_t kMaxRuns = 1U << 19;        // with facts, of one reader: 64 MiB
constexpr size_t kMaxMemo = size_t{1} << 20;   // ops of runs
constexpr size_t kMaxNames = size_t{1} << 20;  // cached look-ups of one reader

}  // namespace

FlowOp::Kind flow_op_kind(BranchKind k) {
  switch (k) {
    case BranchKind::kCall:
    case BranchKind::kCallInd:
      return FlowOp::Kind::kCall;
    case BranchKind::kRet:
      return FlowOp::Kind::kReturn;
    case BranchKind::kFarCall:
      return FlowOp::Kind::kFarCall;
    case BranchKind::kFarRet:
      return FlowOp::Kind::kFarReturn;
    default:
      return FlowOp::Kind::kJump;
  }
}

FlowJob::FlowJob(const Capture& c, std::vector<TimeBounds> detail_windows, TimeBounds counted_time)
    : capture(c), epochs(c.symbols), detail(std::move(detail_windows)), counted(counted_time) {
  for (const PokeRecord& p : c.text->pokes()) poked.push_back(p.addr);
  std::ranges::sort(poked);
  poked.erase(std::ranges::unique(poked).begin(), poked.end());
}

const Symbol* FlowReader::name(Space space, Addr ip, Time t) {
  if (is_kernel_address(ip)) space = kKernelSpace;
  if (names_.size() > kMaxNames) names_.clear();
  Named& n = names_[{space, ip}];
  if (t < n.valid.lo || t > n.valid.hi) {
    const auto found = job_.capture.symbols.find(space, ip, t);
    n.symbol = found ? found->symbol : nullptr;
    n.valid = job_.epochs.around(space, {ip, ip + 1}, t);
  }
  return n.symbol;
}

FlowOp& FlowReader::add(FlowOp::Kind kind, Time t) {
  FlowOp& op = out_->ops.emplace_back();
  op.kind = kind;
  op.time = t;
  op.instructions = instructions_;
  op.confidence = worst_;
  instructions_ = 0;
  worst_ = Confidence::kCertain;
  return op;
}

void FlowReader::read(const Chunk& chunk, FlowOps& out, bool count_pieces) {
  out_ = &out;
  count_pieces_ = count_pieces;
  has_last_ = false;
  in_ = nullptr;
  instructions_ = 0;
  piece_ = SIZE_MAX;
  detailed_ = false;
  loose_ = time_ = 0;
  out.ops = std::move(scratch_);
  out.ops.clear();
  ChunkItems items(chunk);
  size_t at = 0;
  while (at < chunk.steps.size()) {
    const size_t item = std::min(chunk.steps.size(), items.next_at());
    if (item <= at) {
      items_before(items, at);
      continue;
    }
    entries(chunk, at, item);
    at = item;
  }
  const Time t = at == 0 ? kTimeMin : last_time_;
  items_before(items, SIZE_MAX);
  if (has_last_ && took_branch(last_)) {
    FlowOp& op = add(FlowOp::Kind::kExit, last_.time);
    op.branch = last_.block->kind;
    op.from = last_instruction(last_);
    op.back = last_.block->end();
    op.symbol = op.left = in_;
    op.space = last_.block->space;
  } else if (instructions_ != 0) {
    add(FlowOp::Kind::kPoint, t);
  }
  scratch_ = std::move(out.ops);
  out.ops.assign(scratch_.begin(), scratch_.end());
}

void FlowReader::entries(const Chunk& chunk, size_t from, size_t to) {
  const StepList& steps = chunk.steps;
  const std::span<const StepCode> codes = steps.codes();
  const auto times = steps.times();
  constexpr size_t kAhead = 12;
  for (size_t i = from; i < to; ++i) {
    const StepCode code = codes[i];
    // Facts lie anywhere in memory.
    if (i + kAhead < codes.size() && index_of(run_of(codes[i + kAhead])) < runs_.size())
      __builtin_prefetch(&runs_[index_of(run_of(codes[i + kAhead]))]);
    if (code == StepCode::kLoose) {
      const Step& s = steps.loose()[loose_++];
      last_time_ = s.time;
      if (s.count != 0) step(s);
      continue;
    }
    while (time_ < times.size() && times[time_].position <= i) ++time_;
    last_time_ = time_ == 0 ? kTimeMin : times[time_ - 1].time;
    if (!fixed_run(steps, code, last_time_)) run(steps, code, last_time_);
  }
}

// Block by block.
void FlowReader::run(const StepList& steps, StepCode code, Time t, size_t from_block) {
  const Run& run = steps.run(code);
  const Block* const* blocks = steps.run_blocks(code);
  for (size_t i = from_block; i < run.size; ++i) {
    const Block& b = *blocks[i];
    Step s{.block = &b, .time = t, .count = b.count, .confidence = run.confidence};
    if (leaves_by_branch(b.kind, i + 1 == run.size, taken_bit(code) != 0)) s.flags = Step::kTaken;
    step(s);
  }
}

bool FlowReader::names_hold(const Block& b) const {
  const Space space = is_kernel_address(b.ip) ? kKernelSpace : b.space;
  const TimeBounds valid = job_.epochs.around(space, {b.ip, b.ip + 1}, 0);
  return valid.lo == kTimeMin && valid.hi == kTimeMax;
}

// The reader is in the state in which a visit finds it, but for what led to the run.
void FlowReader::find_facts(const StepList& steps, StepCode code, RunFacts& facts) {
  const Run& run = steps.run(code);
  const Block* const* blocks = steps.run_blocks(code);
  facts.state = RunFacts::State::kOther;
  for (size_t i = 0; i < run.size; ++i) {
    const Block& b = *blocks[i];
    if (b.from != kTimeMin || b.until != kTimeMax || b.kind == BranchKind::kPaging || !names_hold(b)) return;
  }
  const Block &first = *blocks[0], &last = *blocks[run.size - 1];
  FlowReader inside(job_);
  FlowOps ops;
  inside.out_ = &ops;
  inside.in_ = name(first.space, first.ip, 0);
  facts.first = inside.in_;
  inside.last_ = {.block = &first, .count = first.count};
  if (run.size > 1 && first.kind != BranchKind::kNone) inside.last_.flags = Step::kTaken;
  inside.has_last_ = true;
  inside.leaves_ = took_branch(inside.last_) ? flow_op_kind(first.kind) : FlowOp::Kind::kJump;
  inside.instructions_ = first.count;
  inside.worst_ = run.confidence;
  inside.inside_run_ = true;
  inside.run(steps, code, kTimeMin, 1);
  if (ops.ops.size() > UINT16_MAX || memo_.size() + ops.ops.size() > kMaxMemo) return;
  facts.ops = static_cast<uint32_t>(memo_.size());
  facts.op_count = static_cast<uint16_t>(ops.ops.size());
  facts.after = inside.instructions_;
  memo_.insert(memo_.end(), ops.ops.begin(), ops.ops.end());
  facts.end = inside.in_;
  facts.blocks = run.size;
  facts.ip = first.ip;
  facts.space = first.space;
  facts.origin = first.origin;
  facts.block = &last;
  facts.block_count = last.count;
  facts.back = last.end();
  facts.from = facts.back - last.lengths[last.count - 1];
  facts.kind = last.kind;
  facts.leaves = flow_op_kind(last.kind);
  facts.confidence = run.confidence;
  facts.state = RunFacts::State::kFixed;
}

// The same as run(); false if that is necessary.
bool FlowReader::fixed_run(const StepList& steps, StepCode code, Time t) {
  if (steps.table() != table_) {
    table_ = steps.table();
    runs_.clear();
    memo_.clear();
  }
  const uint32_t id = index_of(run_of(code));
  if (id >= kMaxRuns) return false;
  if (id >= runs_.size())
    runs_.resize(std::min<size_t>(std::max<size_t>(size_t{id} + 1, 2 * runs_.size()), kMaxRuns));
  RunFacts& facts = runs_[id];
  if (facts.state == RunFacts::State::kUnknown) [[unlikely]]
    find_facts(steps, code, facts);
  if (facts.state != RunFacts::State::kFixed || !has_last_ || detailed_) return false;
  const bool wanted = in_detail(t);
  if (wanted && !count_pieces_) return false;
  if (t != kTimeMin && (t < job_.counted.lo || t > job_.counted.hi)) return false;
  if (const FlowOp::Kind kind = leaves_; kind != FlowOp::Kind::kJump) {
    const size_t before = out_->ops.size();
    branch_to(facts.ip, facts.space, facts.first, t, kind);
    if (out_->ops.size() != before) out_->ops.back().origin = facts.origin;
  } else if (in_ != facts.first) {
    return false;
  }
  if (wanted) out_->pieces_left_out += facts.blocks;
  worst_ = std::max(worst_, facts.confidence);
  if (facts.op_count != 0) {
    const size_t first = out_->ops.size();
    const FlowOp* ops = &memo_[facts.ops];
    out_->ops.insert(out_->ops.end(), ops, ops + facts.op_count);
    for (size_t i = first; i < out_->ops.size(); ++i) out_->ops[i].time = t;
    out_->ops[first].instructions += instructions_;
    out_->ops[first].confidence = worst_;
    instructions_ = 0;
    worst_ = facts.confidence;
  }
  instructions_ += facts.after;
  in_ = facts.end;
  last_ = {.block = facts.block, .time = t, .count = facts.block_count, .confidence = facts.confidence};
  if (leaves_by_branch(facts.kind, true, taken_bit(code) != 0)) last_.flags = Step::kTaken;
  last_from_ = facts.from;
  last_back_ = facts.back;
  leaves_ = facts.leaves;
  return true;
}

void FlowReader::branch_to(Addr to, Space space, const Symbol* symbol, Time t, FlowOp::Kind kind) {
  const Addr back = last_back_ != 0 ? last_back_ : last_.block->end();
  if (kind == FlowOp::Kind::kCall) {
    // "Call next", to read the program counter, and calls of a label inside the function: thunks.
    if (to == back || (symbol != nullptr && symbol == in_ && to != symbol->range.begin)) return;
  }
  // After VMCALL and the like the flow continues at the next instruction.
  if (kind == FlowOp::Kind::kFarCall && to == back) return;
  if (kind == FlowOp::Kind::kJump && symbol == in_) return;
  FlowOp& op = add(kind, t);
  op.branch = last_.block->kind;
  op.from = last_from_ != 0 ? last_from_ : last_instruction(last_);
  op.to = to;
  op.back = back;
  op.left = in_;
  op.symbol = symbol;
  op.space = space;
}

void FlowReader::enter(const Step& s) {
  const Block& b = *s.block;
  if (!has_last_ || (s.flags & (Step::kAfterGap | Step::kAsyncEntry)) != 0) {
    FlowOp& op = add(FlowOp::Kind::kEntry, s.time);
    op.to = b.ip;
    op.space = b.space;
    op.origin = b.origin;
    op.flags = s.flags;
    op.symbol = in_ = name(b.space, b.ip, s.time);
    return;
  }
  if (piece_ != SIZE_MAX && took_branch(last_)) out_->pieces[piece_].to = b.ip;
  const FlowOp::Kind kind = leaves_;
  // An address in a symbol without a name beside it: the look-up decides.
  if (kind == FlowOp::Kind::kJump && in_ != nullptr && in_->range.contains(b.ip)) return;
  const Symbol* symbol = name(b.space, b.ip, s.time);
  const size_t before = out_->ops.size();
  branch_to(b.ip, b.space, symbol, s.time, kind);
  if (out_->ops.size() != before) out_->ops.back().origin = b.origin;
  in_ = symbol;
}

// Called for every step: most are where the one before was, within a window or between two.
bool FlowReader::in_detail(Time t) {
  if (t >= near_.lo && t <= near_.hi) return near_wanted_;
  const auto after = std::ranges::upper_bound(job_.detail, t, {}, &TimeBounds::lo);
  near_wanted_ = after != job_.detail.begin() && std::prev(after)->hi >= t;
  if (near_wanted_) {
    near_ = *std::prev(after);
  } else {
    near_.lo = after == job_.detail.begin() ? kTimeMin : saturating_add(std::prev(after)->hi, 1);
    near_.hi = after == job_.detail.end() ? kTimeMax : saturating_add(after->lo, -1);
  }
  return near_wanted_;
}

void FlowReader::step(const Step& s) {
  enter(s);
  if (s.block->from != kTimeMin || s.block->until != kTimeMax) visits(s);
  piece_ = SIZE_MAX;
  const bool wanted = !inside_run_ && in_detail(s.time), detailed = wanted && !count_pieces_;
  if (wanted && count_pieces_) ++out_->pieces_left_out;
  // When the last run of a window was over.
  if (detailed_ && !detailed) add(FlowOp::Kind::kPoint, s.time);
  if (detailed) piece(s);
  detailed_ = detailed;
  if (s.time == kTimeMin || (s.time >= job_.counted.lo && s.time <= job_.counted.hi))
    instructions_ += s.count;
  worst_ = std::max(worst_, s.confidence);
  if (s.block->kind == BranchKind::kPaging && is_complete(s) && is_kernel_address(s.block->ip)) {
    FlowOp& op = add(FlowOp::Kind::kSpace, s.time);
    op.from = last_instruction(s);
    op.symbol = op.left = in_;
  }
  last_ = s;
  last_from_ = last_back_ = 0;
  has_last_ = true;
  leaves_ = took_branch(s) ? flow_op_kind(s.block->kind) : FlowOp::Kind::kJump;
}

}  // namespace asof
