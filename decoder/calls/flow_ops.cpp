#include "decoder/calls/flow_ops.h"

#include <algorithm>
#include <numeric>

namespace asof {
namespace {

constexpr size_t kMaxNames = size_t{1} << 20;  // cached look-ups of one reader

bool complete_step(const Step& s) { return s.count == s.block->count; }

bool taken(const Step& s) {
  return complete_step(s) && leaves_line(s.block->kind) &&
         (s.block->kind != BranchKind::kCond || (s.flags & Step::kTaken) != 0);
}

Addr last_instruction(const Step& s) {
  Addr at = s.block->ip;
  for (uint32_t i = 0; i + 1 < s.count; ++i) at += s.block->lengths[i];
  return at;
}

bool worth_telling(EventKind kind) {
  switch (kind) {
    case EventKind::kPsb:
    case EventKind::kExecMode:
    case EventKind::kTraceStart:
    case EventKind::kTraceStop:
    case EventKind::kAsync:
    case EventKind::kPaging:
    case EventKind::kContext:
      return false;
    default:
      return true;
  }
}

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

void FlowReader::read(const Chunk& chunk, FlowOps& out) {
  out_ = &out;
  has_last_ = false;
  in_ = nullptr;
  instructions_ = 0;
  piece_ = SIZE_MAX;
  detailed_ = false;
  size_t event = 0, gap = 0;
  auto next_item = [&] {
    size_t at = SIZE_MAX;
    if (event < chunk.events.size()) at = std::min<size_t>(at, chunk.events[event].step);
    if (gap < chunk.gaps.size()) at = std::min<size_t>(at, chunk.gaps[gap].step);
    return at;
  };
  size_t item = next_item();
  Time t = kTimeMin;
  for (auto s = chunk.steps.begin(); s != chunk.steps.end(); ++s) {
    if (s.position() >= item) {
      items_before(chunk, s.position(), event, gap);
      item = next_item();
    }
    t = s->time;
    if (s->count != 0) step(*s);
  }
  items_before(chunk, SIZE_MAX, event, gap);
  if (has_last_ && taken(last_)) {
    FlowOp& op = add(FlowOp::Kind::kExit, last_.time);
    op.branch = last_.block->kind;
    op.from = last_instruction(last_);
    op.back = last_.block->end();
    op.symbol = op.left = in_;
    op.space = last_.block->space;
  } else if (instructions_ != 0) {
    add(FlowOp::Kind::kPoint, t);
  }
}

void FlowReader::items_before(const Chunk& chunk, size_t index, size_t& event, size_t& gap) {
  for (;;) {
    const bool has_gap = gap < chunk.gaps.size() && chunk.gaps[gap].step <= index;
    const bool has_event = event < chunk.events.size() && chunk.events[event].step <= index;
    if (!has_gap && !has_event) return;
    bool gap_first = has_gap;
    if (has_gap && has_event) {
      const Gap& g = chunk.gaps[gap];
      const Event& e = chunk.events[event];
      gap_first = std::pair(g.step, g.begin) <= std::pair(e.step, e.offset);
    }
    if (!gap_first) {
      on_event(chunk.events[event++]);
      continue;
    }
    const Gap& g = chunk.gaps[gap++];
    FlowOp& op = add(FlowOp::Kind::kGap, g.time.lo);
    op.item = static_cast<uint32_t>(out_->gaps.size());
    op.from = g.ip;
    op.to = g.resume_ip;
    out_->gaps.push_back(g);
    has_last_ = false;
  }
}

void FlowReader::on_event(const Event& e) {
  if (worth_telling(e.kind)) {
    add(FlowOp::Kind::kEvent, e.time).item = static_cast<uint32_t>(out_->events.size());
    out_->events.push_back(e);
  }
  if (e.kind == EventKind::kTraceStart) {
    FlowOp& op = add(FlowOp::Kind::kStart, e.time);
    op.to = e.ip;
    has_last_ = false;
  } else if (e.kind == EventKind::kTraceStop) {
    FlowOp& op = add(FlowOp::Kind::kStop, e.time);
    op.from = e.ip;
    if (has_last_ && taken(last_)) {
      op.branch = last_.block->kind;
      op.from = last_instruction(last_);
      op.back = last_.block->end();
      op.left = in_;
    }
    has_last_ = false;
  } else if (e.kind == EventKind::kAsync) {
    complete(e.ip, space_of(e.ip), e.time);
    FlowOp& op = add(FlowOp::Kind::kAsync, e.time);
    op.from = e.ip;
    op.to = e.a;
    op.back = e.ip;
    has_last_ = false;
  }
}

// Where only an address is known: a symbol of the code that ran before it.
Space FlowReader::space_of(Addr ip) const {
  if (is_kernel_address(ip)) return kKernelSpace;
  return has_last_ && !is_kernel_address(last_.block->ip) ? last_.block->space : kNoSpace;
}

void FlowReader::complete(Addr to, Space space, Time t) {
  if (to == 0) return;
  if (!has_last_) {  // the branch of the chunk before
    FlowOp& op = add(FlowOp::Kind::kEntry, t);
    op.to = to;
    op.space = space;
    op.symbol = name(space, to, t);
    return;
  }
  if (!taken(last_)) return;
  if (piece_ != SIZE_MAX) out_->pieces[piece_].to = to;
  const FlowOp::Kind kind = flow_op_kind(last_.block->kind);
  if (kind == FlowOp::Kind::kJump && in_ != nullptr && in_->range.contains(to)) return;
  branch_to(to, space, name(space, to, t), t, kind);
}

void FlowReader::branch_to(Addr to, Space space, const Symbol* symbol, Time t, FlowOp::Kind kind) {
  const Addr back = last_.block->end();
  if (kind == FlowOp::Kind::kCall) {
    // "Call next", to read the program counter, and calls of a label inside the function: thunks.
    if (to == back || (symbol != nullptr && symbol == in_ && to != symbol->range.begin)) return;
  }
  // After VMCALL and the like the flow continues at the next instruction.
  if (kind == FlowOp::Kind::kFarCall && to == back) return;
  if (kind == FlowOp::Kind::kJump && symbol == in_) return;
  FlowOp& op = add(kind, t);
  op.branch = last_.block->kind;
  op.from = last_instruction(last_);
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
  if (piece_ != SIZE_MAX && taken(last_)) out_->pieces[piece_].to = b.ip;
  const FlowOp::Kind kind = taken(last_) ? flow_op_kind(last_.block->kind) : FlowOp::Kind::kJump;
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
  const bool detailed = in_detail(s.time);
  // When the last run of a window was over.
  if (detailed_ && !detailed) add(FlowOp::Kind::kPoint, s.time);
  if (detailed) piece(s);
  detailed_ = detailed;
  if (s.time == kTimeMin || (s.time >= job_.counted.lo && s.time <= job_.counted.hi))
    instructions_ += s.count;
  worst_ = std::max(worst_, s.confidence);
  if (s.block->kind == BranchKind::kPaging && complete_step(s) && is_kernel_address(s.block->ip)) {
    FlowOp& op = add(FlowOp::Kind::kSpace, s.time);
    op.from = last_instruction(s);
    op.symbol = op.left = in_;
  }
  last_ = s;
  has_last_ = true;
}

void FlowReader::visits(const Step& s) {
  const Block& b = *s.block;
  if (!is_kernel_address(b.ip)) return;
  Addr end = b.ip;
  for (uint32_t i = 0; i < s.count; ++i) end += b.lengths[i];
  auto site = std::ranges::lower_bound(job_.poked, b.ip);
  for (; site != job_.poked.end() && *site < end; ++site) {
    add(FlowOp::Kind::kVisit, s.time).item = static_cast<uint32_t>(out_->visits.size());
    out_->visits.push_back({*site, {b.from, b.until}, b.bytes[*site - b.ip]});
  }
}

void FlowReader::piece(const Step& s) {
  const Block& b = *s.block;
  FlowPiece p;
  p.ip = b.ip;
  p.lengths.assign(b.lengths, b.lengths + s.count);
  p.text.assign(b.bytes, b.bytes + std::accumulate(p.lengths.begin(), p.lengths.end(), size_t{0}));
  p.mode = b.mode;
  p.confidence = s.confidence;
  p.branch = complete_step(s) ? b.kind : BranchKind::kNone;
  p.taken = taken(s);
  p.space = b.space;
  p.origin = b.origin;
  p.valid = {b.from, b.until};
  FlowOp& op = add(FlowOp::Kind::kBlock, s.time);
  op.to = b.ip;
  piece_ = out_->pieces.size();
  op.item = static_cast<uint32_t>(piece_);
  out_->pieces.push_back(std::move(p));
}

}  // namespace asof
