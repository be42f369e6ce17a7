#include "tools/tally.h"

#include <algorithm>

namespace asof {

IpHash hash_of(const Step& step) {
  const Block& b = *step.block;
  if (complete(step)) return {b.count, b.hash, b.power};
  IpHash h;
  Addr ip = b.ip;
  for (uint32_t i = 0; i < step.count; ++i) {
    h.append(ip);
    ip += b.lengths[i];
  }
  return h;
}

void count_steps(const Chunk& chunk, Tally& tally) {
  for (const Step& step : chunk.steps) {
    tally.ips.append(hash_of(step));
    tally.branches += complete(step) && is_branch(step.block->kind);
    const auto c = std::min(static_cast<size_t>(step.confidence), tally.by_confidence.size() - 1);
    tally.by_confidence[c] += step.count;
  }
}

}  // namespace asof
