// What the flow has in it, for benchmarks that compare decoders: instructions by blocks, and with `hash` the
// hash over all addresses too.
#pragma once
#include "arch/stream.h"
#include "tests/bench/peer.h"
#include "tools/tally.h"

namespace asof::bench {

class ChunkCount {
 public:
  explicit ChunkCount(bool hash) : hash_(hash) {}
  void add(const Chunk& chunk) {
    outcome.errors += chunk.gaps.size();
    if (hash_) {
      Tally tally;
      count_steps(chunk, tally);
      ips_.append(tally.ips);
      outcome.instructions = ips_.count;
      outcome.hash = ips_.hash;
      return;
    }
    outcome.instructions += chunk.steps.instructions_in_runs();
    for (const Step& step : chunk.steps.loose()) outcome.instructions += step.count;
  }
  Outcome outcome;

 private:
  const bool hash_;
  IpHash ips_;
};

}  // namespace asof::bench
