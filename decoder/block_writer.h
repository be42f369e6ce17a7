// BlockWriter: chunks to a block stream (block_format.h). One thread, in the order of delivery; what comes
// out depends on the chunks alone, so it is the same for every number of workers.
#pragma once
#include <tsl/robin_map.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "decoder/block_format.h"
#include "decoder/capture.h"

struct ZSTD_CCtx_s;

namespace asof::blocks {

class BlockWriter {
 public:
  using Write = std::function<void(std::span<const uint8_t>)>;
  // Writes what the recording is at once.
  BlockWriter(const Capture& capture, Write write);
  ~BlockWriter();

  // Blocks must live as long as chunks are added.
  void add(const Chunk& chunk);
  void finish();

  uint64_t steps() const { return steps_; }
  size_t block_count() const { return nodes_.size() - 1; }

 private:
  struct Key {
    Addr ip;
    Time from, until;
    Space space;
    OriginRef origin;
    uint32_t size;
    uint16_t count;
    uint8_t mode;
    BranchKind kind;
    bool operator==(const Key&) const = default;
  };
  struct HashKey {
    size_t operator()(const Key& k) const {
      return (k.ip ^ static_cast<uint64_t>(k.from) ^ uint64_t{k.space} << 40U ^ uint64_t{k.count} << 32U) *
                 kHashFactor >>
             16U;
    }
  };
  struct Node {
    const Block* block = nullptr;  // as met last; others with the same content exist
    uint32_t ways[kWays] = {};
  };
  // A run of the decoders' table as the map has it, once every block in it follows from the one before.
  struct KnownRun {
    uint32_t first = 0, last = 0;  // 0: not known yet
    uint32_t ways[2] = {};         // out of the last block; 0: ask the map
    uint32_t steps = 0;
    uint32_t calls = 0;  // in calls_, from here on: those but for the last block
    uint16_t call_count = 0;
    BranchKind kind = BranchKind::kNone;  // of the last block
  };
  // One flow record under way.
  struct Walk;

  void part_of_chunk(const Chunk& chunk, Walk& walk, bool last);
  void step(const Chunk& chunk, Walk& walk, const Step& step);
  bool whole_run(Walk& walk, uint32_t code);
  void learn_run(const Chunk& chunk, uint32_t code);
  uint32_t next(Walk& walk, const Step& step);
  uint32_t id_of(const Block* block);
  void define(const Block& block);
  void link(Exit from, uint32_t to);
  void flush();
  void record(RecordType type, std::span<const uint8_t> prefix, std::span<const uint8_t> body,
              std::vector<uint8_t>& out);

  Write write_;
  std::unique_ptr<ZSTD_CCtx_s, void (*)(ZSTD_CCtx_s*)> zstd_;
  std::vector<Node> nodes_{1};  // by number; 0 is none
  tsl::robin_map<const Block*, uint32_t> by_pointer_;
  tsl::robin_map<Key, uint32_t, HashKey> by_content_;
  const RunTable* table_ = nullptr;
  std::vector<KnownRun> runs_;  // by id in table_
  std::vector<uint32_t> calls_;
  // Said before the flow records that wait: blocks from first_new_ on, and ways.
  uint32_t first_new_ = 1;
  Writer new_blocks_, new_ways_;
  uint32_t new_way_count_ = 0;
  Addr last_end_ = 0;
  uint32_t last_way_ = 0;
  std::vector<uint8_t> waiting_;
  uint64_t flow_records_ = 0, steps_ = 0, instructions_ = 0;
  std::vector<uint8_t> symbols_;
};

}  // namespace asof::blocks
