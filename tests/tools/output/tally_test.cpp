// The IP hash composes: a sequence cut anywhere gives the hash of the whole.
#include "tools/output/tally.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace asof {
namespace {

TEST(Tally, HashComposes) {
  std::mt19937_64 rng(1);
  std::vector<Addr> ips(1000);
  for (Addr& ip : ips) ip = rng();
  uint64_t h = 0;
  for (const Addr ip : ips) h = h * kHashFactor + ip;
  for (int round = 0; round < 50; ++round) {
    IpHash whole;
    for (size_t i = 0; i < ips.size();) {
      IpHash part;
      for (size_t n = rng() % 100; n != 0 && i < ips.size(); --n) part.append(ips[i++]);
      whole.append(part);
    }
    EXPECT_EQ(whole.count, ips.size());
    EXPECT_EQ(whole.hash, h);
  }
}

TEST(Tally, PartOfABlockCountsItsInstructionsOnly) {
  const std::vector<uint8_t> lengths{2, 3, 5};
  Block block;
  block.ip = 0x1000;
  block.count = 3;
  block.size = 10;
  block.kind = BranchKind::kCall;
  block.lengths = lengths.data();
  for (const Addr ip : {0x1000, 0x1002, 0x1005}) {
    block.hash = block.hash * kHashFactor + ip;
    block.power *= kHashFactor;
  }
  Chunk chunk;
  chunk.steps.push_back({.block = &block, .count = 2, .confidence = Confidence::kProved});
  chunk.steps.push_back({.block = &block, .count = 3});
  Tally tally;
  count_steps(chunk, tally);
  uint64_t h = 0;
  for (const Addr ip : {0x1000, 0x1002, 0x1000, 0x1002, 0x1005}) h = h * kHashFactor + ip;
  EXPECT_EQ(tally.ips.count, 5u);
  EXPECT_EQ(tally.ips.hash, h);
  EXPECT_EQ(tally.branches, 1u) << "the call of the first visit was not reached";
  EXPECT_EQ(tally.by_confidence[static_cast<size_t>(Confidence::kProved)], 2u);
}

}  // namespace
}  // namespace asof
