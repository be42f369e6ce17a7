// PerfettoInstructions: straight runs as slices with their disassembly and source line, and in small windows
// their instructions as slices within. A trace has the time only now and then: a slice is drawn between the
// times in its args time_lo and time_hi (html_spread.h has the rule).
#pragma once
#include <optional>
#include <vector>

#include "tools/disasm/code_text.h"
#include "tools/timeline/html_spread.h"
#include "tools/timeline/perfetto_packets.h"

namespace asof {

class PerfettoInstructions {
 public:
  PerfettoInstructions(const Capture& capture, const Timeline& timeline, bool inlined, PerfettoPackets& out);

  // A track below `group` with the runs of a CPU or, where a capture is of threads, of a thread; nothing if
  // it has none.
  void write(const TimelineTrack& track, uint64_t group, int32_t rank);

  // What source lines could not be read.
  std::vector<Notice> take_notices() { return code_.take_notices(); }
  // Instructions that have no slices of their own: there are too many.
  uint64_t left_out() const { return single_ ? 0 : instructions_; }

 private:
  void run(uint64_t track, const BlockSlice& b, Span drawn);
  void instructions(uint64_t track, const BlockSlice& b, const CodeRun& code, Time begin, Time end);
  Time time_of(uint64_t position) const;

  const Timeline& t_;
  PerfettoPackets& out_;
  CodeText code_;
  std::optional<TimelineSpread> spread_;
  uint64_t instructions_ = 0;
  bool single_ = false;
};

}  // namespace asof
