// The executed flow: instructions, blocks, events and gaps, as Capture::instructions() and its like give
// them.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "asof/records.h"
#include "asof/types.h"

namespace asof::v0 {

enum class Order : std::uint8_t {
  kTime,    // all CPUs (or threads) merged by time, ties by CPU: as `asof decode` prints
  kStream,  // all of one CPU from start to end, then the next one: nothing has to wait
};

// Which state of the text is decoded against.
enum class TextAt : std::uint8_t {
  kAsof,   // that of each instant
  kFirst,  // one state, before all changes: as in other decoders
  kLast,   // one state, after all changes
};

struct Filter {
  std::vector<std::int32_t> cpus{};  // empty: all
  std::vector<std::int32_t> pids{};  // empty: all
  std::vector<std::int32_t> tids{};  // empty: all
  TimeRange time{};                  // records without a time pass
  Order order = Order::kTime;
  TextAt text_at = TextAt::kAsof;
  unsigned jobs = 0;  // decoding threads; 0: one for each CPU of this machine
  // Bytes of decoded flow that may wait for segments before it, and for other CPUs. 0: 256 MiB each.
  std::uint64_t max_memory = 0;
};

// How a block ends, and what an instruction is; perf's names. Intel SDM vol. 3, "Change of Flow
// Instruction (COFI) Tracing"; Arm ETM architecture specification (IHI 0064), "Waypoints".
enum class Branch : std::uint8_t {
  kNone,
  kConditional,  // direct
  kJump,         // direct
  kCall,         // direct
  kIndirectJump,
  kIndirectCall,
  kReturn,
  kFarCall,    // SYSCALL, SYSENTER, INT n, VMCALL, far CALL; SVC, HVC, SMC
  kFarReturn,  // SYSRET, SYSEXIT, IRET, VMRESUME, far RET; ERET
  kFarJump,
  kPtwrite,  // no branch
  kPaging,   // MOV to CR3, VMPTRLD: no branch
};
// "jcc", "call", ...; empty for kNone, kPtwrite and kPaging. Static storage.
ASOF_EXPORT std::string_view name(Branch) noexcept;

// Bits of Instruction::flags and Block::flags.
inline constexpr std::uint8_t kTaken = 1;        // the conditional branch at its end was taken
inline constexpr std::uint8_t kAfterGap = 2;     // something before it is missing (gap, start of the trace)
inline constexpr std::uint8_t kAsyncEntry = 4;   // entered by an interrupt or exception
inline constexpr std::uint8_t kTransaction = 8;  // inside a TSX transaction

// One executed instruction.
struct ASOF_EXPORT Instruction {
  Address ip = 0;
  Time time = kTimeMin;                 // of the last timing packet read for it: no bound. kTimeMin: unknown
  const std::uint8_t* bytes = nullptr;  // `size` of them
  std::int32_t cpu = -1;                // -1: the stream is that of a thread
  std::int32_t pid = -1, tid = -1;      // -1: unknown
  Space space = kKernelSpace;
  SourceRef source = 0;       // of the bytes
  std::uint32_t version = 0;  // of its text, from 1; 0: unknown
  std::uint8_t size = 0;      // bytes
  std::uint8_t mode = 64;     // 16, 32 or 64: size of code
  Branch branch = Branch::kNone;
  Confidence confidence = Confidence::kCertain;
  std::uint8_t flags = 0;

