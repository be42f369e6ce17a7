// PerfDataWriter: writes perf.data as a file, as a `perf record --kcore` directory, and as a pipe stream, so
// that tests need neither hardware nor root. Layouts follow include/uapi/linux/perf_event.h and
// tools/perf/Documentation/perf.data-file-format.txt; perf 6.1 opens the output.
//
// Records are kept in the order of the calls. Times are perf time in nanoseconds.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/bytes.h"

namespace asof::test {

// perf_event_attr::sample_type bits that this writer can put into records.
namespace sample {
inline constexpr uint64_t kIp = 1, kTid = 2, kTime = 4, kAddr = 8, kId = 64, kCpu = 128, kPeriod = 256,
                          kStreamId = 512, kIdentifier = 1 << 16, kAux = 1 << 20;
}
// perf_event_attr flag word (offset 40).
namespace attr_flag {
inline constexpr uint64_t kDisabled = 1, kExcludeUser = 1 << 4, kExcludeKernel = 1 << 5, kExcludeHv = 1 << 6,
                          kMmap = 1 << 8, kComm = 1 << 9, kTask = 1 << 13, kSampleIdAll = 1 << 18,
                          kMmap2 = 1 << 23, kCommExec = 1 << 24, kUseClockid = 1 << 25,
                          kContextSwitch = 1 << 26, kWriteBackward = 1 << 27, kKsymbol = 1 << 29,
                          kBpfEvent = 1 << 30, kTextPoke = 1ULL << 33, kBuildId = 1ULL << 34;
}

struct AttrSpec {
  uint32_t type = 1;    // PERF_TYPE_SOFTWARE
  uint64_t config = 9;  // PERF_COUNT_SW_DUMMY
  uint64_t sample_period = 1;
  uint64_t sample_type = sample::kIdentifier | sample::kTid | sample::kTime | sample::kCpu;
  uint64_t read_format = 4;  // ID
  uint64_t flags = attr_flag::kSampleIdAll;
  uint32_t aux_sample_size = 0;
  uint32_t size = 128;          // bytes of perf_event_attr; 64 to 144
  std::vector<uint64_t> ids{};  // one per CPU (or thread)
  std::string name{};           // for EVENT_DESC; empty: none
};

// The fields at the end of a kernel record. Default: as in records that the tool synthesises at the start
// (all zero).
struct Trailer {
  uint64_t time = 0;
  uint32_t cpu = 0;
  int32_t pid = 0, tid = 0;
  size_t attr = 0;      // the event whose id is used
  bool has_id = false;  // false: id 0
};

// IA32_RTIT_CTL bits as in attr.config of intel_pt.
namespace pt_config_bit {
inline constexpr uint64_t kPt = 1, kCyc = 2, kPwrEvt = 1 << 4, kFupOnPtw = 1 << 5, kMtc = 1 << 9,
                          kTsc = 1 << 10, kNoRetComp = 1 << 11, kPtw = 1 << 12, kBranch = 1 << 13,
                          kEvent = 1ULL << 31;
}

struct TimeConvSpec {
  uint64_t shift = 0, mult = 1, zero = 0, cycles = 0, mask = 0;
  bool cap_zero = true, cap_short = false;
};

// AUXTRACE_INFO of intel_pt; names as in tools/perf/util/intel-pt.h.
struct PtInfoSpec {
  uint64_t pmu_type = 8;
  TimeConvSpec time{};
  uint64_t have_sched_switch = 0;
  bool snapshot = false;
  bool per_cpu = true;
  uint64_t tsc_ctc_n = 0, tsc_ctc_d = 0;
  uint64_t max_nonturbo = 0;
  std::string filter{};
  bool with_event_trace_word = true;
  bool event_trace = false;  // the processor has it
};

struct AuxtraceSpec {
  uint64_t offset = 0;
  uint64_t reference = 0;  // TSC when the buffer was copied
  uint32_t idx = 0;
  int32_t tid = -1;
  int32_t cpu = 0;
};

struct MmapSpec {
  int32_t pid = -1, tid = 0;
  uint64_t addr = 0, len = 0, pgoff = 0;
  std::string filename{};
  std::vector<uint8_t> build_id{};  // MMAP2 only; empty: device, inode
  uint32_t prot = 5, flags = 2;     // r-x, private
  bool kernel = false;
};

struct SampleSpec {
  size_t attr = 0;
  uint64_t ip = 0, addr = 0, time = 0, period = 1, stream_id = 0;
  int32_t pid = 0, tid = 0;
  uint32_t cpu = 0;
  uint16_t misc = 0;
  std::vector<uint8_t> aux{};
};

// One program of the BPF_PROG_INFO feature.
struct BpfProgSpec {
  struct Function {
    uint64_t address = 0;
    std::vector<uint8_t> bytes{};
    std::array<uint8_t, 8> tag{};
  };
  uint32_t id = 0;
  uint32_t type = 1;  // BPF_PROG_TYPE_SOCKET_FILTER
  std::array<uint8_t, 8> tag{};
  std::string name{};
  uint64_t load_time = 0;
  uint32_t btf_id = 0;
  std::vector<Function> functions{};  // the main one first
  uint32_t info_len = 232;
};

enum class Compression : uint8_t { kNone, kRecord81, kRecord83 };

struct DirectoryParts {
  std::vector<uint8_t> kcore{};  // see elf_writer.h
  std::string kallsyms{}, modules{};
};

class PerfDataWriter {
 public:
  struct Options {
    bool big_endian = false;
    Compression compression = Compression::kNone;
    // Size of the records that go into one COMPRESSED record; a record may be split.
    size_t compressed_block = 16384;
    bool auxtrace_index = true;  // feature 18
  };

