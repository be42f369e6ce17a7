// What a simulated CPU really executed while its trace was on: runs, counts, hash. Written in the format that
// `asof validate --truth` reads (docs/formats.md, "truth"): cpu<N>.blocks.zst with one 32-byte record per
// run, and summary.json.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tests/support/sim_memory.h"
#include "textstore/time.h"

namespace asof::test {

// A straight stretch of executed instructions: ends at a branch, an exception, or where the trace stops.
struct TruthRun {
  static constexpr uint32_t kAsync = 1;        // entered by an exception or interrupt
  static constexpr uint32_t kRestart = 2;      // trace starts or restarts here
  static constexpr uint32_t kLateText = 4;     // bytes are not in the capture
  static constexpr uint32_t kInterrupted = 8;  // ended by an exception after a non-branch instruction
  static constexpr uint32_t kUser = 16;

  uint64_t address = 0;
  uint32_t bytes = 0;
  uint32_t instructions = 0;
  uint32_t flags = 0;
  Time time = 0;  // of its first instruction
};

// One instruction, when all of them are kept.
struct Executed {
  Addr ip = 0;
  Time time = 0;
  Space space = kKernelSpace;
  uint8_t length = 0;
  std::array<uint8_t, 15> bytes{};
};

class Truth {
 public:
  explicit Truth(bool keep_instructions) : keep_instructions_(keep_instructions) {}

  void instruction(Addr ip, const SimInsn& insn, Space space, bool user, Time time);
  void late_text();    // bytes of the last instruction are not in the capture
  void async();        // an exception or interrupt happens before the next instruction
  void interrupted();  // the trace ends or pauses here; the next instruction is a restart

  const std::vector<TruthRun>& runs() const { return runs_; }
  const std::vector<Executed>& instructions() const { return executed_; }
  uint64_t count() const { return count_; }
  uint64_t hash() const { return hash_; }
  uint64_t exceptions() const { return exceptions_; }
  uint64_t restarts() const { return restarts_; }

 private:
  bool keep_instructions_;
  bool open_ = false;  // the last run continues
  uint32_t next_flags_ = TruthRun::kRestart;
  std::vector<TruthRun> runs_;
  std::vector<Executed> executed_;
  uint64_t count_ = 0, hash_ = 0, exceptions_ = 0, restarts_ = 0;
};

// truth/cpu<N>.blocks.zst and truth/summary.json below `directory`; `note` goes into the summary.
void write_truth(const std::filesystem::path& directory, std::span<const Truth* const> cpus,
                 const std::string& note);
std::vector<uint8_t> zstd_compress(std::span<const uint8_t> bytes);
std::vector<uint8_t> zstd_decompress(std::span<const uint8_t> bytes);

}  // namespace asof::test