  std::span<const std::uint8_t> code() const { return {bytes, size}; }
};

// One execution of a straight run of instructions.
struct ASOF_EXPORT Block {
  Address ip = 0;
  Address target = 0;                      // of the direct branch at its end; 0: none
  Time time = kTimeMin;                    // as Instruction::time
  Time from = kTimeMin, until = kTimeMax;  // when these bytes were in memory, both included
  const std::uint8_t* bytes = nullptr;     // `size` of them
  const std::uint8_t* lengths = nullptr;   // of the instructions, in bytes: `count` of them
  std::uint32_t size = 0;                  // bytes that were executed
  std::uint32_t count = 0;                 // instructions that were
  std::int32_t cpu = -1, pid = -1, tid = -1;
  Space space = kKernelSpace;
  SourceRef source = 0;  // of its first instruction
  std::uint8_t mode = 64;
  Branch branch = Branch::kNone;  // of its last instruction; kNone: cut short by an interrupt or a gap
  Confidence confidence = Confidence::kCertain;
  std::uint8_t flags = 0;

  std::span<const std::uint8_t> code() const { return {bytes, size}; }
};

// A stretch of trace without flow: lost, damaged, or through text that was not recorded.
struct ASOF_EXPORT Gap {
  std::string code;                  // stable: "E-FLOW-001"; docs/errors.md
  std::string reason;                // evidence, one line of English, not stable
  TimeRange time;                    // when, as far as known
  Address ip = 0;                    // where the flow was lost; 0: unknown
  Address resume_ip = 0;             // where it continues; 0: unknown
  std::uint64_t begin = 0, end = 0;  // bytes of the stream passed over; equal: none
  std::uint64_t file_offset = 0;     // of `begin`; 0: unknown
  std::int32_t cpu = -1, pid = -1, tid = -1;
};

// Packets other than flow. Names and values: Intel SDM vol. 3, "Trace Packets and Data Types"; IHI 0064.
enum class EventKind : std::uint8_t {
  kTraceStart,  // ip
  kTraceStop,   // ip where tracing stopped, or 0
  kAsync,       // ip: interrupted address, a: handler (0: tracing stopped)
  kOverflow,    // ip: where tracing continues, or 0
  kExecMode,    // a: 16, 32, 64; b: interrupt flag
  kTsxBegin,
  kTsxCommit,
  kTsxAbort,
  kPaging,       // PIP. a: CR3, b: VMX non-root operation
  kVmcs,         // a: base
  kPtwrite,      // ip (0: unknown), a: payload, b: its bytes
  kMwait,        // a: hints, b: extensions
  kPwre,         // a: resolved C-state, b: sub C-state | hardware << 8
  kExstop,       // ip or 0
  kPwrx,         // a: last core C-state, b: deepest | wake reason << 8
  kCbr,          // a: core:bus ratio
  kMaintenance,  // MNT. a: payload
  kBbp,
  kBip,
  kBep,              // PEBS block. a: type or payload, b: size or id
  kCfe,              // a: type, b: vector
  kEvd,              // a: type, b: payload
  kTraceStopPacket,  // TraceStop
  kPsb,              // ip or 0. Intel PT, a: core:bus ratio or 0; b: interrupts, 1 off, 2 on, 0 not said
  kTraceEvent,       // CoreSight. a: event outputs of the trace unit, one bit each; ip or 0
  kContext,          // CoreSight. a: context ID, b: exception level | non-secure << 2 | AArch64 << 3; ip or 0
};
// "ptwrite", "cbr", ... Static storage.
ASOF_EXPORT std::string_view name(EventKind) noexcept;

struct ASOF_EXPORT Event {
  EventKind kind = EventKind::kTraceStart;
  Time time = kTimeMin;
  Address ip = 0;
  std::uint64_t a = 0, b = 0;
  std::uint64_t offset = 0;  // of the packet in its stream, in bytes
  std::int32_t cpu = -1, pid = -1, tid = -1;
};

using FlowItem = std::variant<Block, Event, Gap>;

using Instructions = Records<Instruction>;
using Blocks = Records<Block>;
using Events = Records<Event>;
using Gaps = Records<Gap>;
using Flow = Records<FlowItem>;  // blocks with the events and gaps between them

extern template class Records<Instruction>;
extern template class Records<Block>;
extern template class Records<Event>;
extern template class Records<Gap>;
extern template class Records<FlowItem>;

}  // namespace asof::v0
