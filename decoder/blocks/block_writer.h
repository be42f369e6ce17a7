// BlockWriter: chunks to a block stream (block_format.h). One thread, in the order of delivery; the output
// depends on the chunks alone, so it is the same for every number of workers, and however blocks were joined
// to runs.
#pragma once
#include <tsl/robin_map.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "decoder/blocks/block_record.h"
#include "decoder/blocks/block_text.h"
#include "decoder/blocks/stable_origins.h"
#include "decoder/io/addr_key.h"
#include "decoder/model/capture.h"

struct ZSTD_CCtx_s;

namespace asof::blocks {

class BlockWriter {
 public:
  using Write = std::function<void(std::span<const uint8_t>)>;
  // Writes the description of the recording at once. The capture must outlive the writer. `calls`: chunks come with
  // theirs.
  BlockWriter(const Capture& capture, Write write, bool calls = false);
  // Of a recording that still goes on. The capture must outlive the writer or its move to the next one.
  struct Growing {};
  BlockWriter(const Capture& capture, Write write, Growing);
  // What one part's writer leaves to the next one's: what is sized by the decoders' table of runs, not by the part.
  struct Memory;
  // A part without that description, for `asof merge`; `identity` is of the recording. `memory`: of one that wrote
  // another part of chunks of the same decoders, and is gone.
  BlockWriter(const Capture& capture, Write write, uint64_t identity, PartCoverage coverage, bool calls,
              Memory& memory);
  ~BlockWriter();

  // Blocks must live as long as chunks are added, or until move_to(). `calls`: of the chunk
  // (decoder/calls/call_stub.h).
  void add(const Chunk& chunk, std::span<const uint8_t> calls = {});
  // What follows is of the same recording, a growing one, with more of it there.
  void move_to(const Capture& capture);
  // Writes what is held back, as far as its description is not more than what it describes.
  void flush();
  void finish();
  // Instead of finish() where the flow was not followed to its end: what was added can be read, and the reader
  // says that the end is missing.
  void stop();

  uint64_t steps() const { return steps_; }
  size_t block_count() const { return nodes_.size() - 1; }

 private:
  // What makes a block. Two that agree in all but their bytes are versions of one origin and time, where it is open which ran.
  struct Key {
    Addr ip;
    uint64_t bytes;  // hash
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
      return AddrKeyHash{}({k.space, k.ip ^ static_cast<uint64_t>(k.from) ^ uint64_t{k.count} << 32U});
    }
  };
  struct Node {
    const Block* block = nullptr;  // as met last; others with the same content exist
    uint32_t exits[kExitSlots] = {};
  };
  // A run of the decoders' table, once every block in it follows from the one before in the map, too. For
  // most of what is executed only these runs are examined.
  struct KnownRun {
    // Runs that are where the map leads from here, by the last branch's bit; kNone: none yet.
    RunId next[2] = {};
    uint32_t push = 0;     // the call in it; 0: none, or several
    uint8_t steps = 0;     // 0: this run is not known
    bool bit = false;      // its last branch has one
    bool returns = false;  // its last branch is a return
    uint8_t calls = 0;
  };
  static_assert(sizeof(KnownRun) == 16);
  struct RunEnds {
    uint32_t first = 0, last = 0;  // blocks
    uint32_t calls = 0;            // its first one in calls_
    BranchKind kind = BranchKind::kNone;
  };
  // What was written of names, by identity.
  struct Names {
    uint64_t symbols = 0, functions = 0;
  };
  // The position of known_runs: after a run, whose last branch is still to be followed.
  struct Position {
    RunId run{};  // kNone: a step, whose exit is in the record
    uint32_t bit = 0;
    uint32_t quiet = 0;  // before the run
  };

  void part_of_chunk(const Chunk& chunk, FlowRecord& record, bool last);
  void step(const Chunk& chunk, FlowRecord& record, const Step& step);
  size_t known_runs(FlowRecord& record, std::span<const StepCode> codes);
  void leave(FlowRecord& record, Position at);
  bool follow(FlowRecord& record, Position at, RunId run);
  void spell_run(const Chunk& chunk, FlowRecord& record, StepCode code, Time time);
  void learn_run(const Chunk& chunk, StepCode code);
  uint32_t next(FlowRecord& record, const Step& step);
  uint32_t id_of(const Block* block);
  void define(const Block& block);
  void link(Exit from, uint32_t to);
  void put_calls(std::span<const uint8_t> calls);
  void put_header(uint16_t version, uint64_t identity, std::vector<uint8_t>& out);
  OriginRef number_of(OriginRef origin) const { return origins_ ? origins_->number_of(origin) : origin; }
  void hold(std::span<const uint8_t> bytes);
  void give_out();
  Names put_names(std::vector<uint8_t>& out);
  void put_record(RecordType type, std::span<const uint8_t> prefix, std::span<const uint8_t> body,
                  std::vector<uint8_t>& out);

  Write write_;
  std::optional<BlockTexts> texts_;
  std::unique_ptr<ZSTD_CCtx_s, void (*)(ZSTD_CCtx_s*)> zstd_;
  std::vector<Node> nodes_{1};  // by number; 0 is unused
  tsl::robin_map<const Block*, uint32_t> by_pointer_;
  tsl::robin_map<Key, uint32_t, HashKey> by_content_;
  const RunTable* table_ = nullptr;
  std::vector<KnownRun> runs_;   // by id in table_
  std::vector<RunEnds> ends_;    // likewise
  std::vector<uint32_t> known_;  // those that are known
  // By call: the run that the map leads to on its return; kNone: none yet.
  std::vector<RunId> returns_{RunId::kNone};
  std::vector<uint32_t> calls_;
  // Written before the flow records that wait: blocks from first_new_ on, and edges.
  uint32_t first_new_ = 1;
  Writer new_blocks_, new_exits_;
  uint32_t new_way_count_ = 0;
  Addr last_end_ = 0;
  uint32_t last_exit_ = 0;
  std::vector<uint8_t> waiting_;
  uint64_t flow_records_ = 0, steps_ = 0, instructions_ = 0;
  uint64_t numbered_by_ = 0;          // identity of the symbols whose numbers calls have
  const Capture* capture_ = nullptr;  // nullptr: it is not described in this part
  std::optional<PartCoverage> coverage_;
  Memory* memory_ = nullptr;              // it goes back there
  std::optional<StableOrigins> origins_;  // of a recording that grows
  std::optional<Names> names_;            // those before
  Names described_names_;                 // with description_
  std::vector<uint8_t> description_;      // records, not written yet, of what held_ is of
  std::vector<uint8_t> held_;
  uint64_t described_ = 0, given_out_ = 0;  // bytes of descriptions, and of what they describe
};

struct BlockWriter::Memory {
  const RunTable* table = nullptr;
  std::vector<KnownRun> runs;  // none is known
  std::vector<RunEnds> ends;
};

}  // namespace asof::blocks
