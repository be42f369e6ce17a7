// Addresses, times, and how certain and from where bytes are.
#pragma once
#include <cstdint>
#include <limits>
#include <string_view>

#include "asof/version.h"

namespace asof::v0 {

using Address = std::uint64_t;

// [begin, end)
struct AddressRange {
  Address begin = 0;
  Address end = 0;
  bool operator==(const AddressRange&) const = default;
};

// An address space: that of the kernel, or one for each image of a process (a new one after each exec).
using Space = std::uint32_t;
inline constexpr Space kKernelSpace = 0;

// Nanoseconds of perf's clock (perf_event_attr.clockid, by default sched_clock()).
using Time = std::int64_t;
inline constexpr Time kTimeMin = std::numeric_limits<Time>::min();  // unknown, or since always
inline constexpr Time kTimeMax = std::numeric_limits<Time>::max();  // for ever

// Both ends included.
struct TimeRange {
  Time first = kTimeMin;
  Time last = kTimeMax;
  bool operator==(const TimeRange&) const = default;
};

// How certain it is that these bytes ran (docs/live-text.md).
enum class Confidence : std::uint8_t {
  kCertain,        // one version of the text was possible
  kProved,         // several were, and the trace contradicts all others
  kEquivalent,     // several were, and they lead to the same addresses
  kAmbiguous,      // several are left, or the recording leaves open whether the bytes changed
  kContradiction,  // the trace contradicts all of them
};

// Where bytes of text came from.
enum class SourceKind : std::uint8_t {
  kUnknown,
  kKcore,     // copy of /proc/kcore, taken at the start of the recording
  kKcoreEnd,  // a second copy, taken at its end
  kWatcher,   // copied when a PERF_RECORD_KSYMBOL appeared
  kFile,      // ELF file
  kVdso,
  kBpfImage,    // jited_prog_insns of struct bpf_prog_info
  kRaw,         // text of a raw bundle
  kJit,         // jitdump
  kPoke,        // PERF_RECORD_TEXT_POKE (perf_event_text_poke() in kernel/events/core.c): what it wrote
  kBeforePoke,  // such a record: what was there before it, which nothing else says
};

// "certain", "proved", ...; "kcore", "poke", ... Static storage.
ASOF_EXPORT std::string_view name(Confidence) noexcept;
ASOF_EXPORT std::string_view name(SourceKind) noexcept;

// Refers to a source of one capture; Text::source() returns it. 0: unknown.
using SourceRef = std::uint32_t;

}  // namespace asof::v0
