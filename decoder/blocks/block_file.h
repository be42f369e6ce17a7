// BlockFile: block streams read back (block_format.h). Opening reads what describes code and recording, and
// notes where the walks are; those are read when they are decoded, in any order, by any number of threads.
//
// A file is one or more parts, each with a map of its own; files joined end to end are a file. Parts must be
// of one recording. A segment that several parts hold is taken from the first one.
#pragma once
#include <tsl/robin_map.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decoder/blocks/block_format.h"
#include "decoder/blocks/block_text.h"
#include "decoder/model/capture.h"
#include "decoder/model/image.h"

namespace asof::blocks {

// The code of one part: blocks by number, and the edges between them. Filled, finished, then read by any
// number of threads.
class BlockMap {
 public:
  struct Node {
    uint32_t exits[kExitSlots] = {};
    RunId chain{};  // that begins with it; kNone: this block is not known
    const Block* block = nullptr;
  };
  // Blocks that follow each other without a decision, up to one that needs it: the unit that a walk follows.
  // `next` and `push` are links: the position of another chain, in bytes from the first one; except for the
  // bit, this is also its run's code in a StepList.
  struct Chain {
    uint32_t next[2] = {};  // by bit; if there is no bit, the first; 0: not known
    uint32_t push = 0;      // where the return of its call goes, or kNowhere; 0: it has no call
    uint16_t instructions = 0;
    uint8_t steps = 0;
    bool decides = false;  // its last branch has a bit
  };
  static_assert(sizeof(Chain) == 1U << kRunShift);
  static constexpr uint32_t kNowhere = 1;
  // Of returns: the link that the call left; if none is known, the second one.
  static constexpr uint32_t kByCall = 2;
  static constexpr uint32_t kFirst = index_of(RunTable::kFirst) << kRunShift;

  // Numbers beyond `max_blocks` are damage.
  explicit BlockMap(uint64_t max_blocks) : max_blocks_(max_blocks), nodes_(1), chains_(1), writer_(runs_) {}
  // Adds what a code record says. False: it is damaged; what comes before the damage is kept.
  bool add(std::span<const uint8_t> body);
  // After the last one.
  void finish();

  // Of a block; 0: it is not known.
  uint32_t link_to(uint64_t id) const {
    return id < nodes_.size() ? index_of(nodes_[id].chain) << kRunShift : 0;
  }
  const Chain& chain(uint32_t link) const { return chains_[link >> kRunShift]; }
  // The first block of a chain.
  const Node& node(uint32_t link) const { return nodes_[node_of_[link >> kRunShift]]; }
  // What a call saves for its return.
  uint32_t push_of(const Node& call) const {
    const uint32_t link = link_to(call.exits[kReturn]);
    return link != 0 ? link : kNowhere;
  }
  const RunTable& runs() const { return runs_; }
  size_t size() const { return nodes_.size() - 1; }
  // What a file says of a block's versions of text; empty: only what is true of most.
  std::span<const TextPiece> text_of(const Block& block) const;

 private:
  bool add_block(Source& in, uint32_t id, Addr& last_end);
  bool add_versions(Source& in, const Block& block);
  void make_chain(uint32_t id);

  static constexpr uint8_t kMaxChain = 16;  // blocks
  static constexpr size_t kPointers = 1024;
  struct Piece {  // blocks of one record; none moves
    std::vector<uint8_t> bytes;
    std::vector<Block> blocks;
  };
  uint64_t max_blocks_;
  std::vector<Node> nodes_;
  std::vector<Chain> chains_;      // by run
  std::vector<uint32_t> node_of_;  // likewise
  std::vector<std::unique_ptr<Piece>> pieces_;
  std::vector<std::unique_ptr<const Block*[]>> pointers_;  // of chains to their blocks
  size_t pointers_left_ = 0;                               // in the latest
  tsl::robin_map<const Block*, std::vector<TextPiece>> versions_;
  RunTable runs_;
  RunTable::Writer writer_;
};

// One flow record.
struct Frame {
  uint32_t part = 0;
  uint64_t segment = 0;
  bool last = false;
  Time start = kTimeMin;
  uint64_t file_offset = 0;  // of the record
  std::span<const uint8_t> prefix, packed;
  uint32_t raw = 0;
  std::span<const uint8_t> calls;  // packed; empty: they are not in the file
  uint32_t calls_raw = 0;
  // No record: no part has the trace from `segment` up to here. 0: it is one.
  uint64_t missing_end = 0;
  Time missing_until = kTimeMax;  // when what follows begins
};

// Reads a flow record's body into `out` (steps, events, gaps). Empty: success; else what is wrong with it,
// and `out` holds what comes before.
std::string read_walk(const BlockMap& map, std::span<const uint8_t> body, std::span<const uint8_t> prefix,
                      Chunk& out);

class BlockFile {
 public:
  // A file, or a folder with *.blocks files. Damage is in the capture's notices.
  static Result<Capture> open(const std::string& path);
  static bool is_block_file(const std::string& path);

  std::span<const Frame> frames(size_t stream) const { return streams_[stream]; }
  // As in BlockMap.
  std::span<const TextPiece> text_of(const Block& block) const;
  // Reads one; what cannot be read is a gap (E-DATA-121) in it.
  // `chunk`: an empty one, for its memory.
  Chunk read(size_t stream, const Frame& frame, Chunk chunk = {}) const;
  // What the flow record adds up to (decoder/calls/call_stub.h); empty: that is not there, or damaged.
  std::vector<uint8_t> calls_of(const Frame& frame) const;
  bool has_calls() const { return has_calls_; }

 private:
  struct Part {
    Part(std::string name, uint64_t max_blocks) : file(std::move(name)), map(max_blocks) {}
    std::string file;
    BlockMap map;
    uint64_t flow_records = 0;
    bool has_flow = false;
    uint64_t numbered_by = 0;  // by which symbols its calls are; 0: none are
    std::optional<PartCoverage> coverage;
  };
  friend class Scanner;
  static void add_missing(BlockFile& file, std::span<const Stream> streams, std::vector<Notice>& notices);

  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<std::vector<Frame>> streams_;
  bool has_calls_ = false;
};

// The "decoder" of a block stream: passes the chunks on.
std::unique_ptr<Arch> make_block_arch(std::shared_ptr<const BlockFile> file);

}  // namespace asof::blocks
