// PerfDataFile: a perf.data that perf's own tools open: side-band records of a recording, and samples. Layouts:
// include/uapi/linux/perf_event.h, tools/perf/Documentation/perf.data-file-format.txt.
//
// All records get a trailer of one form, for one event that stands for those of the recording: perf refuses a file whose
// events have their id at different places.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/perf/perf_data.h"
#include "tools/output/unfinished_file.h"

namespace asof {

// An event whose samples are in the file.
struct SynthesisedEvent {
  std::string name;
  uint32_t type = 0;
  uint64_t config = 0, period = 1, sample_type = 0, exclude = 0;
  uint64_t id = 0;
};

class PerfDataFile {
 public:
  PerfDataFile(const std::string& path, const PerfData& source, std::vector<SynthesisedEvent> events);

  // False: it could not be made.
  bool begin();
  void side_band(const Record& record);
  // A whole record, of this time.
  void sample(std::string_view record, Time time);
  Result<void> finish();

  static constexpr uint64_t kSideBandId = 1;

 private:
  void put(std::string_view bytes);
  void put_side_band(const Record& record, uint64_t time);
  std::string attributes() const;
  std::string features(uint64_t at, std::string& table) const;
  std::string event_description() const;
  Error failure() const;

  std::string path_;
  const PerfData& source_;
  std::vector<SynthesisedEvent> events_;  // the first is that of the records
  UnfinishedFile file_;
  Output out_;
  std::vector<Record> ends_;  // of tasks, at times that no record says
  uint64_t last_ = 0;         // time of a sample
  uint64_t data_begin_ = 0, size_ = 0;
};

// Whether a record of a recording is still true without its trace, and of use to perf.
bool is_kept(const Record& record);
// Of those, whether it is of use to AutoFDO, which stops at one that it does not know (0.19).
bool is_for_autofdo(const Record& record);

// Little-endian bytes.
void put_u64(std::string& out, uint64_t value);
void put_u32(std::string& out, uint32_t value);
void put_u16(std::string& out, uint16_t value);

}  // namespace asof
