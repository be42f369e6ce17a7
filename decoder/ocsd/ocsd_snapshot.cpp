#include "decoder/ocsd/ocsd_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "decoder/coresight/cs_frames.h"
#include "decoder/ocsd/ocsd_buffers.h"
#include "decoder/ocsd/ocsd_devices.h"
#include "decoder/ocsd/ocsd_dumps.h"
#include "decoder/ocsd/ocsd_ini.h"
#include "textstore/builder.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

std::vector<std::string_view> split_commas(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    if (!part.empty()) out.push_back(part);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return out;
}

// "cpu_3" is CPU 3.
std::optional<int32_t> number_in(std::string_view core_name) {
  if (!core_name.starts_with("cpu_")) return std::nullopt;
  core_name.remove_prefix(4);
  int32_t number = 0;
  const auto [end, status] = std::from_chars(core_name.data(), core_name.data() + core_name.size(), number);
  if (status != std::errc() || end != core_name.data() + core_name.size() || number < 0) return std::nullopt;
  return number;
}

class SnapshotReader {
 public:
  SnapshotReader(IniFile snapshot, const CaptureOptions& options)
      : snapshot_(std::move(snapshot)), options_(options) {}

  Result<Capture> read();

 private:
  void read_devices();
  Result<void> read_trace();
  void read_sources(const IniFile& trace);
  void take_buffer(const OcsdBuffer& buffer);
  void take_frames(const OcsdBuffer& buffer, const std::vector<const OcsdSource*>& sources);
  void take_raw(const OcsdBuffer& buffer, const std::vector<const OcsdSource*>& sources);
  void add_stream(const OcsdBuffer& buffer, const OcsdSource& source, std::vector<StreamPiece> pieces);
  void name_streams();
  std::string core_of(const OcsdSource& source) const;
  int32_t cpu_of(const std::string& core) const;

  const IniFile snapshot_;
  const CaptureOptions& options_;
  NoticeBook notices_;
  Capture capture_;
  Builder builder_;
  Space user_ = builder_.add_space();
  OcsdDevices devices_;
  std::map<std::string, std::set<std::string>, std::less<>> sources_of_;  // by buffer
  std::map<std::string, std::string, std::less<>> core_of_source_;
  struct Made {
    std::string core, buffer, source;
  };
  std::vector<Made> made_;  // streams_[i] is of made_[i]
  std::vector<std::shared_ptr<const void>> keep_;
};

void SnapshotReader::read_devices() {
  const IniSection* list = snapshot_.find("device_list");
  if (list == nullptr) {
    notices_.error(Code::kBadSnapshot, snapshot_.path(),
                   "no [device_list]: no core and no trace source is known");
    return;
  }
  for (const auto& [key, name] : list->values) {
    const auto file = IniFile::load(snapshot_.resolve(name));
    if (!file) {
      const Error& e = file.error();
      notices_.error(e.code, e.where, e.reason, "the device is left out");
      continue;
    }
    if (file->odd_lines() != 0)
      notices_.error(Code::kBadSnapshot, file->path(),
                     fmt::format("{} lines are no key=value", file->odd_lines()));
    read_ocsd_device(*file, devices_, notices_);
  }
}

void SnapshotReader::read_sources(const IniFile& trace) {
  if (const IniSection* section = trace.find("source_buffers")) {
    for (const auto& [source, buffers] : section->values) {
      for (const std::string_view buffer : split_commas(buffers))
        sources_of_[std::string(buffer)].insert(source);
    }
  }
  if (const IniSection* section = trace.find("core_trace_sources")) {
    for (const auto& [core, sources] : section->values) {
      for (const std::string_view source : split_commas(sources)) core_of_source_[std::string(source)] = core;
    }
  }
}

std::string SnapshotReader::core_of(const OcsdSource& source) const {
  const auto core = core_of_source_.find(source.name);
  return core == core_of_source_.end() ? std::string() : core->second;
}

// Cores that do not say their number are counted as listed.
int32_t SnapshotReader::cpu_of(const std::string& core) const {
  if (const auto number = number_in(core)) return *number;
  for (size_t i = 0; i < devices_.cores.size(); ++i) {
    if (devices_.cores[i].name == core) return static_cast<int32_t>(i);
  }
  return -1;
}

void SnapshotReader::add_stream(const OcsdBuffer& buffer, const OcsdSource& source,
                                std::vector<StreamPiece> pieces) {
  const std::string core = core_of(source);
  const bool known = source.instructions || source.type.starts_with("STM") || source.type.starts_with("ITM");
  if (!known) {
    uint64_t bytes = 0;
    for (const StreamPiece& p : pieces) bytes += p.size();
    notices_.error(
        Code::kTraceWithoutOwner, buffer.name,
        fmt::format("trace source {} has {}: {} bytes of its trace are left out", source.name,
                    source.type.empty() ? "no type" : "the unknown type '" + source.type + "'", bytes),
        "say what it is in its ini file, as in 'type=ETM4'");
    return;
  }
  if (!source.instructions) {
    notices_.info(Code::kNotInstructionTrace, buffer.name,
                  fmt::format("trace source {} ({}) is no instruction trace: it is left out", source.name,
                              source.type));
    return;
  }
  if (pieces.empty()) {
    notices_.info(Code::kSourceWithoutTrace, buffer.name, fmt::format("no trace of {} in it", source.name));
    return;
  }
  Stream stream;
  stream.cpu = cpu_of(core);
  stream.pieces = std::move(pieces);
  stream.contexts.push_back({kTimeMin, -1, -1, user_});
  arm64::Source config = source.source;
  if (const OcsdCore* device = devices_.core(core)) {
    set_core_type(config, device->type);
  } else {
    notices_.error(
        Code::kBadSnapshot, buffer.name,
        fmt::format("trace source {} is of no core that is described: AArch64 is assumed", source.name));
  }
  capture_.streams.push_back(std::move(stream));
  capture_.arm64.sources.push_back(config);
  made_.push_back({core.empty() ? source.name : core, buffer.name, source.name});
}

