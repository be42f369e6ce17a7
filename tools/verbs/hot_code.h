// What ran most: instructions counted by block while decoding, then by function, file or line.
#pragma once
#include <tsl/robin_map.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "arch/arch.h"
#include "decoder/model/capture.h"
#include "tools/disasm/source_text.h"

namespace asof {

// Blocks do not outlive the pipeline, and each decoder has its own: identified by their content.
struct BlockKey {
  Addr ip = 0;
  Space space = kKernelSpace;
  Time from = kTimeMin;
  bool operator==(const BlockKey&) const = default;
};
struct HashBlockKey {
  size_t operator()(const BlockKey& k) const {
    return (k.ip ^ static_cast<uint64_t>(k.space) << 40 ^ static_cast<uint64_t>(k.from)) * kHashFactor >> 16;
  }
};
struct HotBlock {
  std::pair<size_t, size_t> first{SIZE_MAX, SIZE_MAX};  // stream and segment that met it first
  Time time = kTimeMin;                                 // then: some instant at which it ran
  uint64_t instructions = 0;

  void add(const HotBlock& b) {
    if (b.first < first) first = b.first, time = b.time;
    instructions += b.instructions;
  }
};
using HotBlocks = tsl::robin_map<BlockKey, HotBlock, HashBlockKey>;

// Instructions by block, as one worker sees them. Runs are counted by their number: there are many visits of
// few runs, and what they hold is looked up once.
class BlockCounter {
 public:
  // `by_instruction`: each instruction is a block of its own.
  explicit BlockCounter(bool by_instruction) : by_instruction_(by_instruction) {}
  void add(const Chunk& chunk);
  // Everything so far; the blocks themselves may be gone.
  void add_to(HotBlocks& all);

 private:
  struct Part {
    RunId run;
    BlockKey key;
    HotBlock once;  // of one visit
  };
  // `each` takes a key and its cost: of the block, or of each of its first `count` instructions.
  template <class Each>
  void parts_of(const Chunk& chunk, const Block& b, uint32_t count, Each&& each) const;
  void meet(const Chunk& chunk, StepCode code);
  void settle();

  bool by_instruction_;
  const RunTable* table_ = nullptr;
  std::vector<uint64_t> visits_;  // by number of the run
  std::vector<Part> parts_;       // of the runs that were met
  HotBlocks blocks_;
};

enum class HotBy : uint8_t { kFunction, kFile, kLine };
// Names and counts, most executed first. `inlined`: functions are those that were inlined, as far as debug
// information tells.
std::vector<std::pair<std::string, uint64_t>> hottest_by(const HotBlocks& blocks, const Capture& capture,
                                                         HotBy by, bool inlined, SharedSourceLines& lines);

}  // namespace asof
