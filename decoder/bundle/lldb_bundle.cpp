// LLDB bundle to Capture. What the manifest may say follows lldb/source/Plugins/Trace/intel-pt
// (TraceIntelPTJSONStructs.cpp, TraceIntelPTBundleLoader.cpp): unknown keys are allowed there, so they are
// here. Modules are placed by their lowest load address; "uuid" is the build-id in groups.
#include "decoder/bundle/lldb_bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "decoder/bundle/bundle_json.h"
#include "decoder/io/reader.h"
#include "decoder/model/file_finder.h"
#include "decoder/model/image.h"
#include "decoder/perf/record_types.h"
#include "textstore/builder.h"

namespace asof {
namespace {

constexpr Addr kDefaultKernelAddress = 0xffffffff81000000;  // x86-64 without KASLR, LLDB's default
constexpr uint16_t kSwitchOut = 1U << 13U;
constexpr uint32_t kMaxRecordType = 128;  // in a raw ring, more is not a perf record

class LldbReader {
 public:
  LldbReader(const JsonFile& file, const CaptureOptions& options)
      : file_(file), root_(file.root()), finder_(options, file.path(), "", notices_) {}

  Result<Capture> read();

 private:
  Result<void> cpu_info();
  Result<void> time_conversion();
  Result<void> processes();
  Result<void> process(const JsonView& entry);
  Result<void> thread(const JsonView& entry, int32_t pid, Space space);
  Result<void> module(const JsonView& entry, Space space);
  Result<void> cpus();
  Result<void> kernel();
  Result<void> context_switches(const std::string& path, Stream& stream);
  Result<Stream> open_stream(const std::string& name, const std::string& path);
  void place(const TextFile& file, Space space, Addr load_address, const std::string& name);
  Space space_for_all();

