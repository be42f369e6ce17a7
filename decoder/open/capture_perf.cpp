// How a perf recording is opened: container, side-band facts, text from every source, the tasks on each CPU.
#include "decoder/open/capture_perf.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_map>
#include <utility>

#include "arch/arm64/patch_rules.h"
#include "arch/x86/patch_rules.h"
#include "decoder/aux/aux_overwritten.h"
#include "decoder/bpf_text/bpf_text.h"
#include "decoder/io/in_order.h"
#include "decoder/io/sideband_notices.h"
#include "decoder/kernel_text/kernel_text.h"
#include "decoder/kernel_text/kernel_text_watch.h"
#include "decoder/model/file_finder.h"
#include "decoder/open/check_clock.h"
#include "decoder/patch_sites/x86_catalogue.h"
#include "decoder/perf/record_types.h"
#include "decoder/sideband/poke_rings.h"
#include "decoder/sideband/sideband.h"
#include "decoder/user_text/jit_files.h"
#include "decoder/user_text/user_text.h"
#include "textstore/builder.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kExcludeUser = 1ULL << 4U, kExcludeKernel = 1ULL << 5U, kUseClockid = 1ULL << 25U;
enum : int { kHostname = 3, kOsRelease = 4, kArch = 6, kCpuDesc = 8, kCpuId = 9 };  // features

// The folder that may contain kcore_dir/ and symfs/: that of a directory capture itself, or of its `data`
// when that was named.
std::string capture_folder(const PerfData& data) {
  if (!data.directory().empty()) return data.directory();
  const fs::path file(data.path());
  return file.filename() == "data" ? file.parent_path().string() : std::string();
}

// The event type of the PMU that traced: the first word for Intel PT, the upper half of the second for
// cs_etm.
std::optional<uint32_t> aux_pmu_type(const AuxtraceInfo& info) {
  const size_t word = info.type == perf::kAuxtraceCsEtm ? 1 : 0;
  if (info.priv.size() <= word) return std::nullopt;
  return static_cast<uint32_t>(info.type == perf::kAuxtraceCsEtm ? info.priv[word] >> 32U : info.priv[word]);
}

void describe(Capture& capture, const PerfData& data) {
  capture.kind = data.directory().empty() ? "perf.data" : "perf.data directory";
  capture.machine = data.feature_string(kArch);
  capture.hostname = data.feature_string(kHostname);
  capture.os_release = data.feature_string(kOsRelease);
  capture.cpu_desc = data.feature_string(kCpuDesc);
  capture.cpu_id = data.feature_string(kCpuId);
  for (const std::string& word : data.command_line()) {
    capture.command_line += (capture.command_line.empty() ? "" : " ") + word;
  }
  const auto& info = data.auxtrace_info();
  if (capture.machine.empty() && info) {
    capture.machine = info->type == perf::kAuxtraceIntelPt ? "x86_64"
                      : info->type == perf::kAuxtraceCsEtm ? "aarch64"
                                                           : "";
  }
  capture.x86 = perf_config(data);
  capture.record_counts = data.record_counts();
  const auto pmu = info ? aux_pmu_type(*info) : std::nullopt;
  uint64_t excluded = 0;
  for (bool first = true; const PerfAttr& attr : data.attrs()) {
    if (attr.type != pmu) continue;
    excluded = std::exchange(first, false) ? attr.flags : excluded & attr.flags;
  }
  capture.exclude_kernel = (excluded & kExcludeKernel) != 0;
  capture.exclude_user = (excluded & kExcludeUser) != 0;
}

// Where no user code is in the trace, files of processes are neither read nor missed.
void leave_out_mappings(SideBand& side) {
  std::erase_if(side.tasks, [](const TaskFact& fact) {
    return fact.kind == TaskFact::Kind::kMap || fact.kind == TaskFact::Kind::kUnmap;
  });
}

bool any_attr_has(const PerfData& data, uint64_t flag) {
  const auto attrs = data.attrs();
  return std::any_of(attrs.begin(), attrs.end(), [flag](const PerfAttr& a) { return (a.flags & flag) != 0; });
}

// Were changes of kernel text not requested, although the kernel is traced?
bool pokes_unasked(const Capture& capture, const PokeRings& rings) {
  return !capture.exclude_kernel && !rings.asked && capture.arm64.sources.empty();
}

void note_unasked_pokes(const Capture& capture, const PerfData& data, NoticeBook& notices) {
  const PokeRings rings = poke_rings(data);
  if (pokes_unasked(capture, rings)) {
    notices.info(
        Code::kTextPokeNotRecorded, data.path(),
        "changes of kernel text were not asked for: no TEXT_POKE record can be in it, and nothing in "
        "kernel text is certain",
        "record the kernel with perf record --kcore -a");
  } else if (!capture.exclude_kernel && rings.some_missing()) {
    notices.info(
        Code::kTextPokeNotOnAllCpus, data.path(),
        fmt::format("changes of kernel text were asked for on {} of {} CPUs: those made by others have no "
                    "record, and nothing in kernel text is certain",
                    rings.rings, rings.cpus == 0 ? "an unknown number of" : std::to_string(rings.cpus)),
        "record all CPUs (-a), and do not bring CPUs online while recording");
  }
}

