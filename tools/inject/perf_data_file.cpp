#include "tools/inject/perf_data_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"

namespace asof {
namespace {

constexpr uint64_t kMagic = 0x32454c4946524550;  // "PERFILE2"
constexpr uint64_t kHeaderSize = 104, kAttrSize = 128, kAttrEntry = kAttrSize + 16;
constexpr uint64_t kSampleIdAll = 1U << 18U;
constexpr int kEventDesc = 12, kDirFormat = 24;

// Features that are of the machine, not of the file: build-ids, names of host and system, CPUs, command line,
// topology, caches, clocks, BPF programs.
constexpr int kFeatures[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 16, 20, 23, 25, 26, 29};

void put_padded(std::string& out, std::string_view text) {
  const size_t size = (text.size() + 1 + 63) / 64 * 64;
  put_u32(out, static_cast<uint32_t>(size));
  out += text;
  out.append(size - text.size(), '\0');
}

}  // namespace

void put_u64(std::string& out, uint64_t value) {
  for (unsigned i = 0; i < 8; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}
void put_u32(std::string& out, uint32_t value) {
  for (unsigned i = 0; i < 4; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}
void put_u16(std::string& out, uint16_t value) {
  out += static_cast<char>(value & 0xff);
  out += static_cast<char>(value >> 8 & 0xff);
}

bool is_for_autofdo(const Record& record) {
  switch (record.type) {
    case perf::kMmap:
    case perf::kMmap2:
    case perf::kComm:
    case perf::kFork:
    case perf::kExit:
    case perf::kLost:
      return true;
    default:
      return false;
  }
}

bool is_kept(const Record& record) {
  switch (record.type) {
    case perf::kSwitch:
    case perf::kSwitchCpuWide:
    case perf::kNamespaces:
    case perf::kKsymbol:
    case perf::kBpfEvent:
    case perf::kCgroup:
    case perf::kTextPoke:
      return true;
    default:
      return is_for_autofdo(record);
  }
}

PerfDataFile::PerfDataFile(const std::string& path, const PerfData& source,
                           std::vector<SynthesisedEvent> events)
    : path_(path), source_(source), events_(std::move(events)), file_(path), out_(file_.output()) {
  SynthesisedEvent records{.name = "dummy:u", .type = 1, .config = 9, .id = kSideBandId};
  records.sample_type = kSampleTid | kSampleTime | kSampleCpu | kSampleIdentifier;
  events_.insert(events_.begin(), std::move(records));
}

void PerfDataFile::put(std::string_view bytes) {
  out_.write(bytes);
  size_ += bytes.size();
}

std::string PerfDataFile::attributes() const {
  // Of perf_event_attr::branch_sample_type: PERF_SAMPLE_BRANCH_ANY, PERF_SAMPLE_BRANCH_TYPE_SAVE.
  constexpr size_t kBranchSampleTypeAt = 72;
  constexpr uint64_t kAnyBranch = 1 << 3, kTypesOfBranches = 1 << 16;
  std::string out;
  for (const SynthesisedEvent& e : events_) {
    std::string attr;
    put_u32(attr, e.type);
    put_u32(attr, kAttrSize);
    for (const uint64_t v : {e.config, e.period, e.sample_type, uint64_t{4}, kSampleIdAll | e.exclude})
      put_u64(attr, v);
    attr.resize(kBranchSampleTypeAt, '\0');
    put_u64(attr, (e.sample_type & kSampleBranchStack) != 0 ? kAnyBranch | kTypesOfBranches : 0);
    attr.resize(kAttrSize, '\0');
    out += attr;
  }
  return out;
}

// The header is written again when the sizes are known.
bool PerfDataFile::begin() {
  if (file_.error()) return false;
  const std::string attrs = attributes();
  std::string head(kHeaderSize, '\0');
  for (const SynthesisedEvent& e : events_) put_u64(head, e.id);
  for (size_t i = 0; i < events_.size(); ++i) {
    head += attrs.substr(i * kAttrSize, kAttrSize);
    put_u64(head, kHeaderSize + i * sizeof(uint64_t));
    put_u64(head, sizeof(uint64_t));
  }
  put(head);
  data_begin_ = size_;
  return true;
}

void PerfDataFile::side_band(const Record& r) {
  constexpr size_t kTrailer = 32, kHead = 8, kMost = UINT16_MAX;
  if (kHead + r.body.size() + kTrailer > kMost) return;  // no recorder makes it
  // Newer perf forgets a task that ends. Where records have no time, its samples are after them.
  if (r.type == perf::kExit && r.time() == kTimeMin)
    ends_.push_back(r);
  else
    put_side_band(r, r.time() == kTimeMin ? 0 : static_cast<uint64_t>(r.time()));
}

void PerfDataFile::put_side_band(const Record& r, uint64_t time) {
  constexpr size_t kTrailer = 32, kHead = 8;
  std::string out;
  put_u32(out, r.type);
  put_u16(out, r.misc);
  put_u16(out, static_cast<uint16_t>(kHead + r.body.size() + kTrailer));
  out.append(reinterpret_cast<const char*>(r.body.data()), r.body.size());
  put_u32(out, static_cast<uint32_t>(std::max(r.id.pid, 0)));
  put_u32(out, static_cast<uint32_t>(std::max(r.id.tid, 0)));
  put_u64(out, time);
  put_u32(out, static_cast<uint32_t>(std::max(r.id.cpu, 0)));
  put_u32(out, 0);
  put_u64(out, kSideBandId);
  put(out);
}

void PerfDataFile::sample(std::string_view record, Time time) {
  put(record);
  if (time > 0) last_ = std::max(last_, static_cast<uint64_t>(time));
}

// EVENT_DESC: otherwise perf names events by their numbers.
std::string PerfDataFile::event_description() const {
  const std::string attrs = attributes();
  std::string out;
  put_u32(out, static_cast<uint32_t>(events_.size()));
  put_u32(out, kAttrSize);
  for (size_t i = 0; i < events_.size(); ++i) {
    out += attrs.substr(i * kAttrSize, kAttrSize);
    put_u32(out, 1);
    put_padded(out, events_[i].name);
    put_u64(out, events_[i].id);
  }
  return out;
}

// The bodies one after the other, from `at` on; `table`: where each is, in order of their bits.
std::string PerfDataFile::features(uint64_t at, std::string& table) const {
  std::map<int, std::string> all;
  for (const int bit : kFeatures) {
    const auto body = source_.feature(bit);
    if (!body.empty()) all[bit] = {reinterpret_cast<const char*>(body.data()), body.size()};
  }
  all[kEventDesc] = event_description();
  // Of a folder: how its files are divided.
  if (const auto form = source_.feature(kDirFormat); !form.empty() && !source_.directory().empty())
    all[kDirFormat] = {reinterpret_cast<const char*>(form.data()), form.size()};
  at += all.size() * 16;
  std::string bodies, bits(32, '\0');
  for (const auto& [bit, body] : all) {
    put_u64(table, at + bodies.size());
    put_u64(table, body.size());
    bodies += body;
    bits[static_cast<size_t>(bit) / 8] = static_cast<char>(bits[static_cast<size_t>(bit) / 8] | 1 << bit % 8);
  }
  table += bits;  // for the header
  return bodies;
}

Error PerfDataFile::failure() const {
  return {Code::kCannotWrite, path_, Error::kNoOffset, fmt::format("cannot write: {}", std::strerror(errno)),
          "choose another file with -o"};
}

Result<void> PerfDataFile::finish() {
  if (file_.error()) return std::unexpected(*file_.error());
  for (const Record& r : ends_) put_side_band(r, last_);
  const uint64_t data_size = size_ - data_begin_;
  std::string table;
  const std::string bodies = features(size_, table);
  const std::string bits = table.substr(table.size() - 32);
  table.resize(table.size() - 32);
  put(table);
  put(bodies);
  if (!out_.flush()) {
    if (auto failed = Output::take_failure()) return std::unexpected(*failed);
  }
  std::string head;
  put_u64(head, kMagic);
  put_u64(head, kHeaderSize);
  put_u64(head, kAttrEntry);
  put_u64(head, kHeaderSize + events_.size() * sizeof(uint64_t));
  put_u64(head, events_.size() * kAttrEntry);
  put_u64(head, data_begin_);
  put_u64(head, data_size);
  head.append(16, '\0');  // of old files: types of events
  head += bits;
  if (::pwrite(file_.fd(), head.data(), head.size(), 0) != static_cast<ssize_t>(head.size()))
    return std::unexpected(failure());
  return file_.keep();
}

}  // namespace asof
