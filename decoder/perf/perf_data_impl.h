// What the parts of the perf.data reader share: the sources (the file, then each `data.<n>`), where sound
// records lie in them, and how a record's attribute is found. Private to perf_data*.cpp, perf_features*.cpp,
// perf_compressed.cpp.
//
// Opening makes two passes. The first (perf_data_scan.cpp) walks the record headers, finds the stretches that
// can be walked again without a check failing, unpacks COMPRESSED records into a spool, and collects what
// later records depend on (attributes and features of a pipe). The second (perf_data_walk.cpp) delivers
// records with their ids; for_each() is that second pass again.
#pragma once
#include <algorithm>
#include <bitset>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>

#include "decoder/io/reader.h"
#include "decoder/perf/perf_data.h"
#include "decoder/perf/perf_data_input.h"
#include "decoder/perf/record_types.h"

namespace asof::perf {

enum Feature : int {
  kFeatureBuildId = 2,
  kFeatureHostname = 3,
  kFeatureNrCpus = 7,
  kFeatureCmdline = 11,
  kFeatureEventDesc = 12,
  kFeaturePmuMappings = 16,
  kFeatureAuxtrace = 18,
  kFeatureDirFormat = 24,
  kFeatureBpfProgInfo = 25,
  kFeatureBpfBtf = 26,
  kFeatureCompressed = 27,
  kFeatureClockData = 29,
  kFeatureBits = 256,
};

inline constexpr uint64_t kHeaderSize = 8;     // of a record
inline constexpr uint64_t kAuxtraceSize = 48;  // of an AUXTRACE record without its payload
inline constexpr uint64_t kAttrMinSize = 64;   // PERF_ATTR_SIZE_VER0

// One record's header, and the bytes after the record that belong to it (AUXTRACE, HEADER_TRACING_DATA).
struct RawRecord {
  enum class Fault : uint8_t { kNone, kTooSmall, kPastEnd, kPayloadPastEnd, kOverTrace };
  uint32_t type = 0;
  uint16_t misc = 0;
  uint16_t size = 0;
  uint64_t payload = 0;  // as stated; with kPayloadPastEnd more than there is
  Fault fault = Fault::kNone;
};
void read_payload_size(RawRecord& raw, std::span<const uint8_t> record, uint64_t room, bool swap);

// Looks at bytes[pos, end). `payloads` is false for unpacked records, where none can follow.
inline RawRecord read_raw(std::span<const uint8_t> bytes, uint64_t pos, uint64_t end, bool swap,
                          bool payloads) {
  RawRecord raw;
  const uint64_t room = end - pos;
  Reader in(bytes.subspan(pos, std::min(room, kHeaderSize)), swap);
  raw.type = in.u32();
  raw.misc = in.u16();
  raw.size = in.u16();
  if (!in.ok()) {
    raw.fault = RawRecord::Fault::kPastEnd;
  } else if (raw.size < kHeaderSize) {
    raw.fault = RawRecord::Fault::kTooSmall;
  } else if (raw.size > room) {
    raw.fault = RawRecord::Fault::kPastEnd;
  } else if (payloads && (raw.type == kAuxtrace || raw.type == kHeaderTracingData)) {
    read_payload_size(raw, bytes.subspan(pos, raw.size), room, swap);
  }
  return raw;
}

// Records tile [begin, end); only the payload of the last one may be cut by `end`.
struct Stretch {
  uint64_t begin = 0, end = 0;
};

// All COMPRESSED records of one source, unpacked.
struct Unpacked {
  struct Chunk {        // one COMPRESSED record
    uint32_t type = 0;  // COMPRESSED or COMPRESSED2
    uint64_t file_offset = 0;
    uint64_t end = 0;    // unpacked bytes up to and including this record's
    bool fresh = false;  // starts a new run: what was carried over from before is void
  };
  std::shared_ptr<const FileBytes> file;
  std::vector<Chunk> chunks;
  std::vector<Stretch> stretches;
};

struct Source {
  std::string path;
  std::shared_ptr<const FileBytes> file;
  uint64_t begin = 0, end = 0;  // of the records
  std::vector<Stretch> stretches;
  Unpacked unpacked;
  std::span<const uint8_t> bytes() const { return file->bytes(); }
};

// A place between two records. `chunk`: COMPRESSED records read; the last one's own records up to unpacked_pos.
struct Cursor {
  size_t stretch = 0;
  uint64_t pos = 0;  // 0: at the stretch's begin
  size_t chunk = 0, unpacked_stretch = 0;
  uint64_t unpacked_pos = 0;
};

using TypeSet = std::bitset<kTypeEnd>;

// Records that one thread reads at a time.
struct Part {
  size_t source = 0;
  Cursor begin, end;
  TypeSet types;  // of its records
};

struct FeatureBody {
  std::span<const uint8_t> bytes;
  uint64_t file_offset = 0;
};

// Collects notices, and prevents a file with a million faults from making a million of them.
class NoticeList {
 public:
  void add(Notice notice);
  std::vector<Notice> take() { return std::move(notices_); }
  std::vector<Notice>& list() { return notices_; }

