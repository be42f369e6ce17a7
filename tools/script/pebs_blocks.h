// PebsBlocks: samples of PEBS that a trace holds (PEBS via PT): block item packets between a BBP and a BEP, as perf's
// samples. Intel SDM, "PEBS output to Intel Processor Trace"; perf's intel_pt_do_synth_pebs_sample().
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "arch/arch.h"
#include "decoder/model/capture.h"

namespace asof {

// What the items of a block say of its sample so far.
struct PebsGroup {
  std::optional<Addr> ip, register_ip;
  uint64_t addr = 0, latency = 0, counters = 0;
  std::optional<uint64_t> timestamp;
};

class PebsBlocks {
 public:
  struct Sample {
    size_t event;  // the number of its event in the recording
    Time time;
    Addr ip, addr;
    uint64_t period, latency;
  };
  PebsBlocks(const Capture& capture, const Stream& stream);
  // BBP, BIP and BEP, in order. A sample where one ends that belongs to one event of the recording.
  std::optional<Sample> take(const Event& e);

 private:
  void item(uint64_t id, uint64_t value);
  std::optional<size_t> event_of(uint64_t counters) const;

  const Capture& capture_;
  std::optional<size_t> only_;             // the one event whose samples are in the trace
  std::map<unsigned, size_t> by_counter_;  // otherwise: by the counter that the kernel gave it
  std::vector<uint64_t> periods_;          // by event
  std::optional<PebsGroup> group_;
  uint64_t kind_ = 0;  // of the block's items
};

}  // namespace asof
