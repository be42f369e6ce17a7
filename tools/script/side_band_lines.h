// SideBandLines: the lines of --show-mmap-events and the like, to be merged with those of the flow.
#pragma once
#include <string>
#include <vector>

#include "decoder/model/capture.h"
#include "tools/output/merge.h"
#include "tools/script/script_record.h"

namespace asof {

struct SideBandChoice {
  bool mappings = false, tasks = false, switches = false, losses = false;
  bool any() const { return mappings || tasks || switches || losses; }
};

// Holds a view of each record that is wanted.
class SideBandLines {
 public:
  SideBandLines(const Capture& capture, const SideBandChoice& choice);
  // Those before `time` that were not taken yet, in order. kTimeMax: all.
  TimedText take(Time before);
  // "PERF_RECORD_COMM: worker:1201/1201", of the one that a record of kind kSideBand names.
  std::string text(const ScriptRecord& r) const;

 private:
  std::vector<Record> records_;  // in order of time
  size_t next_ = 0;
};

}  // namespace asof