void note_what_was_not_recorded(const Capture& capture, const PerfData& data, NoticeBook& notices) {
  if (capture.streams.empty()) {
    notices.info(Code::kNoTrace, data.path(), "no trace in this recording",
                 "record with perf record -e intel_pt// or -e cs_etm//");
    return;
  }
  note_unasked_pokes(capture, data, notices);
  if (capture.x86.no_tnt) {
    notices.error(Code::kNoTntPackets, data.path(),
                  "recorded without TNT packets: the way of conditional branches is not in the trace",
                  "record without notnt");
  }
  if (capture.x86.no_branches) {
    notices.error(Code::kNoBranchPackets, data.path(),
                  "recorded without packets of branches: nothing shows the flow", "record with branch=1");
  }
  const bool pt = data.auxtrace_info() && data.auxtrace_info()->type == perf::kAuxtraceIntelPt;
  if (!capture.x86.time && pt && !any_attr_has(data, kUseClockid)) {
    notices.error(Code::kNoTimeConversion, data.path(),
                  "the recording has no conversion from TSC to perf's clock: trace and records cannot be "
                  "brought into order by time");
  }
}

// True: trace and records are of times that do not fit.
bool add_streams(Capture& capture, const PerfData& data, const CaptureOptions& options, NoticeBook& notices) {
  if (any_attr_has(data, kUseClockid) && capture.x86.time) {
    // TIME_CONV is of perf's own clock.
    notices.error(
        Code::kOtherRecordClock, data.path(),
        "records have times of another clock (perf record -k), to which nothing brings the trace's: "
        "it is decoded without time",
        "record without -k");
    capture.x86.time.reset();
  }
  if (options.time_conversion) capture.x86.time = capture.arm64.time = options.time_conversion;
  if (const auto& info = data.auxtrace_info(); info && info->type == perf::kAuxtraceCsEtm) {
    add_cs_streams(capture, data, options, notices);
    return false;
  }
  std::vector<Notice> stream_notices;
  std::vector<AuxRing> rings = make_rings(data, stream_notices);
  const bool other_time = !options.time_conversion && clock_contradicts(capture, data, rings, notices);
  for (AuxRing& ring : rings) {
    cut_overwritten(ring, capture.x86);
    capture.streams.push_back(std::move(ring.stream));
  }
  for (Notice& notice : stream_notices) notices.add(std::move(notice));
  check_mtcs(capture, notices);
  return other_time;
}

// A new thread starts with its creator's name.
void add_comms(TaskTable& tasks, const SideBand& side) {
  std::unordered_map<int32_t, uint32_t> now;
  for (const TaskFact& fact : side.tasks) {
    if (fact.kind == TaskFact::Kind::kFork) {
      auto parent = now.find(fact.parent_tid);
      if (parent == now.end() || (fact.time == kTimeMin && now.contains(fact.tid))) continue;
      const uint32_t name = parent->second;
      now[fact.tid] = name;
      tasks.add_comm(fact.pid, fact.tid, fact.time, side.names[name]);
    } else if (fact.kind == TaskFact::Kind::kComm || fact.kind == TaskFact::Kind::kExec) {
      now[fact.tid] = fact.name;
      tasks.add_comm(fact.pid, fact.tid, fact.time, side.names[fact.name]);
    }
  }
  tasks.add_comm(0, 0, kTimeMin, "swapper");
  tasks.finish();
}

WatchedTexts find_watched(const Capture& capture, const CaptureOptions& options, const std::string& folder,
                          NoticeBook& notices) {
  std::string path = options.ksym_text;
  std::error_code ignored;
  if (path.empty() && !folder.empty()) {
    for (const fs::path& place : {fs::path(folder) / "ksym_text.bin",
                                  (fs::path(folder) / ".." / "ksym_text.bin").lexically_normal()}) {
      if (path.empty() && fs::exists(place, ignored)) path = place.string();
    }
  }
  if (path.empty()) return {};
  return read_watched_texts(path, capture.x86.time, notices);
}

// Each once. Spaces are numbered from 1, so a flag for each is less work than sorting.
std::vector<Space> spaces_of(std::span<const ContextChange> contexts) {
  std::vector<bool> seen;
  std::vector<Space> out;
  bool none = false;
  for (const ContextChange& change : contexts) {
    if (change.space == kNoSpace) {
      none = true;
      continue;
    }
    if (change.space >= seen.size()) seen.resize(change.space + 1);
    if (!seen[change.space]) out.push_back(change.space);
    seen[change.space] = true;
  }
  if (none) out.push_back(kNoSpace);
  return out;
}

