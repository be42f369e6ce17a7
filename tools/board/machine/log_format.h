// What the plugins of the validation machines write and machine_truth reads. All numbers are little-endian.
//   cpu<N>.log   LogRecord, in the order of retirement on that CPU
//   code         per block of translated code: CodeHead, sizes[instructions], bytes[sum of sizes]; numbers ascend
//   plugin.json  {"tsc_hz": N, "icount": bool, "trace_bytes": [per CPU], ...}
#pragma once
#include <cstdint>

namespace asof::machine {

struct LogRecord {
  uint64_t address;  // of the first instruction, where it ran; a mark: its argument
  uint32_t code;     // number of the block in `code`; kLogMark: not a block
  uint16_t first;    // index of the first instruction in that block; a mark: its kind
  uint16_t count;    // instructions, all retired
  uint32_t output;   // see below; modulo 2^32
  uint32_t flags;
  uint64_t clock;  // TSC or CNTVCT when the first instruction began
};
static_assert(sizeof(LogRecord) == 32);

// A block record is a straight sequence of retired instructions that the trace unit traced. `output` is how many bytes
// of trace this CPU had written (what it lost does not count) when a decoder could first know that these
// instructions ran, the branch at their end included, but not where that branch led to: that is in the `output` of
// the record after it. So a decoder that has the trace up to byte E can show exactly the records with output <= E
// (and those without kLogLost). A mark has the position at its time.
constexpr uint32_t kLogException = 1;  // entered by an exception or interrupt
constexpr uint32_t kLogStart = 2;      // tracing starts or restarts here
constexpr uint32_t kLogNoBranch =
    8;                             // ended by an exception, interrupt, or the end of tracing; not by a branch
constexpr uint32_t kLogUser = 16;  // user code
constexpr uint32_t kLogAwaits = 32;  // ends with a branch whose outcome needs a packet
constexpr uint32_t kLogCode32 = 64;  // 32-bit code
constexpr uint32_t kLogLost =
    128;  // executed, but its packets were lost: output stopped, or internal buffer overflow

constexpr uint32_t kLogMark = 0xffffffff;

enum class Mark : uint16_t {
  kSync = 1,      // PSB or A-Sync: address is the full time in its time packet, output where it begins
  kOn = 2,        // tracing enabled: address is the control register
  kOff = 3,       // tracing disabled; output: all that was written
  kOverflow = 4,  // packets are lost from here on
  kResume = 5,    // the end of that
  kStopped = 6,   // TraceStop, or the output is full and stops
  kContext = 7,   // address is the new CR3 or context ID
  kRegion = 8,    // a region of the output is full and asks for an interrupt
};

inline bool is_mark(const LogRecord& r, Mark mark) {
  return r.code == kLogMark && r.first == static_cast<uint16_t>(mark);
}

struct CodeHead {
  uint64_t address;  // as translated; user code may run elsewhere
  uint32_t number;
  uint32_t instructions;
};
static_assert(sizeof(CodeHead) == 16);

}  // namespace asof::machine
