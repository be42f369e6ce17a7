// BlockFile: block streams read back (block_format.h). Opening reads what describes code and recording, and
// notes where the walks are; those are read when they are decoded, in any order, by any number of threads.
//
// A file is one or more parts, each with a map of its own; files joined end to end are a file. Parts must be
// of one recording. A segment that several parts hold is taken from the first one.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "decoder/block_format.h"
#include "decoder/capture.h"
#include "textstore/image.h"

namespace asof::blocks {

// The code of one part: blocks by number, and the ways between them.
class BlockMap {
 public:
  struct Node {
    uint32_t ways[kWays] = {};
    uint32_t run = 0;  // in the table; 0: there is no room
    uint16_t count = 0;
    BranchKind kind = BranchKind::kNone;
    bool known = false;
    const Block* block = nullptr;
  };
  // Numbers beyond `max_blocks` are damage.
  explicit BlockMap(uint64_t max_blocks) : max_blocks_(max_blocks), nodes_(1), writer_(runs_) {}
  // Adds what a code record says. False: it is damaged; what stands before the damage is kept.
  bool add(std::span<const uint8_t> body);
  // nullptr: no such block is known.
  const Node* at(uint64_t id) const { return id < nodes_.size() && nodes_[id].known ? &nodes_[id] : nullptr; }
  const RunTable& runs() const { return runs_; }
  size_t size() const { return nodes_.size() - 1; }

 private:
  bool add_block(Source& in, uint32_t id, Addr& last_end);

  struct Piece {  // blocks of one record; none moves
    std::vector<uint8_t> bytes;
    std::vector<Block> blocks;
    std::vector<const Block*> pointers;
  };
  uint64_t max_blocks_;
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<Piece>> pieces_;
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
};

// Reads a flow record's body into `out` (steps, events, gaps). Empty: done; else what is wrong with it, and
// `out` holds what stands before.
std::string read_walk(const BlockMap& map, std::span<const uint8_t> body, std::span<const uint8_t> prefix,
                      Chunk& out);

class BlockFile {
 public:
  // A file, or a folder with *.blocks files. Damage is in the capture's notices.
  static Result<Capture> open(const std::string& path);
  static bool is_block_file(const std::string& path);

  std::span<const Frame> frames(size_t stream) const { return streams_[stream]; }
  // Reads one; what cannot be read is a gap (E-DATA-121) in it.
  Chunk read(size_t stream, const Frame& frame) const;

 private:
  struct Part {
    Part(std::string name, uint64_t max_blocks) : file(std::move(name)), map(max_blocks) {}
    std::string file;
    BlockMap map;
    uint64_t flow_records = 0;
  };
  friend class Scanner;

  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<std::vector<Frame>> streams_;
};

// What "decodes" a block stream: hands the chunks on.
std::unique_ptr<Arch> make_block_arch(std::shared_ptr<const BlockFile> file);

}  // namespace asof::blocks
