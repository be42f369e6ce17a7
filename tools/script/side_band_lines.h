// SideBandLines: the recording's own samples, and the lines of --show-mmap-events and the like, to be merged with those
// of the flow.
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "decoder/model/capture.h"
#include "tools/output/merge.h"
#include "tools/script/script_names.h"
#include "tools/script/script_record.h"

namespace asof {

struct SideBandChoice {
  bool mappings = false, tasks = false, switches = false, losses = false, bpf = false, namespaces = false,
       cgroups = false, pokes = false;
  bool samples = false;     // of the recording itself
  std::vector<int> cpus{};  // only of these; empty: all
  bool any() const {
    return mappings || tasks || switches || losses || bpf || namespaces || cgroups || pokes || samples;
  }
};

// Holds a view of each record that is wanted.
class SideBandLines {
 public:
  SideBandLines(const Capture& capture, const SideBandChoice& choice);
  // Those before `time` that were not taken yet, in order. kTimeMax: all.
  TimedText take(Time before);
  // The same as stream `number` of `merger`.
  void add_to(Merger& merger, size_t number, Time before);
  // Of the one that a record of kind kSideBand names: "PERF_RECORD_COMM: worker:1201/1201", of changes of text several
  // lines; the field misc; the type of the event that it belongs to.
  std::string text(const ScriptRecord& r, ScriptNames& names) const;
  std::string misc(const ScriptRecord& r) const;
  uint32_t event_type(const ScriptRecord& r) const;
  const Record& record(const ScriptRecord& r) const { return records_[r.a]; }
  // Of the addresses of a process in user mode; kNoSpace: it is not known.
  Space space_of(int32_t pid, Time t) const;

 private:
  void find_spaces(const Capture& capture);
  ScriptRecord line_of(const Record& r) const;

  std::vector<Record> records_;  // in order of time
  size_t next_ = 0;
  std::vector<uint64_t> periods_;  // by event
  const PerfAttr* first_event_ = nullptr;
  std::unordered_map<int32_t, std::map<Time, Space>> spaces_;  // by process, from a time on
};

}  // namespace asof
