// Calls: executed functions as nested intervals; and a Timeline of a whole capture in memory.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "asof/flow.h"
#include "asof/records.h"
#include "asof/types.h"

namespace asof::v0 {

enum class FunctionKind : std::uint8_t {
  kKernel,
  kModule,
  kUser,
  kBpf,         // a BPF program or sub-program
  kTrampoline,  // ftrace, BPF trampoline or dispatcher
  kSlot,        // out-of-line code of a kprobe or optprobe
  kUnnamed,     // no symbol; the name is the address
  kUntraced,    // what ran while tracing was off, between two stretches of flow
};
// "kernel", "module", ... Static storage.
ASOF_EXPORT std::string_view name(FunctionKind) noexcept;

// Bits of Call::flags.
inline constexpr std::uint32_t kCallAsync = 1 << 0;          // entered by an interrupt or exception
inline constexpr std::uint32_t kCallSyscall = 1 << 1;        // entered by a system call
inline constexpr std::uint32_t kCallTail = 1 << 2;           // entered by a jump
inline constexpr std::uint32_t kCallEmulated = 1 << 3;       // called by a breakpoint handler's emulation
inline constexpr std::uint32_t kCallBeganBefore = 1 << 4;    // was on the stack when the flow began
inline constexpr std::uint32_t kCallAcrossGap = 1 << 5;      // flow inside it is missing
inline constexpr std::uint32_t kCallEndUnknown = 1 << 6;     // its end was not seen
inline constexpr std::uint32_t kCallSkipped = 1 << 7;        // left by a return or jump of a callee
inline constexpr std::uint32_t kCallResumed = 1 << 8;        // its thread came back to this CPU
inline constexpr std::uint32_t kCallSwitchedOut = 1 << 9;    // its thread left this CPU
inline constexpr std::uint32_t kCallUnbalanced = 1 << 10;    // entered by a return that matches no call
inline constexpr std::uint32_t kCallSignal = 1 << 11;        // user mode entered elsewhere than it was left
inline constexpr std::uint32_t kCallClippedBegin = 1 << 12;  // began before Filter::time
inline constexpr std::uint32_t kCallClippedEnd = 1 << 13;    // ended after it

// One activation of a function on a thread; by CPU, a part of one during which the thread was on that CPU.
struct ASOF_EXPORT Call {
  std::uint64_t id = 0;      // from 1, unique
  std::uint64_t parent = 0;  // id of the call around it; 0: none known
  std::string_view function;
  std::string_view dso;
  FunctionKind kind = FunctionKind::kKernel;
  Confidence confidence = Confidence::kCertain;  // the least certain of its own instructions
  std::uint32_t version = 1;                     // of the function's text when it was entered, from 1
  std::uint32_t versions = 1;                    // that its text had in the capture, as known so far
  Time begin = 0, end = 0;                       // as Instruction::time; without time in the trace, counts of
                                                 // instructions
  std::uint64_t instructions = 0;                // executed in it and in what it called
  std::uint64_t self_instructions = 0;           // in itself
  Address entry = 0;                             // where it was entered
  Address call_site = 0;                         // of the calling instruction; 0: unknown
  std::int32_t cpu = -1;                         // where it began
  std::int32_t pid = -1, tid = -1;               // by thread; -1 by CPU
  std::uint32_t flags = 0;
  std::uint32_t depth = 0;  // Timeline only; 0: outermost
};

// In the order they end: children before their parents.
using Calls = Records<Call>;
extern template class Records<Call>;

enum class Tracks : std::uint8_t { kCpu, kThread };

struct CallOptions {
  Filter filter{};  // order, pids and tids of threads on traced CPUs are not used
  Tracks tracks = Tracks::kCpu;
};

// What one CPU executed at a site that changed.
struct ChangeVisit {
  std::int32_t cpu = -1;
  Time last_old = kTimeMin;       // last run of the old text; kTimeMin: never
  Time first_new = kTimeMax;      // first run of the new text; kTimeMax: never
  std::uint64_t breakpoints = 0;  // visits while the breakpoint of the change (INT3) was there
};

struct ChangeSlice {
  std::uint32_t index = 0;  // in Text::changes()
  Time begin = 0, end = 0;  // from the first to the last visit of the breakpoint; else the record's time
  std::string mechanism;    // "jump_label", "ftrace", ...; "unknown"
  std::string action;       // "nop to jump", ...; may be empty
  std::string symbol;       // "__schedule+0x114"
  std::vector<ChangeVisit> visits;  // by CPU; only CPUs that ran it
};

// A thread on a CPU.
struct RunSlice {
  std::int32_t cpu = -1, pid = -1, tid = -1;
  std::string comm;
  Time begin = 0, end = 0;
};

// Text that came and went.
struct TextLifetime {
  enum class Kind : std::uint8_t { kBpf, kModule, kOutOfLine, kSnapshot };
  Kind kind = Kind::kBpf;
  std::string name;
  AddressRange range;
  TimeRange time;            // kTimeMin: before the capture; kTimeMax: still there
  std::uint32_t bpf_id = 0;  // 0: none
  std::string bpf_tag;       // hexadecimal
};

struct TimelineOptions {
  Filter filter{};  // as CallOptions::filter
  Tracks tracks = Tracks::kCpu;
  std::uint64_t max_calls = 1'000'000;  // the shortest ones beyond it are folded into their callers; 0: all
};

// In memory: grows with the capture up to TimelineOptions::max_calls. A handle, cheap to copy, const and
// thread-safe; what it refers to lives as long as the last copy.
class ASOF_EXPORT Timeline {
 public:
  std::span<const Call> calls() const;  // by track, then in order of beginning: parents before children
  std::span<const ChangeSlice> changes() const;  // by time
  std::span<const RunSlice> runs() const;        // by CPU, then time
  std::span<const Gap> gaps() const;             // by stream, then time
  std::span<const TextLifetime> lifetimes() const;
  std::uint64_t instructions() const;  // executed
  std::uint64_t folded() const;        // calls that were

 private:
  friend class Capture;
  struct Data;
  explicit Timeline(std::shared_ptr<const Data> data);
  std::shared_ptr<const Data> data_;
};

}  // namespace asof::v0
