// TakenBranches: every branch that was taken, with both its ends, one stream after the other in the order
// they ran. Interrupts are not included; their returns are. Where flow is missing (gap, tracing off,
// interrupt), the branch after it does not follow from the one before.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "arch/arch.h"
#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"
#include "tools/output/task_choice.h"

namespace asof {

struct TakenBranch {
  Addr from = 0, to = 0;  // of the branch instruction, and where it went
  Time time = kTimeMin;
  std::string_view kind{};  // branch_flags()
  Space from_space = kKernelSpace, to_space = kKernelSpace;
  bool follows = false;  // follows, without a branch, from where the stream's branch before it went
};

// The flow of one stream, step by step: what of it are taken branches.
class BranchFlow {
 public:
  using Take = std::function<void(const TakenBranch&)>;
  // Only branches of this time.
  BranchFlow(TimeBounds time, Take take) : time_(time), take_(std::move(take)) {}

  void step(const Step& s) {
    if ((s.flags & (Step::kAfterGap | Step::kAsyncEntry)) != 0) lose();
    const auto begin = begin_ ? begin_(*s.block) : std::optional<uint32_t>(0);
    go_to(s.block->ip + begin.value_or(0), s.block->space);
    last_ = s;
    left_out_ = !begin;
    if (left_out_) follows_ = false;
  }
  // Only branches of blocks that begin somewhere, in bytes from where they do in memory; what follows others follows from
  // nothing.
  using Begin = std::function<std::optional<uint32_t>(const Block&)>;
  void keep_only(Begin begin) { begin_ = std::move(begin); }
  // The branch at the end of the last step, if it was one, went to `to` (0: unknown).
  void go_to(Addr to, Space space) {
    if (last_) leave(to, space);
  }
  // Only those that `matters` have an effect.
  void event(const Stream& stream, const Event& e);
  static bool matters(const Event& e) {
    return e.kind == EventKind::kAsync || e.kind == EventKind::kTraceStart || e.kind == EventKind::kTraceStop;
  }
  // What comes next does not follow from the last step.
  void lose() { last_.reset(), follows_ = false; }
  const std::optional<Step>& last() const { return last_; }
  void set_last(const std::optional<Step>& last) { last_ = last; }

 private:
  void leave(Addr to, Space space);

  TimeBounds time_;
  Take take_;
  std::optional<Step> last_;  // the flow continues from here
  bool follows_ = false;
  Begin begin_;
  bool left_out_ = false;  // last_
};

class TakenBranches final : public ChunkConsumer {
 public:
  // Those of `tasks`, which must outlive this. A branch belongs to the task that it leaves.
  TakenBranches(const Capture& capture, TimeBounds time, const TaskChoice& tasks, BranchFlow::Take take);

  void keep_only(const BranchFlow::Begin& begin) {
    for (BranchFlow& flow : flows_) flow.keep_only(begin);
  }
  void deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) override;
  bool stopped() const override;

 private:
  void take(size_t stream, TakenBranch b);

  const TaskChoice& tasks_;
  BranchFlow::Take take_;
  std::vector<BranchFlow> flows_;
  std::vector<TaskFlow> whose_;    // by stream; empty: all are wanted
  std::vector<uint8_t> left_out_;  // by stream: the branch before was not wanted
};

}  // namespace asof
