// SideBandLines: the lines of --show-mmap-events and the like, to be merged with those of the flow.
#pragma once
#include <string>
#include <vector>

#include "decoder/model/capture.h"
#include "tools/output/merge.h"
#include "tools/script/script_names.h"
#include "tools/script/script_record.h"

namespace asof {

struct SideBandChoice {
  bool mappings = false, tasks = false, switches = false, losses = false, bpf = false, namespaces = false,
       cgroups = false, pokes = false;
  bool any() const {
    return mappings || tasks || switches || losses || bpf || namespaces || cgroups || pokes;
  }
};

// Holds a view of each record that is wanted.
class SideBandLines {
 public:
  SideBandLines(const Capture& capture, const SideBandChoice& choice);
  // Those before `time` that were not taken yet, in order. kTimeMax: all.
  TimedText take(Time before);
  // Of the one that a record of kind kSideBand names: "PERF_RECORD_COMM: worker:1201/1201", of changes of text several
  // lines; the field misc; the type of the event that it belongs to.
  std::string text(const ScriptRecord& r, ScriptNames& names) const;
  std::string misc(const ScriptRecord& r) const;
  uint32_t event_type(const ScriptRecord& r) const;

 private:
  std::vector<Record> records_;  // in order of time
  size_t next_ = 0;
};

}  // namespace asof