  PerfDataWriter() : PerfDataWriter(Options{}) {}
  explicit PerfDataWriter(const Options& options);

  // Must precede any record that refers to it. Returns its index.
  size_t add_attr(AttrSpec attr);

  // Kernel records.
  void mmap(const MmapSpec& m, const Trailer& t = {});
  void mmap2(const MmapSpec& m, const Trailer& t = {});
  void lost(uint64_t id, uint64_t count, const Trailer& t);
  void lost_samples(uint64_t count, const Trailer& t);
  void comm(int32_t pid, int32_t tid, std::string_view name, bool exec, const Trailer& t = {});
  void fork(int32_t pid, int32_t ppid, int32_t tid, int32_t ptid, const Trailer& t);
  void exit(int32_t pid, int32_t ppid, int32_t tid, int32_t ptid, const Trailer& t);
  void aux(uint64_t offset, uint64_t size, uint64_t flags, const Trailer& t);
  void itrace_start(int32_t pid, int32_t tid, const Trailer& t);
  void context_switch(bool out, bool preempted, const Trailer& t);
  // `pid`, `tid`: the next task if `out`, otherwise the previous one; the trailer holds the running task.
  void context_switch_cpu_wide(bool out, bool preempted, int32_t pid, int32_t tid, const Trailer& t);
  void ksymbol(uint64_t addr, uint32_t len, uint16_t type, uint16_t flags, std::string_view name,
               const Trailer& t);
  void bpf_event(uint16_t type, uint32_t id, const std::array<uint8_t, 8>& tag, const Trailer& t);
  void text_poke(uint64_t addr, std::span<const uint8_t> old_bytes, std::span<const uint8_t> new_bytes,
                 const Trailer& t);
  void sample(const SampleSpec& s);

  // Records of the tool.
  void auxtrace_info(uint32_t type, std::span<const uint64_t> priv, std::string_view filter = {});
  void auxtrace_info(const PtInfoSpec& info);
  void auxtrace(const AuxtraceSpec& a, std::span<const uint8_t> payload);  // padded to 8 with zeros
  void time_conv(const TimeConvSpec& c, bool short_form = false);
  void finished_round();
  void finished_init();
  struct IdIndexEntry {
    uint64_t id = 0, idx = 0;
    int64_t cpu = -1, tid = -1;
  };
  void id_index(std::span<const IdIndexEntry> entries);
  void thread_map(std::span<const std::pair<int32_t, std::string>> threads);
  void build_id_record(int32_t pid, uint16_t misc, std::span<const uint8_t> id, std::string_view filename);

  // Any record: `body` without header. With a trailer it is written as a kernel record.
  void record(uint32_t type, uint16_t misc, std::span<const uint8_t> body, const Trailer* trailer = nullptr);
  // Raw bytes without a header: for damaged files.
  void raw(std::span<const uint8_t> bytes);

  // Header features.
  void feature(int bit, std::vector<uint8_t> body);
  void feature_string(int bit, std::string_view s);
  void hostname(std::string_view s) { feature_string(3, s); }
  void os_release(std::string_view s) { feature_string(4, s); }
  void perf_version(std::string_view s) { feature_string(5, s); }
  void arch(std::string_view s) { feature_string(6, s); }
  void nr_cpus(uint32_t n);
  void cpu_desc(std::string_view s) { feature_string(8, s); }
  void cpu_id(std::string_view s) { feature_string(9, s); }
  void command_line(std::span<const std::string> words);
  void sample_time(uint64_t first, uint64_t last);
  void pmu_mappings(std::span<const std::pair<uint32_t, std::string>> pmus);
  void event_desc();  // from the attrs that have names
  void bpf_prog_info(std::span<const BpfProgSpec> programs);
  void bpf_btf(std::span<const std::pair<uint32_t, std::vector<uint8_t>>> btf);
  struct BuildIdSpec {
    int32_t pid = -1;
    uint16_t misc = 0;
    std::vector<uint8_t> id{};
    std::string filename{};
  };
  void build_ids(std::span<const BuildIdSpec> entries);

  std::vector<uint8_t> file_bytes() const;
  std::vector<uint8_t> pipe_bytes() const;
  void write_file(const std::filesystem::path& path) const;
  void write_pipe(const std::filesystem::path& path) const;
  // `data` and those of kcore_dir/{kcore,kallsyms,modules} that are not empty.
  void write_directory(const std::filesystem::path& path, const DirectoryParts& parts) const;

 private:
  struct Item {
    uint32_t type = 0;
    std::vector<uint8_t> record{};   // with header
    std::vector<uint8_t> payload{};  // after an AUXTRACE record
    bool raw = false;
  };
  ByteSink body() const { return ByteSink(options_.big_endian); }
  void emit(uint32_t type, uint16_t misc, const ByteSink& body, std::optional<Trailer> trailer = {});
  void put_trailer(ByteSink& s, const Trailer& t) const;
  uint64_t id_of(const Trailer& t) const;
  void put_attr(ByteSink& s, const AttrSpec& a) const;
  void put_string(ByteSink& s, std::string_view text) const;
  std::vector<Item> compressed(const std::vector<Item>& items) const;
  std::vector<uint8_t> compression_feature() const;

  Options options_;
  std::vector<AttrSpec> attrs_;
  std::vector<Item> items_;
  std::map<int, std::vector<uint8_t>> features_;
};

// Writes a file, creating its directory if needed.
void write_bytes(const std::filesystem::path& path, std::span<const uint8_t> bytes);
void write_text(const std::filesystem::path& path, std::string_view text);
std::vector<uint8_t> read_bytes(const std::filesystem::path& path);

}  // namespace asof::test
