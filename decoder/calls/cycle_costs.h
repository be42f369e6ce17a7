// CycleCosts: core cycles by function, block and call, from CYC packets, as bounds (cycle_walk.h). A span in which only
// one function ran is certainly its own; one that several share may be that of each. A call's cycles are those from
// when its call instruction retired until its return did, with all that ran in between; only calls whose both ends
// lie in one stretch of spans count.
#pragma once
#include <tsl/robin_map.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "decoder/calls/cycle_walk.h"
#include "decoder/io/addr_key.h"
#include "decoder/model/capture.h"
#include "decoder/model/symbol_epochs.h"
#include "decoder/pipeline/pipeline.h"

namespace asof {

struct CycleCost {
  uint64_t instructions_least = 0, instructions_most = 0;
  uint64_t cycles_least = 0, cycles_most = 0;
};

// Spans shared out among keys.
class SpanCosts {
 public:
  void begin();
  void step(uint32_t key, uint32_t instructions, bool doubtful);
  void count(uint64_t cycles);
  // `known`: what was doubtful is what ran.
  void settled(bool known);
  void end();
  const std::vector<CycleCost>& costs() const { return costs_; }  // by key

 private:
  struct Ran {
    uint32_t key;
    uint32_t instructions;
  };
  void close(bool known);
  static void add(std::vector<Ran>& to, Ran ran);

  std::vector<CycleCost> costs_;
  std::vector<Ran> doubtful_, certain_;  // since the last count
  std::vector<Ran> span_;                // of the one before it, without what is doubtful_ now
  uint64_t cycles_ = 0;                  // of that
  bool waits_ = false;                   // it is to be closed
  bool first_ = false;                   // no count but the first
  bool shared_ = false;                  // doubtful_ is part of a span that was closed
  std::vector<uint32_t> keys_;
};

struct FunctionCycles {
  std::string name, dso;
  CycleCost cost;
};
struct BlockCycles {
  Addr address = 0;
  Space space = kKernelSpace;
  uint32_t size = 0, instructions = 0;  // of the block
  OriginRef origin = kNoOrigin;
  std::string symbol;  // "work+0x10"; empty: none
  CycleCost cost;
};
struct CallCycles {
  std::string caller, callee;
  uint64_t calls = 0, least = 0, most = 0;
};

class CycleCosts {
 public:
  explicit CycleCosts(const Capture& capture);
  ~CycleCosts();
  // Chunks of all streams, those of one in order.
  void take(const Chunk& chunk);
  void finish();

  bool any() const;            // a count was seen
  uint64_t cycles() const;     // of all spans
  uint64_t uncertain() const;  // of those that are left out, as their flow is not certain
  // Most cycles first (least and most together), then by name or address.
  std::vector<FunctionCycles> functions() const;
  std::vector<BlockCycles> blocks() const;
  std::vector<CallCycles> calls() const;

 private:
  struct Tables;
  class StreamWalk;
  std::unique_ptr<Tables> tables_;
  std::map<size_t, StreamWalk> streams_;
};

// Decodes all of a capture for its cycles.
Result<void> count_cycles(const Capture& capture, PipelineOptions options, CycleCosts& costs);

}  // namespace asof
