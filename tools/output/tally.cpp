#include "tools/output/tally.h"

#include <algorithm>

namespace asof {

IpHash hash_of(const Step& step) {
  const Block& b = *step.block;
  if (is_complete(step)) return {b.count, b.hash, b.power};
  IpHash h;
  Addr ip = b.ip;
  for (uint32_t i = 0; i < step.count; ++i) {
    h.append(ip);
    ip += b.lengths[i];
  }
  return h;
}

void count_steps(const Chunk& chunk, Tally& tally) {
  const StepList& steps = chunk.steps;
  auto loose = steps.loose().begin();
  IpHash ips = tally.ips;
  uint64_t branches = tally.branches;
  uint64_t in_runs = 0, unsure = 0;
  const std::span<const StepCode> codes = steps.codes();
  auto sum = steps.sums().begin();
  for (size_t i = 0; i < codes.size(); ++i) {
    if (sum != steps.sums().end() && sum->begin == i) {
      ips.append({sum->sum.instructions, sum->sum.hash, hash_power(sum->sum.instructions)});
      branches += sum->sum.branches;
      in_runs += sum->sum.instructions;
      if (sum->confidence != Confidence::kCertain) unsure += sum->sum.instructions;
      i = sum++->end - 1;
      continue;
    }
    const StepCode code = codes[i];
    steps.prefetch(i + 16);
    if (code != StepCode::kLoose) {
      const Run& run = steps.run(code);
      ips.append({run.instructions, run.hash, hash_power(run.instructions)});
      branches += run.branches;
      in_runs += run.instructions;
      if (run.confidence != Confidence::kCertain) unsure += run.instructions;
      continue;
    }
    const Step& step = *loose++;
    ips.append(hash_of(step));
    branches += is_complete(step) && is_branch(step.block->kind);
    const auto c = std::min(static_cast<size_t>(step.confidence), tally.by_confidence.size() - 1);
    tally.by_confidence[c] += step.count;
  }
  tally.ips = ips;
  tally.branches = branches;
  tally.by_confidence[static_cast<size_t>(Confidence::kCertain)] += in_runs - unsure;
  tally.by_confidence[static_cast<size_t>(Confidence::kAmbiguous)] += unsure;
}

}  // namespace asof
