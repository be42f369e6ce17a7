// BranchCountReader: taken branches of whole chunks, counted by the workers. What follows what is counted by pairs
// of entries of a chunk, which are small numbers; addresses and names are looked up once for each pair, at
// the end. CountedBranches: the chunks of a capture, joined.
#pragma once
#include <tbb/enumerable_thread_specific.h>
#include <tsl/robin_map.h>

#include <optional>
#include <vector>

#include "arch/chunk_items.h"
#include "tools/profile/branch_writer.h"

namespace asof {

// Of a chunk, for the branches between it and its neighbours.
struct ChunkEnds : ChunkConsumer::Prepared {
  std::optional<Step> first;  // none: it has no steps
  std::optional<Step> last;   // the flow continues from here
};

class BranchCountReader {
 public:
  BranchCountReader(const Capture& capture, const std::vector<std::string>& dsos, TimeBounds time);
  BranchCountReader(const BranchCountReader&) = delete;
  BranchCountReader& operator=(const BranchCountReader&) = delete;

  // What lies before the first entry is not its matter.
  void read(const Chunk& chunk, const Stream& stream, ChunkEnds& out);
  // While the tables of runs exist that were read.
  void finish(BranchCounts& all);

 private:
  // What came after an entry: the run that was the first to do so, which is nearly always the same.
  struct Slot {
    RunId next = RunId::kNone;
    uint32_t count = 0;
  };
  struct PairHash {
    size_t operator()(uint64_t k) const { return k * kHashFactor >> 20U; }
  };
  enum class State : uint8_t { kUnknown, kFixed, kOther };  // fixed: its names hold for all time

  static size_t slot_of(StepCode code) { return size_t{index_of(run_of(code))} * 2 + taken_bit(code); }
  static uint64_t pair_key(StepCode code, RunId next) {
    return uint64_t{slot_of(code)} << 32U | index_of(next);
  }
  void items_before(ChunkItems& items, const Stream& stream, size_t index);
  void entries(size_t from, size_t to);
  void entry(StepCode code, size_t position);
  bool count_pair(StepCode next);
  void settle();
  bool is_fixed(StepCode code);
  void resolve();
  void resolve(StepCode code, RunId next, uint64_t times);
  Time time_of(size_t position);

  TimeBounds time_;
  BranchNames names_;
  BranchCounts counts_;
  BranchFlow flow_;
  const RunTable* table_ = nullptr;                    // of the runs below
  std::vector<Slot> slots_;                            // by slot_of()
  std::vector<State> states_;                          // by run
  tsl::robin_map<uint64_t, uint64_t, PairHash> more_;  // pairs that slots_ has not room for
  // Of the chunk that is read:
  const StepList* steps_ = nullptr;
  size_t loose_ = 0, time_mark_ = 0;
  // The entry, a run, that is not counted yet; its first block was entered.
  StepCode open_ = StepCode::kLoose;
  size_t open_at_ = 0;
};

class CountedBranches final : public ChunkConsumer {
 public:
  CountedBranches(const Capture& capture, std::vector<std::string> dsos, TimeBounds time);

  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream& stream) override;
  void deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) override;
  bool delivers_steps() const override { return false; }
  void finished(const std::exception_ptr& error) override;
  bool stopped() const override;
  const BranchCounts& counts() const { return counts_; }

 private:
  BranchNames names_;
  BranchCounts counts_;
  std::vector<BranchFlow> flows_;  // by stream
  tbb::enumerable_thread_specific<BranchCountReader> readers_;
};

}  // namespace asof
