#include "tools/output/remedies.h"

#include <algorithm>
#include <array>

#include "tools/output/error_table.h"

namespace asof {
namespace {

struct Remedy {
  Code code;
  // Empty: that of the table.
  std::string_view coresight;  // recorded by perf
  std::string_view snapshot;   // of OpenCSD, or a raw bundle of trace by ETMs
};

constexpr std::string_view kCompare =
    "look for lost records in 'asof report'; 'asof validate' compares with OpenCSD";
constexpr std::array kRemedies = {
    Remedy{Code::kBadPacket, {}, "compare the files with their source; take the snapshot again"},
    Remedy{Code::kNoSyncPoint,
           "record with a larger buffer (perf record -m,SIZE); the trace unit's TRCSYNCPR says how far sync "
           "points are apart",
           "take a larger snapshot; the trace unit's TRCSYNCPR says how far sync points are apart"},
    Remedy{Code::kPacketOutOfPlace, kCompare, "'asof validate' compares with OpenCSD"},
    Remedy{Code::kReturnWithoutItsCall,
           "look at the gap before this one; record without the return stack (no cs_etm/retstack/)",
           "look at the gap before this one; trace without the return stack (TRCCONFIGR.RS)"},
    Remedy{Code::kSyncPointNotReached, kCompare,
           "'asof validate' compares with OpenCSD; are the dumps of the code that ran?"},
    Remedy{Code::kTraceOverflow,
           "less detail (no cycle counts, fewer timestamps), address filters, or kernel or user only",
           "less detail (no cycle counts, fewer timestamps), or trace a part only (ViewInst)"},
    Remedy{Code::kNoBytes,
           {},
           "add what was in that memory to the capture: a dump of a snapshot, text of a bundle"}};

bool is_arm(const Capture& c) {
  return !c.arm64.sources.empty() || c.machine == "aarch64" || c.machine.starts_with("arm");
}

}  // namespace

std::string_view remedy_for(const Capture& capture, Code code) {
  const auto found = std::ranges::find(kRemedies, code, &Remedy::code);
  if (found != kRemedies.end() && is_arm(capture)) {
    const std::string_view own = capture.perf ? found->coresight : found->snapshot;
    if (!own.empty()) return own;
  }
  return info_of(code).remedy;
}

}  // namespace asof