std::set<Space> fill_contexts(std::vector<Stream>& streams, const UserText& users) {
  std::set<Space> used;
  in_order(
      streams.size(),
      [&](size_t i) {
        Stream& stream = streams[i];
        stream.contexts =
            stream.cpu >= 0 ? users.cpu_contexts(stream.cpu) : users.thread_contexts(stream.tid);
        return spaces_of(stream.contexts);
      },
      [&](const std::vector<Space>& spaces) { used.insert(spaces.begin(), spaces.end()); });
  return used;
}

std::vector<std::string> map_folders(const CaptureOptions& options, const std::string& folder) {
  std::vector<std::string> out;
  if (!options.symfs.empty()) out.push_back(options.symfs + "/tmp");
  if (folder.empty()) return out;
  for (const char* place : {"", "/tmp", "/symfs/tmp"}) out.push_back(folder + place);
  return out;
}

}  // namespace

Result<Capture> open_perf(const std::string& path, const CaptureOptions& options) {
  auto opened = PerfData::open(path);
  if (!opened) return std::unexpected(opened.error());
  const PerfData& data = **opened;
  Capture capture;
  NoticeBook notices;
  capture.path = path;
  capture.perf = *opened;
  capture.keep = *opened;
  for (const Notice& notice : data.notices()) notices.add(notice);
  describe(capture, data);
  const bool other_time = add_streams(capture, data, options, notices);
  note_what_was_not_recorded(capture, data, notices);

  const std::string folder = capture_folder(data);
  SideBand side = read_side_band(data, notices);
  if (capture.exclude_user) leave_out_mappings(side);
  // Which records came before an instruction is not known, as if any of them were missing.
  if (other_time) side.lost.push_back({.source = kAnyRing});
  const WatchedTexts watched = find_watched(capture, options, folder, notices);
  Builder builder;
  builder.set_patch_rules(capture.machine == "aarch64" ? arm64::kPatchRules : x86::kPatchRules);
  FileFinder files(options, data.path(), folder, notices);
  KernelText kernel(options, folder, side, notices);
  GeneratedText generated(side, data.bpf_images(), kernel, watched, data.path(), notices);
  JitFiles jits(options, folder, files.symfs(), jit_clock(capture, data), notices);
  UserText users(side, data.build_ids(), files, jits, builder, notices);
  builder.keep(*opened);
  const PokeRings rings = poke_rings(data);
  if (pokes_unasked(capture, rings) || rings.some_missing()) builder.distrust(kKernelSpace);
  if (rings.all()) builder.all_rings_recorded();
  kernel.add_text(builder, watched, files, data);
  const TextFile* vmlinux =
      options.catalogue || !side.lost.empty() || (!capture.arm64.sources.empty() && !options.vmlinux.empty())
          ? kernel.find_vmlinux(files, data)
          : nullptr;
  add_arm64_text(capture, data, options, kernel, side, vmlinux, builder, notices);
  if (capture.arm64.sources.empty() && !capture.exclude_kernel)
    add_x86_catalogue(kernel, side, vmlinux, options.catalogue, builder, notices);
  generated.add_text(builder);
  files.set_vdso_source([&](const std::string& id) { return kernel.find_vdso(files, data, id); });
  users.add_text();
  for (const Poke& poke : side.pokes) builder.add_poke(poke);
  for (const LostRecords& lost : side.lost) builder.add_lost(lost);
  std::vector<Poke>().swap(side.pokes);  // the builder has them; there can be tens of millions

  if (const KernelSnapshot* copy = kernel.start(); copy != nullptr && copy->kallsyms() != nullptr) {
    capture.x86.perf_event_text_poke = copy->kallsyms()->address("perf_event_text_poke").value_or(0);
    capture.x86.do_sync_core = copy->kallsyms()->address("do_sync_core").value_or(0);
  }
  kernel.add_symbols(capture.symbols);
  generated.add_symbols(capture.symbols);
  const std::set<Space> used = fill_contexts(capture.streams, users);
  users.add_symbols(capture.symbols, used, map_folders(options, folder));
  files.add_debug_places(capture.code);
  kernel.add_code(capture.code, files, data);
  kernel.add_module_code(capture.code, files, data);
  users.add_code(capture.code, used);
  kernel.add_copies(capture.copies, watched);
  kernel.add_modules(capture.modules, watched);
  add_comms(capture.tasks, side);
  capture.bpf_programs = generated.programs();
  capture.notices = notices.take();
  capture.symbols.finish();
  capture.text = std::move(builder).build();
  return capture;
}

}  // namespace asof