  const JsonFile& file_;
  JsonView root_;
  Capture capture_;
  NoticeBook notices_;
  FileFinder finder_;
  Builder builder_;
  std::map<int32_t, Space> spaces_;
  std::vector<std::shared_ptr<const void>> keep_;
};

Result<Capture> LldbReader::read() {
  auto type = root_.get_string("type");
  if (!type) return std::unexpected(type.error());
  if (*type != "intel-pt") return root_.error(fmt::format("type \"{}\" is not \"intel-pt\"", *type));
  for (auto step : {&LldbReader::cpu_info, &LldbReader::time_conversion, &LldbReader::processes,
                    &LldbReader::cpus, &LldbReader::kernel}) {
    if (auto ok = (this->*step)(); !ok) return std::unexpected(ok.error());
  }
  capture_.path = file_.path();
  capture_.kind = "lldb bundle";
  capture_.machine = "x86_64";
  capture_.keep = std::make_shared<std::vector<std::shared_ptr<const void>>>(std::move(keep_));
  capture_.symbols.finish();
  finder_.add_debug_places(capture_.code);
  capture_.tasks.finish();
  capture_.notices = notices_.take();
  capture_.text = std::move(builder_).build();
  return std::move(capture_);
}

Result<void> LldbReader::cpu_info() {
  auto info = root_.get("cpuInfo");
  if (!info) return std::unexpected(info.error());
  auto vendor = info->get_string("vendor");
  if (!vendor) return std::unexpected(vendor.error());
  auto family = info->get_number("family", UINT16_MAX);
  if (!family) return std::unexpected(family.error());
  auto model = info->get_number("model", UINT8_MAX);
  if (!model) return std::unexpected(model.error());
  auto stepping = info->get_number("stepping", UINT8_MAX);
  if (!stepping) return std::unexpected(stepping.error());
  capture_.x86.cpu = {.intel = *vendor == "GenuineIntel" || *vendor == "intel",
                      .family = static_cast<uint16_t>(*family),
                      .model = static_cast<uint8_t>(*model),
                      .stepping = static_cast<uint8_t>(*stepping)};
  capture_.cpu_id = fmt::format("{},{},{},{}", *vendor, *family, *model, *stepping);
  return {};
}

Result<void> LldbReader::time_conversion() {
  auto conversion = root_.find("tscPerfZeroConversion");
  if (!conversion) {
    if (root_.find("cpus"))
      return root_.error("\"tscPerfZeroConversion\" is required when \"cpus\" is given");
    return {};
  }
  auto mult = conversion->get_number("timeMult", UINT32_MAX);
  if (!mult) return std::unexpected(mult.error());
  auto shift = conversion->get_number("timeShift", 63);
  if (!shift) return std::unexpected(shift.error());
  auto zero = conversion->get_number("timeZero", UINT64_MAX, true);
  if (!zero) return std::unexpected(zero.error());
  if (*mult == 0) return conversion->error("timeMult is 0");
  TimeConversion time;
  time.mult = static_cast<uint32_t>(*mult);
  time.shift = static_cast<uint16_t>(*shift);
  time.zero = *zero;
  capture_.x86.time = time;
  return {};
}

Result<Stream> LldbReader::open_stream(const std::string& name, const std::string& path) {
  auto trace = MappedFile::open(file_.resolve(path));
  if (!trace) return std::unexpected(trace.error());
  keep_.push_back(*trace);
  Stream stream;
  stream.name = name;
  stream.pieces.push_back(StreamPiece{.bytes = (*trace)->bytes(), .mapped = true});
  return stream;
}

Result<void> LldbReader::processes() {
  auto list = root_.find("processes");
  if (!list) {
    if (!root_.find("kernel")) return root_.error("\"processes\" is required when \"kernel\" is not given");
    return {};
  }
  auto entries = list->array();
  if (!entries) return std::unexpected(entries.error());
  if (root_.find("kernel") && !entries->empty()) {
    return root_.error("\"processes\" must be empty when \"kernel\" is given");
  }
  for (const JsonView& entry : *entries) {
    if (auto ok = process(entry); !ok) return ok;
  }
  return {};
}

Result<void> LldbReader::process(const JsonView& entry) {
  auto number = entry.get_number("pid", INT32_MAX);
  if (!number) return std::unexpected(number.error());
  const auto pid = static_cast<int32_t>(*number);
  auto threads = entry.get_array("threads");
  if (!threads) return std::unexpected(threads.error());
  auto modules = entry.get_array("modules");
  if (!modules) return std::unexpected(modules.error());
  auto [space, fresh] = spaces_.try_emplace(pid, kNoSpace);
  if (!fresh) return entry.error(fmt::format("a second process {}", pid));
  space->second = builder_.add_space();
  for (const JsonView& one : *threads) {
    if (auto ok = thread(one, pid, space->second); !ok) return ok;
  }
  for (const JsonView& one : *modules) {
    if (auto ok = module(one, space->second); !ok) return ok;
  }
  return {};
}

Result<void> LldbReader::thread(const JsonView& entry, int32_t pid, Space space) {
  auto number = entry.get_number("tid", INT32_MAX);
  if (!number) return std::unexpected(number.error());
  auto trace = entry.find("iptTrace");
  if (!trace) trace = entry.find("traceFile");  // LLDB 13
  if (!trace) return {};
  if (root_.find("cpus")) return entry.error("\"iptTrace\" of a thread and \"cpus\" exclude each other");
  auto path = trace->string();
  if (!path) return std::unexpected(path.error());
  const auto tid = static_cast<int32_t>(*number);
  const std::string name = fmt::format("tid{}", tid);
  for (const Stream& other : capture_.streams) {
    if (other.name == name) return entry.error(fmt::format("a second thread {}", tid));
  }
  auto stream = open_stream(name, *path);
  if (!stream) return std::unexpected(stream.error());
  stream->tid = tid;
  stream->contexts.push_back({kTimeMin, pid, tid, space});
  capture_.streams.push_back(std::move(*stream));
  return {};
}

Result<void> LldbReader::module(const JsonView& entry, Space space) {
  auto system_path = entry.get_string("systemPath");
  if (!system_path) return std::unexpected(system_path.error());
  auto load = entry.get_number("loadAddress", UINT64_MAX, true);
  if (!load) return std::unexpected(load.error());
  std::string copy;
  if (auto file = entry.find("file")) {
    auto path = file->string();
    if (!path) return std::unexpected(path.error());
    copy = file_.resolve(*path);
  } else if (!system_path->starts_with('/')) {
    copy = file_.resolve(*system_path);
  }
  std::string id;
  if (auto uuid = entry.find("uuid")) {
    auto text = uuid->string();
    if (!text) return std::unexpected(text.error());
    id = normal_build_id(*text);
    // A file without a build-id gets a CRC from LLDB (4 bytes), which proves nothing here.
    if (id.size() <= 8) id.clear();
  }
  if (const TextFile* file = finder_.find(*system_path, id, copy)) place(*file, space, *load, *system_path);
  return {};
}

// LLDB's load address is where the lowest segment went, counted in whole pages.
void LldbReader::place(const TextFile& file, Space space, Addr load_address, const std::string& name) {
  if (!file.elf || file.elf->segments().empty()) {
    notices_.error(Code::kFileWithoutCode, file.path, "not an ELF file with segments, its code is unknown");
    return;
  }
  constexpr Addr kPageMask = 0xfff;
  Addr lowest = UINT64_MAX;
  for (const ElfSegment& segment : file.elf->segments())
    lowest = std::min(lowest, segment.address & ~kPageMask);
  const Addr slide = load_address - lowest;
  const OriginRef origin =
      builder_.add_origin({.kind = OriginKind::kFile, .name = file.path, .build_id = file.build_id});
  builder_.keep(file.owner);
  capture_.code.files.push_back({file.path, name, file.build_id});
  for (const ElfSegment& segment : file.elf->segments()) {
    if (!segment.executable || segment.bytes.empty()) continue;
    AddrRange range = range_of(segment.address + slide, segment.bytes.size());
    if (range.empty()) continue;
    builder_.add_layer({.space = space,
                        .range = range,
                        .bytes = segment.bytes.first(range.size()),
                        .rank = kRankMapping,
                        .origin = origin});
    capture_.code.mappings.push_back({.space = space,
                                      .range = range,
                                      .file = static_cast<uint32_t>(capture_.code.files.size() - 1),
                                      .slide = slide});
  }
  for (const ElfSymbol& symbol : file.elf->symbols()) {
    capture_.symbols.add({.space = space,
                          .range = range_of(symbol.value + slide, symbol.size),
                          .name = symbol.name,
                          .dso = name});
  }
}

Result<void> LldbReader::cpus() {
  auto list = root_.find("cpus");
  if (!list) {
    if (root_.find("kernel")) return root_.error("\"cpus\" is required when \"kernel\" is given");
    return {};
  }
  auto entries = list->array();
  if (!entries) return std::unexpected(entries.error());
  std::set<uint64_t> seen;
  for (const JsonView& entry : *entries) {
    auto id = entry.get_number("id", INT32_MAX);
    if (!id) return std::unexpected(id.error());
    if (!seen.insert(*id).second) return entry.error(fmt::format("a second cpu {}", *id));
    auto trace = entry.get_string("iptTrace");
    if (!trace) return std::unexpected(trace.error());
    auto ring = entry.get_string("contextSwitchTrace");
    if (!ring) return std::unexpected(ring.error());
    auto stream = open_stream(fmt::format("cpu{}", *id), *trace);
    if (!stream) return std::unexpected(stream.error());
    stream->cpu = static_cast<int32_t>(*id);
    if (auto ok = context_switches(file_.resolve(*ring), *stream); !ok) return ok;
    capture_.streams.push_back(std::move(*stream));
  }
  return {};
}

// A copy of a perf ring whose event had sample_id_all with TID and TIME: a switch record is header, next or
// previous pid and tid, current pid and tid, time.
Result<void> LldbReader::context_switches(const std::string& path, Stream& stream) {
  auto file = MappedFile::open(path);
  if (!file) return std::unexpected(file.error());
  std::span<const uint8_t> bytes = (*file)->bytes();
  auto add = [&](Time time, uint32_t pid, uint32_t tid) {
    auto space = spaces_.find(static_cast<int32_t>(pid));
    stream.contexts.push_back({time, static_cast<int32_t>(pid), static_cast<int32_t>(tid),
                               space == spaces_.end() ? kNoSpace : space->second});
  };
  uint64_t offset = 0;
  while (offset < bytes.size()) {
    Reader record(bytes.subspan(offset));
    const auto type = record.u32();
    const auto misc = record.u16();
    const auto size = record.u16();
    if (!record.ok() || size < 8 || size > bytes.size() - offset || type >= kMaxRecordType) {
      notices_.error(Code::kBadContextSwitches, path,
                     "no perf record here; context switches from here on are unknown", {}, offset);
      break;
    }
    if (type == perf::kSwitchCpuWide && size >= 32) {
      const uint32_t other_pid = record.u32(), other_tid = record.u32();
      const uint32_t pid = record.u32(), tid = record.u32();
      const auto time = static_cast<Time>(record.u64());
      const bool out = (misc & kSwitchOut) != 0;
      if (out && stream.contexts.empty()) add(kTimeMin, pid, tid);
      if (out)
        add(time, other_pid, other_tid);
      else
        add(time, pid, tid);
    }
    offset += size;
  }
  std::stable_sort(stream.contexts.begin(), stream.contexts.end(),
                   [](const ContextChange& a, const ContextChange& b) { return a.time < b.time; });
  return {};
}

Result<void> LldbReader::kernel() {
  auto entry = root_.find("kernel");
  if (!entry) return {};
  auto path = entry->get_string("file");
  if (!path) return std::unexpected(path.error());
  Addr address = kDefaultKernelAddress;
  if (entry->find("loadAddress")) {
    auto value = entry->get_number("loadAddress", UINT64_MAX, true);
    if (!value) return std::unexpected(value.error());
    address = *value;
  }
  // LLDB takes the file for the whole of every CPU's code, at any address: a file that is not a kernel's
  // (LLDB's own tests trace a program so) is the text of one process that runs everywhere.
  const Space space = is_kernel_address(address) ? kKernelSpace : space_for_all();
  if (const TextFile* file = finder_.find(*path, "", file_.resolve(*path)))
    place(*file, space, address, "[kernel]");
  builder_.distrust(space);  // as it was built; changes are not recorded
  notices_.error(Code::kKernelTextFromFile, file_.resolve(*path),
                 "kernel code comes from this file, which has no alternatives, static keys or static calls "
                 "as patched at boot",
                 "record with perf record --kcore");
  return {};
}

Space LldbReader::space_for_all() {
  const Space space = builder_.add_space();
  for (Stream& stream : capture_.streams) {
    if (stream.contexts.empty() || stream.contexts.front().time != kTimeMin)
      stream.contexts.insert(stream.contexts.begin(), {kTimeMin, -1, -1, space});
    for (ContextChange& change : stream.contexts) change.space = space;
  }
  return space;
}

}  // namespace

Result<Capture> open_lldb_bundle(const std::string& path, const CaptureOptions& options) {
  auto file = JsonFile::load(path);
  if (!file) return std::unexpected(file.error());
  if (auto ok = (*file)->root().object(); !ok) return std::unexpected(ok.error());
  return LldbReader(**file, options).read();
}

}  // namespace asof
