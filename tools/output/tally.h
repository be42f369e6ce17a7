// Tally: what one chunk holds, counted by the worker that decoded it: instructions, branches, confidence, IP
// hash.
#pragma once
#include <array>
#include <cstdint>

#include "arch/arch.h"
#include "decoder/pipeline/pipeline.h"

namespace asof {

// A sequence of instruction addresses as count and hash. Sequences join: the hash of "a then b" needs only
// both hashes and K^count(b), so chunks can be hashed in parallel and composed in order.
struct IpHash {
  uint64_t count = 0;
  uint64_t hash = 0;   // h = h * K + ip over all addresses, from 0
  uint64_t power = 1;  // K^count

  void append(const IpHash& b) {
    count += b.count;
    hash = hash * b.power + b.hash;
    power *= b.power;
  }
  void append(Addr ip) { append(IpHash{1, ip, kHashFactor}); }
};

// The executed part of a block. Blocks executed to their end bring their own hash.
IpHash hash_of(const Step& step);

struct Tally : ChunkConsumer::Prepared {
  IpHash ips;
  uint64_t branches = 0;
  std::array<uint64_t, 5> by_confidence{};  // instructions
};
void count_steps(const Chunk& chunk, Tally& tally);

}  // namespace asof
