// The CoreSight part of a perf recording.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <set>
#include <string_view>

#include "decoder/coresight/cs_clock.h"
#include "decoder/coresight/cs_frame_memory.h"
#include "decoder/coresight/cs_perf.h"
#include "decoder/open/capture_perf.h"
#include "decoder/open/check_clock.h"
#include "decoder/patch_sites/arm64_anchors.h"
#include "decoder/patch_sites/arm64_catalogue.h"
#include "decoder/patch_sites/arm64_pokes.h"
#include "decoder/patch_sites/arm64_trampoline.h"
#include "decoder/perf/record_types.h"

namespace asof {
namespace {

std::optional<TimeConversion> recorded_conversion(const PerfData& data) {
  const auto& record = data.time_conv();
  if (!record || !record->cap_zero || record->mult == 0 || record->mult > UINT32_MAX || record->shift > 63)
    return std::nullopt;
  TimeConversion out;
  out.shift = static_cast<uint16_t>(record->shift);
  out.mult = static_cast<uint32_t>(record->mult);
  out.zero = record->zero;
  out.cycles = record->cycles;
  out.mask = record->mask;
  out.cap_short = record->cap_short;
  return out;
}

// "bpf_trampoline_" and a number; the kernel's own functions continue with a word.
bool is_trampoline(std::string_view name) {
  constexpr std::string_view kPrefix = "bpf_trampoline_";
  return name.starts_with(kPrefix) && name.size() > kPrefix.size() && name[kPrefix.size()] >= '0' &&
         name[kPrefix.size()] <= '9';
}

// May a function's entry call a BPF trampoline?
bool has_trampolines(const KernelText& kernel, const SideBand& side) {
  if (std::ranges::any_of(side.ksymbols, is_trampoline, &KsymbolFact::name)) return true;
  for (const KernelSnapshot* copy : {kernel.start(), kernel.end()}) {
    const Kallsyms* names = copy == nullptr ? nullptr : copy->kallsyms();
    if (names != nullptr && std::ranges::any_of(names->symbols(), is_trampoline, &KernelSymbol::name))
      return true;
  }
  return false;
}

// Takes the jump labels out of `sites`.
std::vector<CatalogueSite> take_labels(std::vector<CatalogueSite>& sites) {
  const auto labels =
      std::ranges::stable_partition(sites, [](const CatalogueSite& s) { return !s.is_label; });
  std::vector<CatalogueSite> out(std::make_move_iterator(labels.begin()),
                                 std::make_move_iterator(labels.end()));
  sites.erase(labels.begin(), labels.end());
  return out;
}

std::vector<CatalogueSite> unsampled(std::vector<CatalogueSite> labels, const SampledChanges& sampled) {
  std::set<Addr> seen;
  for (const SampledChange& change : sampled.changes) seen.insert(change.addr);
  std::erase_if(labels, [&](const CatalogueSite& s) { return seen.contains(s.addr); });
  return labels;
}

void report_derived_clock(Time error, const std::string& path, NoticeBook& notices) {
  const bool coarse = error > arm64::kCoarseClock;
  const std::string exact =
      coarse ? fmt::format("{:.1f} us", static_cast<double>(error) / 1e3) : fmt::format("{} ns", error);
  const std::string reason = fmt::format(
      "no record relates the trace's timestamps to perf's clock: the relation was derived from the times of "
      "AUX records, it is exact to {}",
      exact);
  constexpr const char* kHint = "give the constants with --time-conv SHIFT,MULT,ZERO if they are known";
  if (coarse)
    notices.error(Code::kCoarseDerivedClock, path, reason, kHint);
  else
    notices.info(Code::kDerivedClock, path, reason, kHint);
}

}  // namespace

// TIME_CONV is about the virtual counter. A trace unit without FEAT_TRF counts something else, and so may an ETMv4
// whose counter is not recorded.
void add_cs_streams(Capture& capture, const PerfData& data, const CaptureOptions& options,
                    NoticeBook& notices) {
  const CsStreams made = make_cs_streams(data, notices, options.growing_frames.get());
  capture.streams = made.streams;
  for (const CsUnit& unit : made.units) capture.arm64.sources.push_back(unit.source);
  if (capture.arm64.time || made.streams.empty()) return;
  const bool is_virtual = std::all_of(made.units.begin(), made.units.end(), [](const CsUnit& unit) {
    return unit.clock == CsUnit::Clock::kVirtual;
  });
  if (is_virtual) capture.arm64.time = recorded_conversion(data);
  constexpr size_t kEnough = 64;  // pieces of each stream
  if (capture.arm64.time) {
    const auto by = contradiction(*capture.arm64.time, clock_bounds(made, kEnough));
    if (!by) return;
    report_clock(
        fmt::format("TIME_CONV contradicts the times of AUX records, the trace's clock is {} ns or more {} "
                    "the records': it is not used",
                    std::abs(*by), *by > 0 ? "ahead of" : "behind"),
        data.path(), notices);
    capture.arm64.time.reset();
  }
  if (const auto clock = fit_clock(clock_bounds(made))) {
    capture.arm64.time = clock->conversion;
    capture.arm64.time_error = clock->error;
    report_derived_clock(clock->error, data.path(), notices);
    return;
  }
  notices.info(Code::kTimestampsOfOtherClock, data.path(),
               "nothing says how the trace's timestamps relate to perf's clock: they give order only, and "
               "records are placed by the bounds of AUX records",
               "give the constants with --time-conv SHIFT,MULT,ZERO if they are known");
}

// An arm64 kernel writes no TEXT_POKE records; other sources of its changes are as good as they are complete.
void add_arm64_text(Capture& capture, const PerfData& data, const CaptureOptions& options,
                    const KernelText& kernel, const SideBand& side, const TextFile* vmlinux, Builder& builder,
                    NoticeBook& notices) {
  if (capture.arm64.sources.empty() || capture.exclude_kernel) return;
  const KernelSnapshot* start = kernel.start();
  const ReadKernel read = [start](AddrRange range) {
    return start == nullptr ? std::span<const uint8_t>() : start->raw(range);
  };
  const SampledChanges sampled =
      read_sampled_changes(data, start == nullptr ? nullptr : start->kallsyms(), read, notices);
  add_sampled_changes(sampled, kernel, side.lost, data.path(), builder, notices);
  add_trampoline(kernel, vmlinux, builder, capture.symbols, notices);
  Catalogue catalogue;
  if (options.catalogue || (sampled.recorded && !side.lost.empty()))
    catalogue = find_patch_sites(kernel, vmlinux, has_trampolines(kernel, side),
                                 options.catalogue ? &notices : nullptr);
  if (sampled.recorded) {
    // Every change of a jump label has a sample. The samples of labels without any may have been lost.
    const auto sites = take_labels(catalogue.sites);
    if (!side.lost.empty()) add_lost_labels(unsampled(sites, sampled), kernel, builder);
  }
  if (options.catalogue) add_catalogue(catalogue.sites, kernel, builder);
  std::string sources;
  const auto source = [&sources](std::string what) {
    sources += (sources.empty() ? "" : ", ") + std::move(what);
  };
  const auto pokes = data.record_counts().find(perf::kTextPoke);
  const bool has_pokes = pokes != data.record_counts().end();
  // Samples are of jump labels alone: function entries change without any.
  capture.arm64.unrecorded_changes = !has_pokes;
  if (options.catalogue && catalogue.has_entries && (catalogue.has_labels || sampled.recorded))
    capture.arm64.complete_text = catalogue.text;
  if (has_pokes) capture.arm64.patch_text_cb = find_patch_text_cb(kernel);
  if (has_pokes) source(fmt::format("{} TEXT_POKE records", pokes->second));
  if (sampled.recorded) capture.sampled_changes = sampled.changes.size();
  if (sampled.recorded) source(fmt::format("samples of {} jump label changes", sampled.changes.size()));
  if (kernel.end() != nullptr) source("a second copy of kcore");
  if (options.catalogue) source(fmt::format("a catalogue of {} sites", catalogue.sites.size()));
  if (sources.empty()) {
    notices.error(
        Code::kNoTextChangeSource, data.path(),
        start == nullptr ? "nothing in it records changes of kernel text, and no copy of kcore has any"
                         : "nothing in it records changes of kernel text: the text of the copied kcore is "
                           "taken for all time",
        "record samples of arch_jump_label_transform_queue beside the trace, copy kcore at the end, or "
        "decode with --catalogue");
  } else {
    const bool sure = !capture.arm64.unrecorded_changes || !capture.arm64.complete_text.empty();
    notices.info(Code::kTextChangeSources, data.path(),
                 fmt::format("changes of kernel text are known from {}", sources));
    if (!sure)
      notices.info(Code::kChangesNotRecorded, data.path(),
                   "changes of function entries (ftrace) have no record, so no kernel text is certain");
  }
}

}  // namespace asof
