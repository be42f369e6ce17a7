// PerfData: the container of a perf recording (file, directory's `data`, pipe): header, attributes, features,
// records as views, AUX buffers. Knows nothing of text or PT packets. Byte layouts: docs/formats.md, kernel
// include/uapi/linux/perf_event.h and tools/perf/Documentation/perf.data-file-format.txt.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arch/stream.h"
#include "decoder/io/notice.h"
#include "textstore/result.h"
#include "textstore/time.h"

namespace asof {

struct PerfAttr {
  uint32_t type = 0;
  uint64_t config = 0, config1 = 0, config2 = 0;
  uint64_t sample_type = 0;
  uint64_t read_format = 0;
  uint64_t flags = 0;  // bits of perf_event_attr at offset 40, bit 0 = disabled
  uint64_t branch_sample_type = 0;
  int32_t clockid = 0;
  uint64_t sample_regs_user = 0, sample_regs_intr = 0;
  uint32_t aux_sample_size = 0;
  std::vector<uint64_t> ids;
  std::string name;  // from EVENT_DESC or EVENT_UPDATE; may be empty
};

// sample_id trailer, or for SAMPLE the same fields of its body; what is not recorded keeps its default.
struct SampleId {
  int32_t pid = -1, tid = -1;
  std::optional<Time> time;  // 0 and ~0 in the file mean "synthesised": kTimeMin here
  int32_t cpu = -1;
  uint64_t id = 0;
  const PerfAttr* attr = nullptr;
  // When it was recorded; nothing where that is not known.
  std::optional<Time> instant() const { return time == kTimeMin ? std::nullopt : time; }
};

struct Record {
  uint32_t type = 0;
  uint16_t misc = 0;
  // The whole record with its 8-byte header, in the file's byte order; read it with the functions of
  // decoder/perf/records.h. Lifetimes as long as PerfData.
  std::span<const uint8_t> bytes;
  std::span<const uint8_t> body;  // after the header, without the sample_id trailer
  uint64_t file_offset = 0;  // in the file; for compressed records, of the COMPRESSED record that holds it
  uint64_t unpacked_offset = Error::kNoOffset;  // of compressed records: in the unpacked bytes of their file
  uint32_t file = 0;     // 0: the file itself or a directory's `data`; n: its n-th `data.<k>`
  bool swapped = false;  // numbers in it are in the other byte order
  SampleId id;
  Time time() const { return id.time.value_or(kTimeMin); }
};

// One AUXTRACE record with its payload, or one AUX sample.
struct AuxBuffer {
  uint32_t idx = 0;
  int32_t cpu = -1, tid = -1;
  uint64_t offset = 0;  // in the AUX stream
  uint64_t reference = 0;
  std::span<const uint8_t> bytes;
  uint64_t file_offset = 0;         // of the payload
  std::optional<Time> sample_time;  // AUX sample mode
};

struct AuxRecord {  // PERF_RECORD_AUX
  uint64_t offset = 0, size = 0, flags = 0;
  SampleId id;
  uint64_t file_offset = 0;
};

struct AuxtraceInfo {
  uint32_t type = 0;  // 1 intel_pt, 3 cs_etm, ...
  std::vector<uint64_t> priv;
  std::string filter;            // intel_pt address filter string
  bool cap_event_trace = false;  // intel_pt, the word after the filter string
  uint64_t file_offset = 0;
};

// CLOCK_DATA (feature 29): one instant on two clocks.
struct ClockData {
  uint32_t clockid = 0;
  uint64_t time_of_day_ns = 0, clock_ns = 0;
};

struct TimeConvRecord {
  uint64_t shift = 0, mult = 0, zero = 0, cycles = 0, mask = 0;
  bool cap_zero = true, cap_short = false;
};

// BPF_PROG_INFO (feature 25): one program as its image was read.
struct BpfImage {
  uint32_t id = 0;
  std::array<uint8_t, 8> tag{};
  std::string name;
  struct Function {
    uint64_t address = 0;
    std::span<const uint8_t> bytes;
  };
  std::vector<Function> functions;  // split by func lens, in jited_ksyms order
  uint64_t file_offset = 0;
};

// Bytes of a file with records that cannot be read.
struct PassedOver {
  uint32_t file = 0;            // as Record::file
  uint64_t begin = 0, end = 0;  // end UINT64_MAX: the file ends before the recording did
};

struct BuildIdEntry {
  int32_t pid = -1;
  uint16_t misc = 0;
  std::string build_id;
  std::string filename;
};

class PerfData {
 public:
  static constexpr uint64_t kPartBytes = 512U << 10U;
  // A file, a directory with `data` in it, or "-" for standard input (spooled to an unlinked temporary file).
  // Several threads read it (in_order.h), in parts of about part_bytes each; what is read depends on neither.
  static Result<std::shared_ptr<const PerfData>> open(const std::string& path,
                                                      uint64_t part_bytes = kPartBytes);
  ~PerfData();

