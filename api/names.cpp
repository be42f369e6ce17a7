// Names of enumerators, as the program prints them.
#include <array>
#include <utility>

#include "asof/flow.h"
#include "asof/timeline.h"
#include "asof/types.h"
#include "decoder/calls/timeline.h"

namespace asof::v0 {
namespace {

constexpr std::array<std::string_view, 5> kConfidences = {"certain", "proved", "equivalent", "ambiguous",
                                                          "contradiction"};
constexpr std::array<std::string_view, 11> kSources = {
    "unknown", "kcore", "kcore at the end", "watcher", "file", "vdso", "bpf", "raw text",
    "jit",     "poke",  "before poke"};
constexpr std::array<std::string_view, 12> kBranches = {"",       "jcc",     "jmp",    "call", "jmp", "call",
                                                        "return", "syscall", "sysret", "jmp",  "",    ""};
constexpr std::array<std::string_view, 26> kEvents = {
    "tr-start", "tr-end",  "async", "overflow", "exec-mode", "tx-begin", "tx-commit", "tx-abort", "paging",
    "vmcs",     "ptwrite", "mwait", "pwre",     "exstop",    "pwrx",     "cbr",       "mnt",      "bbp",
    "bip",      "bep",     "cfe",   "evd",      "tracestop", "psb",      "event",     "context"};

template <class Enum, size_t N>
std::string_view look_up(const std::array<std::string_view, N>& names, Enum value) {
  const auto i = static_cast<size_t>(std::to_underlying(value));
  return i < N ? names[i] : std::string_view();
}

}  // namespace

std::string_view name(Confidence c) noexcept { return look_up(kConfidences, c); }
std::string_view name(SourceKind kind) noexcept { return look_up(kSources, kind); }
std::string_view name(Branch branch) noexcept { return look_up(kBranches, branch); }
std::string_view name(EventKind kind) noexcept { return look_up(kEvents, kind); }

std::string_view name(FunctionKind kind) noexcept {
  if (kind > FunctionKind::kUntraced) return {};
  return function_kind_name(static_cast<TimelineFunction::Kind>(kind));
}

const char* version() noexcept { return ASOF_VERSION; }

}  // namespace asof::v0
