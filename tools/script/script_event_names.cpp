#include "tools/script/script_event_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "decoder/io/reader.h"
#include "decoder/perf/trace_formats.h"
#include "textstore/plain_text.h"

namespace asof {
namespace {

using Kind = ScriptRecord::Kind;

// perf_event_attr: bits of its flags.
constexpr uint64_t kExcludeUser = 1U << 4U, kExcludeKernel = 1U << 5U, kExcludeHv = 1U << 6U,
                   kExcludeHost = 1U << 19U, kExcludeGuest = 1U << 20U;
constexpr unsigned kPreciseShift = 15;
constexpr uint32_t kTracepointType = 2, kRawType = 4;

const PerfAttr* trace_attr(const Capture& capture) {
  if (!capture.perf) return nullptr;
  for (const PerfAttr& a : capture.perf->attrs()) {
    if (a.name.starts_with("intel_pt") || a.name.starts_with("cs_etm")) return &a;
  }
  // Without names: dynamic types, which drivers have, begin behind those of the kernel's own events.
  constexpr uint32_t kFirstDriver = 6;
  for (const PerfAttr& a : capture.perf->attrs()) {
    if (a.type >= kFirstDriver) return &a;
  }
  return nullptr;
}

bool flow_kind(Kind kind) { return kind == Kind::kBranch || kind == Kind::kInstructions; }

// perf's letters, from the lowest flag on; g and h are of guests.
std::string flag_letters(uint32_t flags) {
  constexpr std::string_view kLetters = "bcrosyiABExghDt";
  std::string out;
  for (size_t i = 0; i < kLetters.size(); ++i) {
    if ((flags >> i & 1U) != 0) out += kLetters[i];
  }
  return out;
}

}  // namespace

std::string flags_text(uint32_t flags) {
  flags &= ~uint32_t{kFlagIndirect};
  struct Word {
    uint32_t flags;
    std::string_view text;
  };
  static constexpr Word kWords[] = {{kFlagBranch | kFlagCall, "call"},
                                    {kFlagBranch | kFlagReturn, "return"},
                                    {kFlagBranch | kFlagConditional, "jcc"},
                                    {kFlagBranch, "jmp"},
                                    {kFlagBranch | kFlagCall | kFlagInterrupt, "int"},
                                    {kFlagBranch | kFlagReturn | kFlagInterrupt, "iret"},
                                    {kFlagBranch | kFlagCall | kFlagSyscallret, "syscall"},
                                    {kFlagBranch | kFlagReturn | kFlagSyscallret, "sysret"},
                                    {kFlagBranch | kFlagAsync, "async"},
                                    {kFlagBranch | kFlagCall | kFlagAsync | kFlagInterrupt, "hw int"},
                                    {kFlagBranch | kFlagTxAbort, "tx abrt"},
                                    {kFlagBranch | kFlagTraceBegin, "tr strt"},
                                    {kFlagBranch | kFlagTraceEnd, "tr end"}};
  constexpr uint32_t kBeside = kFlagInTx | kFlagIntrDisable | kFlagIntrToggle;
  std::string more;
  if ((flags & kBeside) != 0)
    more = fmt::format("({}{}{})", (flags & kFlagInTx) != 0 ? "x" : "",
                       (flags & kFlagIntrDisable) != 0 ? "D" : "", (flags & kFlagIntrToggle) != 0 ? "t" : "");
  const uint32_t all = std::exchange(flags, flags & ~kBeside);
  std::string_view before;
  const auto word_of = [](uint32_t f) {
    for (const Word& w : kWords) {
      if (w.flags == f) return w.text;
    }
    return std::string_view();
  };
  std::string_view word = word_of(flags);
  if (word.empty() && (flags & kFlagTraceBegin) != 0) {
    before = "tr strt ";
    word = word_of(flags & ~uint32_t{kFlagTraceBegin});
  } else if (word.empty() && (flags & kFlagTraceEnd) != 0) {
    before = "tr end  ";
    word = word_of(flags & ~uint32_t{kFlagTraceEnd});
  }
  if (word.empty()) return flag_letters(all);
  std::string out = fmt::format("{}{}", before, word);
  if (more.empty()) return out;
  return fmt::format("{:<15}{:>6}", out, more);
}

namespace {

// Of host and guest perf speaks where they are not what follows from the others.
std::string modifiers_of(const PerfAttr& event) {
  const uint64_t flags = event.flags;
  std::string out;
  bool some = (flags & (kExcludeUser | kExcludeKernel | kExcludeHv)) != 0;
  if (some) {
    if ((flags & kExcludeKernel) == 0) out += 'k';
    if ((flags & kExcludeUser) == 0) out += 'u';
    if ((flags & kExcludeHv) == 0) out += 'h';
  }
  const auto precise = static_cast<size_t>(flags >> kPreciseShift & 3U);
  out.append(precise, 'p');
  some = some || precise != 0;
  const bool no_host = (flags & kExcludeHost) != 0, no_guest = (flags & kExcludeGuest) != 0;
  if (no_host || no_guest == some) {
    if (!no_host) out += 'H';
    if (!no_guest) out += 'G';
  }
  return out.empty() ? out : ":" + out;
}

template <size_t kCount>
std::string listed(const std::array<std::string_view, kCount>& names, const PerfAttr& event,
                   std::string_view unknown) {
  return std::string(event.config < kCount ? names[event.config] : unknown) + modifiers_of(event);
}

}  // namespace

std::string event_modifiers(const Capture& capture) {
  if (const PerfAttr* const attr = trace_attr(capture)) return modifiers_of(*attr);
  // Block streams know no more.
  if (capture.exclude_kernel == capture.exclude_user) return {};
  return capture.exclude_user ? ":k" : ":u";
}

std::string script_event_name(const PerfAttr& event) {
  static constexpr std::array<std::string_view, 10> kHardware{
      "cycles",        "instructions", "cache-references",        "cache-misses",           "branches",
      "branch-misses", "bus-cycles",   "stalled-cycles-frontend", "stalled-cycles-backend", "ref-cycles"};
  static constexpr std::array<std::string_view, 10> kSoftware{
      "cpu-clock",    "task-clock",   "page-faults",      "context-switches", "cpu-migrations",
      "minor-faults", "major-faults", "alignment-faults", "emulation-faults", "dummy"};
  if (!event.name.empty()) return event.name;
  switch (event.type) {
    case 0:
      return listed(kHardware, event, "unknown-hardware");
    case 1:
      return listed(kSoftware, event, "unknown-software");
    case kTracepointType:
      return "unknown tracepoint";
    case kRawType:
      return fmt::format("raw {:#x}", event.config) + modifiers_of(event);
    default:
      return fmt::format("unknown attr type: {}", event.type);
  }
}

// EVENT_DESC: count, size of an attribute; for each event its attribute, count of ids, name, ids.
std::vector<uint64_t> recorded_periods(const PerfData& data) {
  constexpr int kEventDesc = 12;
  constexpr size_t kPeriodAt = 16;
  std::vector<uint64_t> periods(data.attrs().size(), 1);
  Reader in(data.feature(kEventDesc), data.swapped());
  const uint32_t count = in.u32(), size = in.u32();
  for (size_t i = 0; i < std::min<size_t>(count, periods.size()) && in.ok(); ++i) {
    Reader attr(in.take(size), data.swapped());
    attr.seek(kPeriodAt);
    periods[i] = attr.u64_or(1);
    const uint32_t ids = in.u32();
    in.skip(in.u32());
    in.skip(uint64_t{ids} * sizeof(uint64_t));
  }
  return periods;
}

std::vector<std::string> recorded_event_names(const PerfData& data) {
  constexpr int kTracingData = 1;  // feature
  std::vector<std::string> names;
  std::optional<std::vector<TraceEvent>> formats;
  for (const PerfAttr& event : data.attrs()) {
    names.push_back(plain_text(script_event_name(event)));
    if (!event.name.empty() || event.type != kTracepointType) continue;
    if (!formats) formats = read_trace_formats(data.feature(kTracingData));
    const auto format = std::ranges::find(*formats, event.config, &TraceEvent::id);
    if (format != formats->end()) names.back() = plain_text(format->system + ":" + format->name);
  }
  return names;
}

std::string_view script_event_name(Kind kind) {
  switch (kind) {
    case Kind::kBranch:
      return "branches";
    case Kind::kInstructions:
      return "instructions";
    case Kind::kTransaction:
      return "transactions";
    case Kind::kPtwrite:
      return "ptwrite";
    case Kind::kCbr:
      return "cbr";
    case Kind::kMwait:
      return "mwait";
    case Kind::kPwre:
      return "pwre";
    case Kind::kExstop:
      return "exstop";
    case Kind::kPwrx:
      return "pwrx";
    case Kind::kPsb:
      return "psb";
    case Kind::kEvent:
      return "evt";
    case Kind::kIflag:
      return "iflag";
    case Kind::kPebs:
    case Kind::kError:
    case Kind::kSideBand:
    case Kind::kSample:
    case Kind::kLoss:
    case Kind::kCode:
      break;
  }
  return {};
}

size_t event_name_width(const Capture& capture, const ScriptItrace& itrace,
                        const std::vector<std::string>& recorded) {
  size_t width = 0;
  for (const std::string& name : recorded) width = std::max(width, name.size());
  const size_t more = event_modifiers(capture).size();
  const auto made = [&](bool wanted, Kind kind) {
    if (wanted) width = std::max(width, script_event_name(kind).size() + (flow_kind(kind) ? more : 0));
  };
  made(itrace.branches, Kind::kBranch);
  made(itrace.instructions, Kind::kInstructions);
  made(itrace.transactions, Kind::kTransaction);
  made(itrace.ptwrite, Kind::kPtwrite);
  made(itrace.power, Kind::kExstop);
  made(itrace.interrupts, Kind::kIflag);
  return width;
}

std::string_view perf_error_text(uint64_t code) {
  switch (code) {
    case 3:
      return "Bad packet";
    case 5:
      return "Failed to get instruction";
    case 6:
      return "Trace doesn't match instruction";
    case 7:
      return "Overflow packet";
    default:
      return "Lost trace data";
  }
}

uint64_t cbr_khz(const Capture& capture, uint64_t ratio) {
  const uint64_t nonturbo = capture.x86.max_nonturbo;
  const auto& time = capture.x86.time;
  if (nonturbo == 0 || !time || time->mult == 0) return 0;
  // Ticks of the TSC in a second, of which a core at the non-turbo ratio runs as many cycles.
  const auto khz =
      static_cast<uint64_t>((static_cast<unsigned __int128>(1'000'000) << time->shift) / time->mult);
  return ratio * (khz / nonturbo);
}

namespace {

std::string event_text(const ScriptRecord& r) {
  static constexpr std::array<std::string_view, 14> kTypes{
      "",        "INTR",   "IRET",        "SMI",      "RSM", "SIPI",  "INIT",
      "VMENTRY", "VMEXIT", "VMEXIT_INTR", "SHUTDOWN", "",    "UINTR", "UIRET"};
  static constexpr std::array<std::string_view, 3> kData{"PFA", "VMXQ", "VMXR"};
  const bool named = r.a < kTypes.size() && !kTypes[r.a].empty();
  std::string out =
      fmt::format(" cfe: {} IP: {} vector: {}", named ? std::string(kTypes[r.a]) : fmt::format("{}", r.a),
                  r.ip != 0 ? 1 : 0, r.b);
  for (size_t i = 0; i < r.insn_size; ++i) {
    const unsigned type = r.insn[i];
    out += type < kData.size() ? fmt::format(" {}: ", kData[type]) : fmt::format(" EVD_{}: ", type);
    out += r.event_data(i) == 0 ? "0" : fmt::format("{:#x}", r.event_data(i));
  }
  return out;
}

}  // namespace

std::string synth_text(const Capture& capture, const ScriptRecord& r) {
  switch (r.kind) {
    case Kind::kPtwrite:
      return fmt::format(" IP: {} payload: {:#x} ", r.ip != 0 ? 1 : 0, r.a);
    case Kind::kMwait:
      return fmt::format(" hints: {:#x} extensions: {:#x} ", r.a, r.b);
    case Kind::kPwre:
      return fmt::format(" hw: {} cstate: {} sub-cstate: {} ", r.b >> 8U, r.a, r.b & 0xff);
    case Kind::kExstop:
      return fmt::format(" IP: {} ", r.ip != 0 ? 1 : 0);
    case Kind::kPwrx:
      return fmt::format(" deepest cstate: {} last cstate: {} wake reason: {:#x} ", r.b & 0xff, r.a,
                         r.b >> 8U);
    case Kind::kPsb:
      return r.a == 0 ? " psb offs: 0 " : fmt::format(" psb offs: {:#x} ", r.a);
    case Kind::kEvent:
      return event_text(r);
    case Kind::kIflag:
      return fmt::format(" IFLAG: {}->{} {} branch", 1 - r.a, r.a, r.b != 0 ? "via" : "non");
    case Kind::kCbr:
      break;
    default:
      return {};
  }
  std::string out = fmt::format(" cbr: {:2}", r.a);
  const uint64_t nonturbo = capture.x86.max_nonturbo;
  if (nonturbo == 0) return out + " ";
  if (const uint64_t khz = cbr_khz(capture, r.a); khz != 0)
    out += fmt::format(" freq: {:4} MHz", (khz + 500) / 1000);
  return out + fmt::format(" ({:3}%) ", (5 + 1000 * r.a / nonturbo) / 10);
}

}  // namespace asof
