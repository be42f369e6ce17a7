#include "tools/profile/taken_branches.h"

#include <algorithm>

#include "arch/chunk_items.h"
#include "tools/decode/decode_style.h"
#include "tools/output/output.h"
#include "tools/output/tally.h"

namespace asof {
namespace {

// For the address at which an interrupt was taken, after this step.
Space space_at(const Stream& stream, const Step& last, const Event& e) {
  if (is_kernel_address(e.ip)) return kKernelSpace;
  if (!is_kernel_address(last.block->ip)) return last.block->space;
  const auto& all = stream.contexts;
  const auto next = std::ranges::upper_bound(all, e.time, {}, &ContextChange::time);
  if (all.empty()) return kNoSpace;
  return next == all.begin() ? all.front().space : std::prev(next)->space;
}

}  // namespace

void BranchFlow::leave(Addr to, Space space) {
  const Step& s = *last_;
  const Block& b = *s.block;
  if (!took_branch(s)) return;
  if (left_out_) {
    follows_ = false;
    return;
  }
  const bool wanted = to != 0 && (s.time == kTimeMin || (s.time >= time_.lo && s.time <= time_.hi));
  if (wanted)
    take_({b.end() - b.lengths[b.count - 1], to, s.time, branch_flags(b), b.space, space, follows_});
  follows_ = wanted;
}

void BranchFlow::event(const Stream& stream, const Event& e) {
  if (!matters(e)) return;
  if (e.kind == EventKind::kAsync && last_) leave(e.ip, space_at(stream, *last_, e));
  lose();
}

TakenBranches::TakenBranches(const Capture& capture, TimeBounds time, const TaskChoice& tasks,
                             BranchFlow::Take take)
    : tasks_(tasks), take_(std::move(take)), left_out_(capture.streams.size()) {
  for (size_t i = 0; i < capture.streams.size(); ++i) {
    flows_.emplace_back(time, [this, i](const TakenBranch& b) { this->take(i, b); });
    if (tasks_.any()) whose_.emplace_back(capture, capture.streams[i], tasks_);
  }
}

void TakenBranches::take(size_t stream, TakenBranch b) {
  const bool wanted = !tasks_.any() || whose_[stream].wants(b.time, b.from_space);
  b.follows = b.follows && left_out_[stream] == 0;
  left_out_[stream] = wanted ? 0 : 1;
  if (wanted) take_(b);
}

void TakenBranches::deliver(Chunk& chunk, const Stream& stream, Prepared*) {
  BranchFlow& flow = flows_[chunk.stream];
  TaskFlow* const whose = tasks_.any() ? &whose_[chunk.stream] : nullptr;
  if (whose != nullptr) whose->begin_chunk();
  ChunkItems items(chunk);
  const auto items_before = [&](size_t index) {
    items.before(
        index,
        [&](const Gap&) {
          if (whose != nullptr) whose->gap();
          flow.lose();
        },
        [&](const Event& e) {
          flow.event(stream, e);
          if (whose != nullptr) whose->event(e);
        });
  };
  for (auto s = chunk.steps.begin(); s != chunk.steps.end(); ++s) {
    items_before(s.position());
    // The branch at the end of the step before is of the task that ran then.
    flow.step(*s);
    if (whose != nullptr) whose->step(*s);
  }
  items_before(SIZE_MAX);
}

bool TakenBranches::stopped() const { return interrupted(); }

}  // namespace asof