  // All records in file order, COMPRESSED ones unpacked, `data.<n>` of directories after `data`. AUXTRACE
  // payloads are skipped. A damaged record is reported once in notices() and ends the stretch it is in.
  // Return false to stop.
  void for_each(const std::function<bool(const Record&)>& visit) const;
  // Only those of some types, which is faster.
  void for_each(std::initializer_list<uint32_t> types, const std::function<bool(const Record&)>& visit) const;
  // The same records in parts, for several threads at a time: those of part 0, then of part 1, and so on.
  size_t parts() const;
  void for_each_in(size_t part, const std::function<bool(const Record&)>& visit) const;

  std::span<const PerfAttr> attrs() const;
  std::span<const AuxBuffer> aux_buffers()
      const;  // AUXTRACE, file order; payload spans live as long as PerfData
  std::span<const AuxRecord> aux_records() const;
  const std::optional<AuxtraceInfo>& auxtrace_info() const;
  const std::optional<TimeConvRecord>& time_conv() const;
  std::span<const BpfImage> bpf_images() const;
  std::span<const std::pair<uint32_t, std::span<const uint8_t>>> bpf_btf() const;
  std::span<const BuildIdEntry> build_ids() const;  // feature 2 and HEADER_BUILD_ID records
  // id -> idx, cpu, tid of ID_INDEX
  struct IdIndex {
    uint64_t id, idx;
    int32_t cpu, tid;
  };
  std::span<const IdIndex> id_index() const;

  // Body of any header feature, in the file's byte order; empty when it is not there.
  std::span<const uint8_t> feature(int bit) const;
  std::span<const std::pair<uint32_t, std::string>> pmu_mappings() const;  // type, name
  const std::optional<ClockData>& clock_data() const;

  std::string feature_string(
      int bit) const;  // HOSTNAME 3, OSRELEASE 4, VERSION 5, ARCH 6, CPUDESC 8, CPUID 9
  std::vector<std::string> command_line() const;
  uint32_t nr_cpus() const;  // online when recorded; 0: unknown
  const std::map<uint32_t, uint64_t>& record_counts()
      const;                                // by type, COMPRESSED records and what is in them
  std::span<const Notice> notices() const;  // damage met while opening
  std::span<const PassedOver> passed_over() const;
  bool may_go_on() const;  // nothing says whether this is all of the recording: a pipe has no end mark

  const std::string& path() const;
  const std::string& directory() const;  // of a directory capture; else empty
  bool swapped() const;                  // recorded in the other byte order

  struct Impl;  // decoder/perf/perf_data_impl.h, for the parts of the reader

 private:
  explicit PerfData(std::unique_ptr<Impl>);
  std::unique_ptr<Impl> impl_;
};

// Streams from AUX buffers: one per CPU or thread, losses marked, overlapping snapshot buffers stitched
// (Intel PT).
std::vector<Stream> make_streams(const PerfData& data, std::vector<Notice>& notices);

// "KSYMBOL", "TEXT_POKE", ...; "UNKNOWN(n)" for others.
std::string record_type_name(uint32_t type);
// One line about a record's content, for `asof events`.
std::string describe_record(const Record& record);

}  // namespace asof