void SnapshotReader::take_frames(const OcsdBuffer& buffer, const std::vector<const OcsdSource*>& sources) {
  const auto frames = CsFrames::index({buffer.section}, buffer.alignment);
  report_unused_frames(*frames, buffer.path, notices_);
  std::set<uint8_t> known;
  for (const OcsdSource* source : sources) {
    if (!known.insert(source->source.trace_id).second) {
      notices_.error(Code::kBadTraceIdRecord, buffer.name,
                     fmt::format("trace source {} has the trace ID {:#x} of another one: it is left out",
                                 source->name, source->source.trace_id));
      continue;
    }
    add_stream(buffer, *source, frames->pieces_of(source->source.trace_id));
  }
  report_unknown_ids(*frames, buffer.path, known, notices_);
}

void SnapshotReader::take_raw(const OcsdBuffer& buffer, const std::vector<const OcsdSource*>& sources) {
  if (sources.size() != 1) {
    notices_.error(
        Code::kBadSnapshot, buffer.path,
        fmt::format("a buffer without frames is of one trace source, this one of {}", sources.size()),
        "it is left out");
    return;
  }
  std::vector<StreamPiece> pieces;
  if (!buffer.section.bytes.empty())
    pieces.push_back(StreamPiece{.bytes = buffer.section.bytes, .mapped = true});
  add_stream(buffer, *sources.front(), std::move(pieces));
}

void SnapshotReader::take_buffer(const OcsdBuffer& buffer) {
  std::vector<const OcsdSource*> sources;
  if (const auto names = sources_of_.find(buffer.name); names != sources_of_.end()) {
    for (const std::string& name : names->second) {
      if (const OcsdSource* source = devices_.source(name)) {
        sources.push_back(source);
      } else {
        notices_.error(Code::kBadSnapshot, buffer.name,
                       fmt::format("trace source {} is not in the device list", name));
      }
    }
  }
  if (buffer.raw) {
    take_raw(buffer, sources);
  } else {
    take_frames(buffer, sources);
  }
}

Result<void> SnapshotReader::read_trace() {
  const IniSection* section = snapshot_.find("trace");
  if (section == nullptr || section->get("metadata").empty())
    return fail(Code::kBadSnapshot, snapshot_.path(), Error::kNoOffset,
                "no [trace] with its metadata: no trace in it");
  const auto trace = IniFile::load(snapshot_.resolve(section->get("metadata")));
  if (!trace) return std::unexpected(trace.error());
  read_sources(*trace);
  const IniSection* list = trace->find("trace_buffers");
  if (list == nullptr)
    return fail(Code::kBadSnapshot, trace->path(), Error::kNoOffset, "no [trace_buffers]: no trace in it");
  for (const std::string_view name : split_commas(list->get("buffers"))) {
    auto buffer = open_ocsd_buffer(*trace, name);
    if (!buffer) {
      const Error& e = buffer.error();
      notices_.error(e.code, e.where, e.reason, "the buffer is left out");
      continue;
    }
    keep_.push_back(buffer->owner);
    take_buffer(*buffer);
  }
  return {};
}

// After the core; where a core has several streams, also after buffer or source, whichever distinguishes
// them.
void SnapshotReader::name_streams() {
  std::map<std::string, int> names;
  for (const Made& made : made_) ++names[made.core];
  std::map<std::string, int> taken;
  for (size_t i = 0; i < made_.size(); ++i) {
    const Made& made = made_[i];
    Stream& stream = capture_.streams[i];
    stream.name = names[made.core] == 1 ? made.core : fmt::format("{}:{}", made.core, made.buffer);
    if (taken[stream.name]++ != 0) stream.name += fmt::format(":{}", made.source);
  }
}

Result<Capture> SnapshotReader::read() {
  read_devices();
  if (auto ok = read_trace(); !ok) return std::unexpected(ok.error());
  name_streams();
  add_ocsd_dumps(devices_, builder_, user_, notices_);
  capture_.kind = "snapshot";
  const auto& sources = capture_.arm64.sources;
  const bool only_32_bit =
      !sources.empty() && std::all_of(sources.begin(), sources.end(), [](const auto& s) { return s.armv7; });
  capture_.machine = only_32_bit ? "armv7l" : "aarch64";
  capture_.arm64.time = options_.time_conversion;
  capture_.notices = notices_.take();
  capture_.keep = std::make_shared<std::vector<std::shared_ptr<const void>>>(std::move(keep_));
  capture_.symbols.finish();
  capture_.tasks.finish();
  capture_.text = std::move(builder_).build();
  return std::move(capture_);
}

}  // namespace

Result<Capture> open_ocsd_snapshot(const std::string& path, const CaptureOptions& options) {
  std::error_code ignored;
  const std::string file =
      fs::is_directory(path, ignored) ? (fs::path(path) / "snapshot.ini").string() : path;
  auto snapshot = IniFile::load(file);
  if (!snapshot) return std::unexpected(snapshot.error());
  if (snapshot->find("snapshot") == nullptr)
    return fail(Code::kBadSnapshot, file, Error::kNoOffset,
                "no [snapshot] section: this is no OpenCSD snapshot");
  auto capture = SnapshotReader(std::move(*snapshot), options).read();
  if (capture) capture->path = path;
  return capture;
}

}  // namespace asof
