// FlowReader: what a chunk has besides its steps (gaps and events), and what single steps are asked for: visits of text
// that changed, straight pieces.
#include <algorithm>
#include <numeric>

#include "decoder/calls/flow_step.h"

namespace asof {
namespace {

bool worth_telling(EventKind kind) {
  switch (kind) {
    case EventKind::kPsb:
    case EventKind::kExecMode:
    case EventKind::kTraceStart:
    case EventKind::kTraceStop:
    case EventKind::kAsync:
    case EventKind::kPaging:
    case EventKind::kContext:
    case EventKind::kCycles:
      return false;
    default:
      return true;
  }
}

}  // namespace

void FlowReader::items_before(ChunkItems& items, size_t index) {
  items.before(
      index, [&](const Gap& g) { on_gap(g); }, [&](const Event& e) { on_event(e); });
}

void FlowReader::on_gap(const Gap& g) {
  FlowOp& op = add(FlowOp::Kind::kGap, g.time.lo);
  op.item = static_cast<uint32_t>(out_->gaps.size());
  op.from = g.ip;
  op.to = g.resume_ip;
  out_->gaps.push_back(g);
  has_last_ = false;
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
    if (has_last_ && took_branch(last_)) {
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
  if (!took_branch(last_)) return;
  if (piece_ != SIZE_MAX) out_->pieces[piece_].to = to;
  const FlowOp::Kind kind = flow_op_kind(last_.block->kind);
  if (kind == FlowOp::Kind::kJump && in_ != nullptr && in_->range.contains(to)) return;
  branch_to(to, space, name(space, to, t), t, kind);
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
  p.branch = is_complete(s) ? b.kind : BranchKind::kNone;
  p.taken = took_branch(s);
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
