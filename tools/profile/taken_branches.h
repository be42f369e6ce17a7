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

namespace asof {

struct TakenBranch {
  Addr from = 0, to = 0;  // of the branch instruction, and where it went
  Time time = kTimeMin;
  BranchKind kind = BranchKind::kNone;
  Space from_space = kKernelSpace, to_space = kKernelSpace;
  bool follows = false;  // follows, without a branch, from where the stream's branch before it went
};

class TakenBranches final : public ChunkConsumer {
 public:
  using Take = std::function<void(const TakenBranch&)>;
  // Only branches of this time.
  TakenBranches(const Capture& capture, TimeBounds time, Take take)
      : time_(time), take_(std::move(take)), flows_(capture.streams.size()) {}

  void deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) override;
  bool stopped() const override;

 private:
  struct Flow {
    std::optional<Step> last;  // the flow continues from here
    bool follows = false;
  };
  void leave(Flow& flow, Addr to, Space space);
  static Space space_at(const Stream& stream, const Step& last, const Event& e);
  void event(Flow& flow, const Stream& stream, const Event& e);

  TimeBounds time_;
  Take take_;
  std::vector<Flow> flows_;
};

}  // namespace asof
