// The part of `asof validate` that has a truth: every CPU's flow, fed chunk by chunk, against what ran there.
#pragma once
#include <tsl/robin_map.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/output/diagnostics.h"
#include "tools/output/tally.h"
#include "tools/validate/compare.h"
#include "tools/validate/truth.h"
#include "tools/validate/validation.h"

namespace asof {

// Of a CPU, or of a thread.
struct CpuResult {
  TruthId id;
  IpHash ips;  // as decoded
  CompareResult compare;
  std::optional<TruthSummary> summary;

  bool hash_agrees() const;
  // Nothing is missing except what no trace can show.
  bool nothing_missing() const;
  // The hash sees what the walk by address does not: lengths inside a run.
  bool pass() const;
};

class TruthComparison {
 public:
  TruthComparison(const Capture& capture, const LiveEvents& events, std::string directory)
      : capture_(capture), events_(events), directory_(std::move(directory)) {}

  // Chunks in stream order. False: no more is wanted, see error().
  bool add(const Chunk& chunk, const Stream& stream, const IpHash& ips);
  // After the last chunk: `ids` are those that have a truth and were to be decoded.
  Result<void> finish(const std::vector<TruthId>& ids, Diagnostics& diagnostics);

  const std::map<TruthId, CpuResult>& results() const { return results_; }

 private:
  bool open(size_t index, const Stream& stream);
  void close();
  void add_step(const Step& step);

  const Capture& capture_;
  const LiveEvents& events_;
  std::string directory_;
  size_t open_stream_ = SIZE_MAX;
  tsl::robin_map<const Block*, std::vector<uint8_t>> lengths_;
  std::optional<TruthReader> reader_;
  std::unique_ptr<Comparer> comparer_;
  size_t cursor_ = 0;  // of events_
  CpuResult current_;
  std::optional<Error> error_;
  std::map<TruthId, CpuResult> results_;
};

// What the comparison says, as answers: "truth" and, where both have times, "clock".
void check_truth(const std::map<TruthId, CpuResult>& results, const Capture& capture,
                 const LiveEvents& events, std::vector<Check>& out);
// The location of one difference.
std::string difference_text(const Capture& capture, const LiveEvents& events, TruthId id,
                            const Difference& d);

}  // namespace asof
