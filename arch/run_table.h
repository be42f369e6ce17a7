// RunTable: the runs of the code that was decoded, by number. A StepList (arch/steps.h) names them.
#pragma once
#include <array>
#include <cstdint>
#include <utility>

#include "arch/block.h"
#include "arch/pooled.h"

namespace asof {

// Blocks that are executed one after the other whenever the first one is; all but the last end in a direct
// jump or call, or straight on. Executed whole. What counting needs is kept apart from the blocks: it is read
// for every entry.
struct Run {
  uint64_t hash = 0;  // sum over i of ip_i * K^(instructions-1-i)
  uint32_t instructions = 0;
  uint16_t branches = 0;
  uint8_t size = 0;                              // blocks
  Confidence confidence = Confidence::kCertain;  // of all its blocks; else kAmbiguous
};

// A run of a RunTable, by number.
enum class RunId : uint32_t { kNone = 0 };
// The same, for arrays with an element for each run.
constexpr uint32_t index_of(RunId run) { return std::to_underlying(run); }

// Runs of all decoders of one capture, by id. Entries never move and never change: any thread may
// read those it was handed ids of while others add new ones.
class RunTable {
 public:
  static constexpr uint32_t kPiece = 1U << 12;
  static constexpr uint32_t kPieces = 1U << 11;
  static constexpr uint32_t kMax = kPiece * kPieces;
  static constexpr RunId kFirst{4};  // the lowest id there is

  // `first`: ids below it are for whoever keeps ids.
  explicit RunTable(RunId first = kFirst);
  const Run& operator[](RunId id) const { return piece_of(id).runs[index_of(id) % kPiece]; }
  // Of the run's `size` blocks.
  const Block* const* blocks(RunId id) const { return piece_of(id).blocks[index_of(id) % kPiece]; }

  // What one thread adds with. Ids of a piece are of one writer. kNone: the table is full.
  class Writer {
   public:
    explicit Writer(RunTable& table) : table_(table) {}
    RunId add(const Run& run, const Block* const* blocks) {
      if (next_ == end_ && !take_piece()) [[unlikely]]
        return RunId::kNone;
      const uint32_t id = next_++;
      Piece& piece = table_.pieces_[id / kPiece];
      piece.runs[id % kPiece] = run;
      piece.blocks[id % kPiece] = blocks;
      return RunId{id};
    }

   private:
    bool take_piece();

    RunTable& table_;
    uint32_t next_ = 0;
    uint32_t end_ = 0;
  };

 private:
  struct Piece {
    std::array<Run, kPiece> runs;
    std::array<const Block* const*, kPiece> blocks;
  };
  const Piece& piece_of(RunId id) const { return pieces_[index_of(id) / kPiece]; }

  PieceTable<Piece, kPieces> pieces_;
  const RunId first_;
};

}  // namespace asof
