#include "decoder/aux/aux_queues.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "decoder/aux/aux_streams.h"
#include "decoder/perf/perf_data_impl.h"
#include "decoder/perf/records.h"

namespace asof {
namespace {

constexpr uint64_t kOverwrite = 2;                        // PERF_AUX_FLAG_OVERWRITE
constexpr size_t kPrivSnapshotMode = 8, kPrivPerCpu = 9;  // AUXTRACE_INFO of Intel PT

uint64_t priv(const PerfData& data, size_t index, uint64_t fallback) {
  const auto& info = data.auxtrace_info();
  return info && info->type == perf::kAuxtraceIntelPt && index < info->priv.size() ? info->priv[index]
                                                                                   : fallback;
}

class QueueCollector {
 public:
  QueueCollector(const PerfData& data, std::vector<Notice>& notices) : data_(data), notices_(notices) {}

  std::vector<AuxQueue> collect();

 private:
  void take_buffers();
  void take_aux_records();
  void take_other_records();
  AuxQueue* queue_of(const SampleId& id);
  void count_lost(const Record& record);
  void doubt_starts(int32_t cpu);
  void report_lost();

  const PerfData& data_;
  std::vector<Notice>& notices_;
  std::map<uint32_t, AuxQueue> queues_;
  std::unordered_map<uint64_t, uint32_t> idx_of_id_;
  std::unordered_map<int32_t, uint32_t> idx_of_cpu_, idx_of_tid_;
  struct Lost {
    uint64_t records = 0, count = 0, file_offset = 0;
    Time first = kTimeMax;
  };
  std::map<std::pair<uint32_t, int32_t>, Lost> lost_;  // by type and CPU
};

void QueueCollector::take_buffers() {
  for (const auto& entry : data_.id_index()) idx_of_id_.emplace(entry.id, static_cast<uint32_t>(entry.idx));
  const bool snapshot_mode = priv(data_, kPrivSnapshotMode, 0) != 0;
  const bool per_cpu = per_cpu_rings(data_);
  for (const AuxBuffer& buffer : data_.aux_buffers()) {
    AuxQueue& queue = queues_[buffer.idx];
    queue.idx = buffer.idx;
    queue.buffers.push_back(&buffer);
    queue.overlapping |= snapshot_mode || buffer.sample_time.has_value();
    if (buffer.cpu >= 0 && per_cpu) idx_of_cpu_.emplace(buffer.cpu, buffer.idx);
    if (buffer.tid >= 0 && (buffer.cpu < 0 || !per_cpu)) idx_of_tid_.emplace(buffer.tid, buffer.idx);
  }
}

// By the event's id where ID_INDEX knows it (nullptr: no buffer of its ring is there), else by CPU, else by thread.
AuxQueue* QueueCollector::queue_of(const SampleId& id) {
  const auto look = [&](const auto& table, auto key) -> AuxQueue* {
    const auto found = table.find(key);
    if (found == table.end()) return nullptr;
    const auto queue = queues_.find(found->second);
    return queue == queues_.end() ? nullptr : &queue->second;
  };
  if (id.id != 0 && idx_of_id_.contains(id.id)) return look(idx_of_id_, id.id);
  if (AuxQueue* queue = look(idx_of_cpu_, id.cpu); queue != nullptr) return queue;
  return look(idx_of_tid_, id.tid);
}

void QueueCollector::count_lost(const Record& record) {
  const auto parsed = parse_lost(record);
  if (!parsed || parsed->lost == 0) return;
  // perf writes LOST_SAMPLES without time, and with 0 for the CPU.
  const bool by_perf = record.type == perf::kLostSamples && record.time() == kTimeMin;
  Lost& lost = lost_[{record.type, by_perf ? -1 : record.id.cpu}];
  if (lost.records++ == 0) lost.file_offset = record.file_offset;
  lost.count += parsed->lost;
  if (record.time() != kTimeMin) lost.first = std::min(lost.first, record.time());
}

void QueueCollector::take_aux_records() {
  uint64_t unmatched = 0, unmatched_bytes = 0;
  const AuxRecord* first_unmatched = nullptr;
  for (const AuxRecord& record : data_.aux_records()) {
    if (AuxQueue* queue = queue_of(record.id); queue != nullptr) {
      queue->records.push_back(&record);
      queue->overlapping |= (record.flags & kOverwrite) != 0;
    } else if ((record.flags & kOverwrite) == 0 && record.size != 0) {
      ++unmatched;
      unmatched_bytes = end_of(unmatched_bytes, record.size);
      if (first_unmatched == nullptr) first_unmatched = &record;
    }
  }
  if (first_unmatched == nullptr) return;
  Notice notice;
  notice.severity = Notice::Severity::kLoss;
  notice.code = Code::kTraceWithoutBuffer;
  notice.where = data_.path();
  notice.offset = first_unmatched->file_offset;
  notice.time = first_unmatched->id.time.value_or(kTimeMin);
  notice.count = unmatched;
  notice.reason =
      fmt::format("{} AUX records announce {} bytes of trace on CPUs or threads without AUXTRACE buffers",
                  unmatched, unmatched_bytes);
  notices_.push_back(std::move(notice));
}

void QueueCollector::take_other_records() {
  data_.for_each({perf::kItraceStart, perf::kLost, perf::kLostSamples}, [&](const Record& record) {
    if (record.type == perf::kItraceStart) {
      AuxQueue* queue = queue_of(record.id);
      if (queue != nullptr && record.time() != kTimeMin && !queue->start_lost)
        queue->started = std::min(queue->started, record.time());
    } else if (record.type == perf::kLost || record.type == perf::kLostSamples) {
      count_lost(record);
      if (record.type == perf::kLost) doubt_starts(record.id.cpu);
    }
    return true;
  });
}

// The kernel writes LOST in front of the first record that its ring has room for again. Which rings are of that CPU is
// known where they are those of CPUs.
void QueueCollector::doubt_starts(int32_t cpu) {
  for (auto& [idx, queue] : queues_) {
    const bool of_another = cpu >= 0 && !queue.buffers.empty() && queue.buffers.front()->cpu >= 0 &&
                            queue.buffers.front()->cpu != cpu;
    if (queue.started == kTimeMax && !of_another) queue.start_lost = true;
  }
}

void QueueCollector::report_lost() {
  for (const auto& [key, lost] : lost_) {
    const auto& [type, cpu] = key;
    const bool records = type == perf::kLost;
    Notice notice;
    notice.severity = Notice::Severity::kLoss;
    notice.code = records ? Code::kRecordsLost : Code::kSamplesLost;
    notice.where = data_.path();
    notice.offset = lost.file_offset;
    notice.time = lost.first == kTimeMax ? kTimeMin : lost.first;
    notice.count = lost.records;
    notice.reason =
        fmt::format("{} {}{} lost{}, reported by {} {} record{}", lost.count, records ? "record" : "sample",
                    lost.count == 1 ? "" : "s", cpu >= 0 ? fmt::format(" on CPU {}", cpu) : "", lost.records,
                    record_type_name(type), lost.records == 1 ? "" : "s");
    notice.hint =
        "side-band may be missing (mappings, text changes, switches): record with larger buffers (-m)";
    notices_.push_back(std::move(notice));
  }
}

std::vector<AuxQueue> QueueCollector::collect() {
  take_buffers();
  take_aux_records();
  take_other_records();
  report_lost();
  std::vector<AuxQueue> queues;
  for (auto& [idx, queue] : queues_) {
    std::sort(queue.records.begin(), queue.records.end(), comes_before<AuxRecord>);
    queues.push_back(std::move(queue));
  }
  return queues;
}

}  // namespace

bool per_cpu_rings(const PerfData& data) { return priv(data, kPrivPerCpu, 1) != 0; }

std::vector<AuxQueue> collect_queues(const PerfData& data, std::vector<Notice>& notices) {
  return QueueCollector(data, notices).collect();
}

}  // namespace asof