 private:
  struct Tally {
    size_t listed = 0, last = 0;
  };
  std::vector<Notice> notices_;
  std::map<Code, Tally> tallies_;
};

// Damage within one record that does not touch its neighbours.
struct RecordFault {
  Code code;
  const char* reason;
};

// Which attribute a record belongs to, and the fields all records have (perf_event.h: sample_id_all, SAMPLE).
class IdParser {
 public:
  IdParser() = default;
  explicit IdParser(std::span<const PerfAttr> attrs);
  // Sets record.id and record.body. Returns what is wrong with it, or nullptr.
  const RecordFault* parse(Record& record) const;
  // The attribute that has this event id, or nullptr.
  const PerfAttr* find(uint64_t id) const {
    const uint32_t index = index_of(id);
    return index == kNoAttr ? nullptr : &attrs_[index];
  }

 private:
  static constexpr uint32_t kNoAttr = UINT32_MAX;
  uint32_t index_of(uint64_t id) const {
    if (id - first_id_ < near_ids_.size()) return near_ids_[id - first_id_];
    if (!near_ids_.empty()) return kNoAttr;
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? kNoAttr : found->second;
  }
  void index_ids();
  // Where an attribute's records hold their id; counted in u64 from the start of a SAMPLE's body, from the
  // end of other records. kNone: they have none.
  struct IdOffsets {
    static constexpr uint8_t kNone = 0xff;
    uint8_t sample = kNone, trailer = kNone;
    bool operator==(const IdOffsets&) const = default;
  };
  static IdOffsets offsets_of(const PerfAttr& attr);
  // Where the fields at the end of a record are, in bytes from their begin. kNone: it has none.
  struct Trailer {
    static constexpr uint8_t kNone = 0xff;
    uint8_t tid = kNone, time = kNone, id = kNone, cpu = kNone, size = 0;
    void read(const uint8_t* at, bool swap, SampleId& to) const;
  };
  static Trailer trailer_of(uint64_t sample_type);
  std::span<const uint8_t> without_rest(const Record& record, std::span<const uint8_t> body) const;
  const PerfAttr* attr_of(const Record& record, std::span<const uint8_t> body, bool& unknown_id) const;

  std::span<const PerfAttr> attrs_;
  std::vector<IdOffsets> offsets_;           // per attribute
  std::vector<IdOffsets> distinct_offsets_;  // usually one
  std::vector<Trailer> trailers_;            // per attribute
  std::unordered_map<uint64_t, uint32_t> by_id_;
  // All ids, from first_id_ on, if they lie close together, as the kernel gives them out: then without by_id_.
  std::vector<uint32_t> near_ids_;
  uint64_t first_id_ = 0;
};

inline constexpr uint64_t kAttrSampleIdAll = 1ULL << 18;

}  // namespace asof::perf

namespace asof {

struct PerfData::Impl {
  std::string path, directory;
  bool swapped = false;
  bool pipe = false;
  std::vector<perf::Source> sources;
  std::map<int, perf::FeatureBody> features;
  std::vector<PerfAttr> attrs;
  perf::IdParser ids;
  std::vector<perf::Part> parts;  // of all sources, in file order
  perf::NoticeList notices;
  std::vector<Notice> notice_list;

  std::vector<PassedOver> passed_over;
  bool may_go_on = false;

  std::vector<AuxBuffer> aux_buffers;
  std::vector<AuxRecord> aux_records;
  std::optional<AuxtraceInfo> auxtrace_info;
  std::optional<TimeConvRecord> time_conv;
  std::optional<ClockData> clock_data;
  std::vector<BpfImage> bpf_images;
  std::vector<std::pair<uint32_t, std::span<const uint8_t>>> bpf_btf;
  std::vector<BuildIdEntry> build_ids;
  std::vector<IdIndex> id_index;
  std::vector<std::pair<uint32_t, std::string>> pmu_mappings;
  std::map<uint32_t, uint64_t> record_counts;

  Reader reader(std::span<const uint8_t> bytes) const { return Reader(bytes, swapped); }
  void note(Notice::Severity severity, Code code, const std::string& where, uint64_t offset,
            std::string reason, std::string hint = {});

  void pass_over(const perf::Source& source, uint64_t begin, uint64_t end);

  // perf_data_header.cpp
  Result<void> open_source(const std::string& file_path);
  Result<void> read_header(perf::Source& source);
  void read_attrs(const perf::Source& source, uint64_t entry_size, uint64_t offset, uint64_t size);
  std::optional<PerfAttr> read_attr(std::span<const uint8_t> bytes) const;
  void read_feature_table(const perf::Source& source, std::span<const uint8_t> bitmap, uint64_t offset);
  std::array<uint64_t, 4> feature_bits(std::span<const uint8_t> bitmap) const;
  Result<void> open_stream_files();

  // perf_data_scan.cpp
  Result<void> scan(perf::Source& source);
  Result<void> scan_unpacked(perf::Source& source);

  // perf_data_walk.cpp. `payload`: what follows the record (AUXTRACE). `fault`: damage inside the record.
  using Visit = std::function<bool(const Record& record, std::span<const uint8_t> payload,
                                   const perf::RecordFault* fault)>;
  // `wanted`: other types are passed over.
  void find_parts(uint64_t part_bytes);
  void walk_part(size_t part, const Visit& visit) const;

  // perf_data_collect.cpp
  void add_header_attr(std::span<const uint8_t> body, const perf::Source& source, uint64_t file_offset);
  void collect();

  // perf_features.cpp, perf_features_bpf.cpp
  void read_features();
  void read_event_desc();
  void read_build_ids();
  void add_build_id(std::span<const uint8_t> record, uint64_t file_offset);
  void read_bpf_images();
  void read_bpf_btf();
};

}  // namespace asof
