#include "tools/script/script_event_names.h"

#include <fmt/format.h>

#include <algorithm>

namespace asof {
namespace {

using Kind = ScriptRecord::Kind;

// perf_event_attr: bits of its flags.
constexpr uint64_t kExcludeUser = 1U << 4U, kExcludeKernel = 1U << 5U, kExcludeHv = 1U << 6U,
                   kExcludeHost = 1U << 19U, kExcludeGuest = 1U << 20U;

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

}  // namespace

std::string flags_text(uint32_t flags) {
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
  const std::string_view more = (flags & kFlagInTx) != 0 ? "(x)" : "";
  flags &= ~uint32_t{kFlagInTx};
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
  std::string out = fmt::format("{}{}", before, word);
  if (more.empty()) return out;
  return fmt::format("{:<15}{:>6}", out, more);
}

// As perf's own: of host and guest it speaks where they are not what follows from the others.
std::string event_modifiers(const Capture& capture) {
  const PerfAttr* const attr = trace_attr(capture);
  if (attr == nullptr) {  // block streams know no more
    if (capture.exclude_kernel == capture.exclude_user) return {};
    return capture.exclude_user ? ":k" : ":u";
  }
  const uint64_t flags = attr->flags;
  std::string out;
  const bool some = (flags & (kExcludeUser | kExcludeKernel | kExcludeHv)) != 0;
  if (some) {
    if ((flags & kExcludeKernel) == 0) out += 'k';
    if ((flags & kExcludeUser) == 0) out += 'u';
    if ((flags & kExcludeHv) == 0) out += 'h';
  }
  const bool no_host = (flags & kExcludeHost) != 0, no_guest = (flags & kExcludeGuest) != 0;
  if (no_host || no_guest == some) {
    if (!no_host) out += 'H';
    if (!no_guest) out += 'G';
  }
  return out.empty() ? out : ":" + out;
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
    case Kind::kError:
    case Kind::kSideBand:
    case Kind::kLoss:
    case Kind::kCode:
      break;
  }
  return {};
}

size_t event_name_width(const Capture& capture, const ScriptItrace& itrace) {
  size_t width = 0;
  if (capture.perf) {
    for (const PerfAttr& a : capture.perf->attrs()) width = std::max(width, a.name.size());
  }
  const size_t more = event_modifiers(capture).size();
  const auto made = [&](bool wanted, Kind kind) {
    if (wanted) width = std::max(width, script_event_name(kind).size() + (flow_kind(kind) ? more : 0));
  };
  made(itrace.branches, Kind::kBranch);
  made(itrace.instructions, Kind::kInstructions);
  made(itrace.transactions, Kind::kTransaction);
  made(itrace.ptwrite, Kind::kPtwrite);
  made(itrace.power, Kind::kPsb);
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
