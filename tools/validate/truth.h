// Ground truth of a capture whose execution was observed: per CPU or thread a compressed list of executed
// runs, cpu<N>.blocks.zst, tid<N>.blocks.zst or tid<N>-cpu<M>.blocks.zst. A run is a straight stretch of executed instructions; 32 bytes, little-endian: u64
// address, u32 bytes, u32 instructions, u32 flags, u32 reserved, u64 time entered (perf clock, ns). Layout
// and counting rules: docs/usage.md.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/stream.h"
#include "textstore/address.h"
#include "textstore/result.h"
#include "textstore/time.h"

namespace asof {

struct TruthRun {
  static constexpr uint32_t kByException = 1;  // entered by an exception or interrupt
  static constexpr uint32_t kTraceStart = 2;   // trace starts or restarts here
  static constexpr uint32_t kLateText = 4;     // bytes of an instruction are in no record of the capture
  static constexpr uint32_t kEndsEarly = 8;    // ended by an exception after an instruction that is no branch

  Addr ip = 0;
  uint32_t bytes = 0;
  uint32_t count = 0;
  uint32_t flags = 0;
  Time time = kTimeMin;

  Addr end() const { return ip + bytes; }
};

// Reads one file as a stream; memory does not depend on its length.
class TruthReader {
 public:
  static Result<TruthReader> open(const std::string& path);
  TruthReader(TruthReader&&) noexcept;
  ~TruthReader();

  // False at the end, or where the file is damaged; error() returns which.
  bool next(TruthRun& run);
  const std::optional<Error>& error() const;

 private:
  struct Impl;
  explicit TruthReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Whose trace a truth is of: a CPU's, a thread's (perf record --per-thread), or what one CPU wrote of a thread's, where
// that is a stream of its own.
struct TruthId {
  int cpu = -1, tid = -1;
  auto operator<=>(const TruthId&) const = default;
};
TruthId truth_id(const Stream& stream);
std::string truth_name(TruthId id);  // "cpu 3", "thread 1201", "thread 1201 on cpu 3"
std::string truth_stem(TruthId id);  // "cpu3", "tid1201", "tid1201-cpu3"

// What summary.json says about one of them.
struct TruthSummary {
  uint64_t instructions = 0;
  uint64_t ip_hash = 0;
  // ETM: executed after the last branch before the trace ends, which no trace can show; and the hash without
  // them.
  uint64_t trailing = 0;
  uint64_t ip_hash_without_trailing = 0;
};
// An error when DIR/summary.json cannot be read.
Result<std::map<TruthId, TruthSummary>> read_truth_summary(const std::string& directory);
// Those that have a file truth_stem().blocks.zst in the directory.
Result<std::vector<TruthId>> truth_ids(const std::string& directory);
std::string truth_file(const std::string& directory, TruthId id);

}  // namespace asof
