// FunctionCosts: what each function executed itself in a stretch of time: instructions, time, and how often
// it was entered at its beginning. From the steps, so a stretch may begin and end anywhere.
//
// Time goes to the function that ran last before the trace's clock advanced; none is counted while tracing is
// off or flow is missing.
#pragma once
#include <tsl/robin_map.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "arch/arch.h"
#include "decoder/model/capture.h"
#include "decoder/model/symbol_epochs.h"
#include "decoder/pipeline/pipeline.h"
#include "tools/profile/cost.h"

namespace asof {

class FunctionCosts final : public ChunkConsumer {
 public:
  using Name = std::pair<std::string, std::string>;  // function, file; both empty: no symbol

  FunctionCosts(const Capture& capture, TimeBounds time);
  void deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) override;
  bool stopped() const override;

  // Functions of the same name and file are one.
  std::map<Name, Cost> costs() const;

 private:
  struct Named {
    const Symbol* symbol = nullptr;
    TimeBounds valid{kTimeMax, kTimeMin};
  };
  struct Flow {
    bool running = false;
    const Symbol* in = nullptr;
    Time time = kTimeMin;  // of the last step
  };
  const Symbol* name(const Block& b, Time t);
  // The clock advanced to t.
  void advance(Flow& flow, Time t);
  void step(Flow& flow, const Step& s);

  const Capture& capture_;
  SymbolEpochs epochs_;
  TimeBounds time_;
  std::vector<Flow> flows_;
  tsl::robin_map<const Block*, Named> names_;
  tsl::robin_map<const Symbol*, Cost> costs_;
};

}  // namespace asof
