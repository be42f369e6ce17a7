// SideBand: what the records of a perf recording say about text and tasks, as facts in time order. Points
// into PerfData, which must outlive it. Order and meaning of the live-text records: docs/live-text.md.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "decoder/io/sideband_notices.h"
#include "decoder/perf/perf_data.h"
#include "textstore/facts.h"

namespace asof {

struct KsymbolFact {
  static constexpr uint16_t kBpf = 1, kOutOfLine = 2;
  Time time = kTimeMin;
  AddrRange range;
  uint16_t type = 0;
  bool unregister = false;
  std::string name;
  uint64_t file_offset = 0;
};

struct BpfFact {
  Time time = kTimeMin;
  bool load = false;
  uint32_t id = 0;
  std::array<uint8_t, 8> tag{};
  uint64_t file_offset = 0;
};

// Text of the kernel or of a module as perf maps it (pid -1).
struct KernelMapFact {
  AddrRange range;
  uint64_t pgoff = 0;
  std::string name;
  std::string build_id;
};

struct TaskFact {
  enum class Kind : uint8_t {
    kMap,
    kUnmap,
    kComm,
    kExec,
    kFork,
    kExit
  };  // kUnmap: a mapping that is not code
  Kind kind = Kind::kMap;
  Time time = kTimeMin;
  int32_t pid = -1, tid = -1;
  int32_t parent_pid = -1, parent_tid = -1;  // kFork
  AddrRange range{};                         // kMap, kUnmap
  uint64_t pgoff = 0;
  uint32_t name = 0;      // kMap: file; kComm, kExec: comm. Index into SideBand::names
  uint32_t file = 0;      // kMap, kUnmap. Index into names
  bool writable = false;  // kMap, kUnmap: MMAP2 with PROT_WRITE or MAP_SHARED
  uint32_t build_id = 0;  // index into names; 0: ""
};

// From `time` on, (pid, tid) runs on `cpu`. pid -1: unknown.
struct SwitchFact {
  Time time = kTimeMin;
  int32_t cpu = -1;
  int32_t pid = -1, tid = -1;
  int32_t before_pid = -1, before_tid = -1;  // the task that ran until then, if known
  bool preempted = false;                    // that task could have run on
  bool trace_start = false;                  // from ITRACE_START, not from a switch
};

struct SideBand {
  std::vector<Poke> pokes;
  std::vector<LostRecords> lost;
  // Files (index into names) that were mapped with several inodes, without build-ids: the path does not say which it was.
  std::set<uint32_t> replaced;
  std::vector<KsymbolFact> ksymbols;
  std::vector<BpfFact> bpf_events;
  std::vector<KernelMapFact> kernel_maps;
  std::vector<TaskFact> tasks;
  std::map<int32_t, std::vector<SwitchFact>> switches;  // by CPU; each list sorted
  std::unordered_map<int32_t, int32_t> pid_of_tid;
  std::deque<std::string> names;
  Time first_time = kTimeMax;  // of all records that have one
  Time last_time = kTimeMin;
  Time trace_start = kTimeMax;  // first ITRACE_START
};

// Reads all records once. Malformed ones become notices (E-SIDE-3xx) with their offset and are left out; what
// comes after them is read. Every list is sorted by time, synthesised records (kTimeMin) first, ties in file
// order.
SideBand read_side_band(const PerfData& data, NoticeBook& notices);

}  // namespace asof
