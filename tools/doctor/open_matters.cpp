#include "tools/doctor/open_matters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "arch/x86/guest.h"
#include "tools/doctor/health.h"
#include "tools/output/format.h"

namespace asof {
namespace {

constexpr std::array kMatters = {
    OpenMatter{Code::kKernelTextFromFile, "kernel text", "ambiguous",
               "it comes from a file as it was built, without what the kernel patches at boot and later",
               "record with perf record --kcore"},
    OpenMatter{Code::kTextPokeNotRecorded, "kernel text", "ambiguous", "changes of it were not recorded",
               "record with perf record --kcore -a, as root: it asks for TEXT_POKE records"},
    OpenMatter{Code::kTextPokeNotOnAllCpus, "kernel text", "ambiguous",
               "changes of it by some CPUs were not recorded",
               "record all CPUs (-a), and do not bring CPUs online while recording"},
    OpenMatter{
        Code::kNoTextChangeSource, "kernel text", "ambiguous", "nothing in the recording shows changes of it",
        "record samples of arch_jump_label_transform_queue, copy kcore at the end, or use --catalogue"},
    OpenMatter{Code::kRecordsOverwritten, "kernel text", "ambiguous",
               "the rings were overwritten (--overwrite), and no record shows how much of them",
               "record without --overwrite"},
    OpenMatter{Code::kRecordsLostAtEnd, "all text from the last record on", "ambiguous",
               "records were lost at the end of a ring, changes of text may be among them",
               "record with bigger rings (perf record -m 4M,64M)"},
    OpenMatter{Code::kSideBandLost, "all text from the first loss on, and text that changes before it",
               "ambiguous", "records were lost, changes of text may be among them",
               "record with bigger rings (perf record -m 4M,64M)"},
    OpenMatter{Code::kBadRecordHeader, "all text from there on, and text that changes before it", "ambiguous",
               "records cannot be read, or are behind an early end, and changes of text may be among them",
               "compare the file with its source; record again if the source has the same"},
    OpenMatter{Code::kChangesNotRecorded, "kernel text", "ambiguous", "not all of its changes have records",
               "record samples of arch_jump_label_transform_queue, and decode with --catalogue"},
    OpenMatter{
        Code::kOtherRecordClock, "text that changes", "ambiguous",
        "records have another clock than the trace (perf record -k), so that nothing says which version "
        "ran when",
        "record without -k"},
    OpenMatter{
        Code::kNoTimeConversion, "text that changes", "ambiguous",
        "trace time does not convert to the clock of the records, so that nothing says which version ran "
        "when",
        "record on a kernel with a stable TSC as clock, without -k"},
    OpenMatter{Code::kTimestampsOfOtherClock, "text that changes", "ambiguous",
               "timestamps of the trace do not convert to the clock of the records: only AUX records bound "
               "when something ran",
               "give the constants with --time-conv if they are known"},
    OpenMatter{Code::kDerivedClock, "text that changes, near its changes", "ambiguous",
               "the clock of the trace is only as exact as the notice says",
               "give the constants with --time-conv if they are known"},
    OpenMatter{Code::kCoarseDerivedClock, "text that changes, near its changes, and which process runs",
               "ambiguous", "the clock of the trace is only as exact as the notice says",
               "give the constants with --time-conv if they are known"},
    OpenMatter{Code::kSelfModifyingProcess,
               "text of a file that its process may have changed",
               "ambiguous",
               "it was mapped writable and executable, or mapped again where it was, or has uprobes",
               {},
               true},
    OpenMatter{Code::kModulesReplaceable,
               "text of modules",
               "ambiguous",
               "another module may be loaded where one was, without a record",
               {},
               true},
    OpenMatter{Code::kModuleTextFromFile, "text of modules", "ambiguous",
               "it comes from files, without what the kernel patches", "record with perf record --kcore"},
    OpenMatter{Code::kNoTntPackets, "all code", "unknown",
               "the trace has no TNT packets, which show the direction of conditional branches",
               "record without notnt"},
    OpenMatter{Code::kNoBranchPackets, "all code", "unknown", "the trace has no packets of branches",
               "record with branch=1"},
    OpenMatter{Code::kGuestRan, "code of guests", "unknown",
               "guests ran on traced CPUs, whose text is not known, and the host's is not used for them",
               "none needed for the host's code; else record CPUs without guests"},
    OpenMatter{Code::kGuestRecordsSkipped, "code of guests", "unknown", "records of guests are not used",
               "trace host and guest apart"},
};

// Which traces hold packets of a guest, and where the first of them is; empty: none does.
std::string guests_in_trace(const Capture& capture) {
  const auto arch = capture.arch();
  // Segments of a block stream are no trace.
  if (!arch || capture.blocks || !capture.arm64.sources.empty() || capture.x86.guest_text) return {};
  std::vector<std::string> traces;
  std::vector<uint8_t> scratch;
  for (size_t i = 0; i < capture.streams.size(); ++i) {
    const Stream& stream = capture.streams[i];
    const auto segments = (*arch)->segments(stream, i, 0);
    while (const auto segment = segments->next()) {
      const auto pip = x86::find_guest_pip(stream.bytes(segment->begin, segment->end, scratch));
      stream.forget(segment->begin, segment->end);
      if (!pip) continue;
      traces.push_back(fmt::format("{} from offset {:#x} on", stream.name, segment->begin + *pip));
      break;
    }
  }
  return traces.empty()
             ? ""
             : fmt::format("{}: PIP packets with NR in {}", code_text(Code::kGuestRan), first_of(traces));
}

// From when on any change of text may be missing, where no notice of a loss is given; empty: never.
std::string unread_records(const Capture& capture, const std::vector<OpenFinding>& found) {
  if (!capture.text || capture.text->unsure_from() == kTimeMax) return {};
  const auto is_loss = [](const OpenFinding& f) {
    return f.matter->code == Code::kRecordsLostAtEnd || f.matter->code == Code::kSideBandLost;
  };
  if (std::ranges::any_of(found, is_loss)) return {};
  const Time from = capture.text->unsure_from();
  return from == kTimeMin ? "nothing says since when" : fmt::format("from {} on", format_time(from));
}

}  // namespace

std::span<const OpenMatter> open_matter_table() { return kMatters; }

std::vector<OpenFinding> open_matters(const Capture& capture) {
  std::vector<OpenFinding> out;
  for (const OpenMatter& matter : kMatters) {
    std::string special;
    if (matter.code == Code::kGuestRan) special = guests_in_trace(capture);
    if (matter.code == Code::kBadRecordHeader) special = unread_records(capture, out);
    if (!special.empty()) {
      out.push_back({&matter, std::move(special)});
      continue;
    }
    const Notice* first = nullptr;
    uint64_t count = 0;
    for (const Notice& n : capture.notices) {
      if (n.code != matter.code) continue;
      if (first == nullptr) first = &n;
      ++count;
    }
    if (first == nullptr) continue;
    std::string evidence = fmt::format("{}: {}", code_text(first->code), first->reason);
    if (count > 1) evidence += fmt::format(" (and {} more)", format_count(count - 1));
    out.push_back({&matter, std::move(evidence)});
  }
  return out;
}

std::string open_matter_text(const OpenMatter& m) {
  return fmt::format("{}: {}, because {}", m.what, m.called, m.because);
}

}  // namespace asof
