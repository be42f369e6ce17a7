// Contents of records: a parse function per type that matters to a decoder. Each takes a record as PerfData
// delivers it and reads within record.body; text and bytes point into the record and live as long as its
// PerfData. An Error says which field does not fit, with the record's offset. Layouts:
// include/uapi/linux/perf_event.h, tools/lib/perf/include/perf/event.h.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/perf/perf_data.h"
#include "textstore/address.h"
#include "textstore/result.h"

namespace asof {

// perf_event_attr.sample_type
inline constexpr uint64_t kSampleIp = 1U << 0, kSampleTid = 1U << 1, kSampleTime = 1U << 2,
                          kSampleAddr = 1U << 3, kSampleRead = 1U << 4, kSampleCallchain = 1U << 5,
                          kSampleIdField = 1U << 6, kSampleCpu = 1U << 7, kSamplePeriod = 1U << 8,
                          kSampleStreamId = 1U << 9, kSampleRaw = 1U << 10, kSampleBranchStack = 1U << 11,
                          kSampleRegsUser = 1U << 12, kSampleStackUser = 1U << 13, kSampleWeight = 1U << 14,
                          kSampleDataSrc = 1U << 15, kSampleIdentifier = 1U << 16,
                          kSampleTransaction = 1U << 17, kSampleRegsIntr = 1U << 18,
                          kSamplePhysAddr = 1U << 19, kSampleAux = 1U << 20, kSampleCgroup = 1U << 21,
                          kSampleDataPageSize = 1U << 22, kSampleCodePageSize = 1U << 23,
                          kSampleWeightStruct = 1U << 24;

// Record.misc, low three bits: in which mode the record's address is.
enum class CpuMode : uint8_t { kUnknown, kKernel, kUser, kHypervisor, kGuestKernel, kGuestUser };
inline CpuMode cpu_mode(const Record& record) { return static_cast<CpuMode>(record.misc & 7U); }

struct MmapRecord {  // MMAP, MMAP2
  int32_t pid = -1, tid = -1;
  Addr addr = 0;
  uint64_t len = 0, pgoff = 0;
  std::string_view filename;
  bool is_mmap2 = false;
  bool executable = false;                   // MMAP: not flagged as data; MMAP2: PROT_EXEC
  uint32_t prot = 0, flags = 0;              // MMAP2
  uint32_t maj = 0, min = 0;                 // MMAP2 without build_id
  uint64_t inode = 0, inode_generation = 0;  // MMAP2 without build_id
  std::string build_id;                      // lower-case hex; empty: not recorded
};

struct CommRecord {
  int32_t pid = -1, tid = -1;
  std::string_view comm;
  bool exec = false;  // by execve()
};

struct TaskRecord {  // FORK, EXIT
  int32_t pid = -1, ppid = -1, tid = -1, ptid = -1;
  uint64_t time = 0;  // as in the record's body
  bool exec = false;  // FORK: PERF_RECORD_MISC_FORK_EXEC
};

struct KsymbolRecord {
  static constexpr uint16_t kBpf = 1, kOutOfLine = 2;
  Addr addr = 0;
  uint32_t len = 0;
  uint16_t kind = 0;
  bool unregister = false;
  std::string_view name;
};

struct BpfEventRecord {
  static constexpr uint16_t kLoad = 1, kUnload = 2;
  uint16_t kind = 0, flags = 0;
  uint32_t id = 0;
  std::array<uint8_t, 8> tag{};
};

struct TextPokeRecord {
  Addr addr = 0;
  std::span<const uint8_t> old_bytes, new_bytes;
};

struct SwitchRecord {  // SWITCH, SWITCH_CPU_WIDE
  bool out = false, preempted = false;
  bool cpu_wide = false;
  int32_t next_prev_pid = -1, next_prev_tid = -1;  // next when out, previous when in; SWITCH_CPU_WIDE only
};

struct TaskIdRecord {
  int32_t pid = -1, tid = -1;
};  // ITRACE_START

struct LostRecord {  // LOST, LOST_SAMPLES
  uint64_t id = 0;   // LOST only
  uint64_t lost = 0;
};

struct NamespacesRecord {
  int32_t pid = -1, tid = -1;
  struct Link {
    uint64_t dev = 0, inode = 0;
  };
  std::vector<Link> links;  // net, uts, ipc, pid, user, mnt, cgroup
};

struct CgroupRecord {
  uint64_t id = 0;
  std::string_view path;
};

struct ThrottleRecord {
  uint64_t time = 0, id = 0, stream_id = 0;
};  // THROTTLE, UNTHROTTLE

struct AuxtraceErrorRecord {
  uint32_t type = 0, code = 0;
  int32_t cpu = -1, pid = -1, tid = -1;
  Addr ip = 0;
  std::optional<uint64_t> time;  // format 1 and later
  std::string_view message;
};

struct ThreadMapRecord {
  struct Thread {
    int32_t pid = -1;
    std::string_view comm;
  };
  std::vector<Thread> threads;
};

struct CpuMapRecord {
  std::vector<uint32_t> cpus;
  bool any = false;
};

struct SampleRecord {
  std::optional<Addr> ip, addr;
  std::optional<uint64_t> period;
  uint32_t callchain_size = 0;            // entries
  std::span<const uint8_t> callchain;     // u64 each, in the file's byte order
  std::span<const uint8_t> raw;           // of a tracepoint
  std::span<const uint8_t> branch_stack;  // {from, to, flags}, 24 bytes each, in the file's byte order
  std::optional<uint64_t> phys_addr, cgroup;
  std::span<const uint8_t> aux;  // PERF_SAMPLE_AUX: the end of the AUX stream at that time
};

Result<MmapRecord> parse_mmap(const Record& record);
Result<CommRecord> parse_comm(const Record& record);
Result<TaskRecord> parse_task(const Record& record);
Result<KsymbolRecord> parse_ksymbol(const Record& record);
Result<BpfEventRecord> parse_bpf_event(const Record& record);
// An Error also when 16 + 4 + old + new bytes are more than the record has.
Result<TextPokeRecord> parse_text_poke(const Record& record);
Result<SwitchRecord> parse_switch(const Record& record);
Result<TaskIdRecord> parse_itrace_start(const Record& record);
Result<LostRecord> parse_lost(const Record& record);
Result<AuxRecord> parse_aux(const Record& record);
Result<NamespacesRecord> parse_namespaces(const Record& record);
Result<CgroupRecord> parse_cgroup(const Record& record);
Result<ThrottleRecord> parse_throttle(const Record& record);
Result<uint64_t> parse_aux_output_hw_id(const Record& record);
Result<AuxtraceErrorRecord> parse_auxtrace_error(const Record& record);
Result<ThreadMapRecord> parse_thread_map(const Record& record);
Result<CpuMapRecord> parse_cpu_map(const Record& record);
Result<AuxtraceInfo> parse_auxtrace_info(const Record& record);
Result<TimeConvRecord> parse_time_conv(const Record& record);
// By the layout of record.id.attr, which must not be null.
Result<SampleRecord> parse_sample(const Record& record);

// Lower-case hex digits.
std::string hex(std::span<const uint8_t> bytes);

}  // namespace asof
