// The contents of the flow, for benchmarks that compare decoders: the number of instructions, by blocks, and
// with `hash` also the hash over all addresses.
#pragma once
#include <memory>

#include "arch/stream.h"
#include "decoder/pipeline/pipeline.h"
#include "tests/bench/peer.h"
#include "tools/output/tally.h"

namespace asof::bench {

class ChunkCount {
 public:
  explicit ChunkCount(bool hash) : hash_(hash) {}
  void add(const Chunk& chunk) { add(chunk, *count(chunk)); }

  // In parts: what workers count is added in order.
  std::unique_ptr<Tally> count(const Chunk& chunk) const {
    auto tally = std::make_unique<Tally>();
    if (hash_) {
      count_steps(chunk, *tally);
    } else {
      tally->ips.count = chunk.steps.instructions_in_runs();
      for (const Step& step : chunk.steps.loose()) tally->ips.count += step.count;
    }
    return tally;
  }
  void add(const Chunk& chunk, const Tally& tally) {
    outcome.errors += chunk.gaps.size();
    ips_.append(tally.ips);
    outcome.instructions = ips_.count;
    if (hash_) outcome.hash = ips_.hash;
  }
  Outcome outcome;

 private:
  const bool hash_;
  IpHash ips_;
};

}  // namespace asof::bench
