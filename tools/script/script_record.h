// ScriptRecord: one event of `asof script`, made stream by stream, printed in order of time over all. Lines depend on
// those before (indentation, call chains, relative times), so the streams are merged before there is any text:
// records go through the Merger as bytes.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "textstore/address.h"
#include "textstore/time.h"

namespace asof {

// What perf calls the flags of a branch (tools/perf/util/event.h, PERF_IP_FLAG_*).
enum BranchFlag : uint32_t {
  kFlagBranch = 1 << 0,
  kFlagCall = 1 << 1,
  kFlagReturn = 1 << 2,
  kFlagConditional = 1 << 3,
  kFlagSyscallret = 1 << 4,
  kFlagAsync = 1 << 5,
  kFlagInterrupt = 1 << 6,
  kFlagTxAbort = 1 << 7,
  kFlagTraceBegin = 1 << 8,
  kFlagTraceEnd = 1 << 9,
  kFlagInTx = 1 << 10,
  kFlagIntrDisable = 1 << 13,
  kFlagIntrToggle = 1 << 14,
  kFlagIndirect = 1 << 30,  // not perf's: a jump or call to where a register or memory says
};
// Of --itrace's letters c and r.
inline constexpr uint32_t kCallFlags = kFlagCall | kFlagAsync | kFlagTraceEnd,
                          kReturnFlags = kFlagReturn | kFlagTraceBegin;
// "call", "tr end  return", "hw int", "jcc (xDt)".
std::string flags_text(uint32_t flags);

// perf's numbers of errors (enum intel_pt_err): what they say is in script_printer.cpp.
inline constexpr uint64_t kPerfDataError = 3, kPerfTextError = 5, kPerfFlowError = 6, kPerfOverflowError = 7,
                          kPerfLossError = 8;

struct ScriptRecord {
  enum class Kind : uint8_t {
    kBranch,
    kInstructions,
    kTransaction,
    kPtwrite,
    kCbr,
    kMwait,
    kPwre,
    kExstop,
    kPwrx,
    kPsb,
    kEvent,  // of Event Trace: a is its type, b its vector; event data as event_data() says
    kIflag,  // interrupts were switched: a is what they are now, b: by a branch
    kPebs,   // a: the number of the event it is a sample of, b: latency
    kError,
    kSideBand,  // a record of the recording: a is its number, b its thread (side_band_lines.h)
    kSample,    // a sample of the recording: likewise
    kLoss,      // not printed: the flow is not known from here on
    kCode,      // not printed: b instructions of piece a (code_of_blocks.h) ran
  };
  Kind kind = Kind::kBranch;
  bool shown = true;  // false: only call chains, branch stacks and depths need it
  uint8_t insn_size = 0;
  uint8_t mode = 64;
  uint32_t flags = 0;
  int32_t cpu = -1, pid = -1, tid = -1;
  Space space = kKernelSpace;     // of user addresses at `ip`
  Space to_space = kKernelSpace;  // and at `addr`
  Time time = kTimeMin;
  Addr ip = 0, addr = 0;
  uint64_t period = 1;
  uint64_t cycles = 0, instructions = 0;  // since the last one that has them; 0: none
  uint64_t a = 0, b = 0;                  // of the trace's event; of errors, perf's number
  std::array<uint8_t, 16> insn{};

  // Of kind kEvent: at most three data, as in perf. insn_size of them; their types are in insn.
  static constexpr size_t kMostData = 3;
  uint64_t& event_data(size_t i) { return i == 0 ? addr : i == 1 ? cycles : instructions; }
  uint64_t event_data(size_t i) const { return i == 0 ? addr : i == 1 ? cycles : instructions; }

  void append_to(std::string& out) const { out.append(reinterpret_cast<const char*>(this), sizeof *this); }
  static ScriptRecord from(std::string_view bytes, size_t at) {
    ScriptRecord r;
    std::memcpy(&r, bytes.data() + at, sizeof r);
    return r;
  }
};

}  // namespace asof
