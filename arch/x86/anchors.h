// Anchors: what the traced kernel's own patching code says of time, without a clock (docs/live-text.md 7.1).
//
// perf_event_text_poke() writes the TEXT_POKE record of a poke into the ring of the CPU it runs on. So on a
// CPU's own trace the i-th visit that came back, counted from a sync point whose time is known, is not
// earlier than the i-th record after that time in its ring: records without a visit (the task had entered
// before the sync point, or moved here meanwhile) make the bound lower, never higher. A visit that does not
// come back may have moved to another CPU before it wrote: from there on nothing is counted.
//
// do_sync_core() is what every CPU runs when a poke waits for all of them, at most three times for a record,
// the first time after INT3 was written over the old bytes. So once this CPU has made more visits than the
// records before can account for, the next one's old bytes are over. Its record may still be to come: this
// says nothing of what is not poked.
//
// Both count only where nothing was lost, in recordings without a sign of pokes that nobody recorded (a
// broken chain), and never against the clock: a record that the clock's upper bound excludes ends the
// counting.
#pragma once
#include <tsl/robin_map.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "arch/arch.h"
#include "arch/x86/config.h"

namespace asof::x86 {

class Returns;

// What visits since the sync point have shown of time: a part of the flow's state.
struct Visits {
  Time lo = kTimeMin;        // on perf's clock without error: later than this for every choice of text
  Time poked_lo = kTimeMin;  // what pokes up to here replaced is over, though their records may come later
  Addr poke_return = 0;      // inside perf_event_text_poke(): where that returns to
  uint32_t pokes = 0;        // to perf_event_text_poke() that came back
  uint32_t syncs = 0;        // to do_sync_core()
  bool pokes_uncounted = false;
};

class Anchors {
 public:
  // Both are referred to. `clock_error`: of the trace's times against perf's, ns.
  Anchors(const Config& config, const TextStore& text, Time clock_error)
      : config_(config), text_(text), clock_error_(clock_error) {}
  // Addresses whose visits are counted in this text.
  static std::vector<Addr> hooks(const Config& config, const TextStore& text, const DecodeOptions& options);

  // A segment of the trace of `cpu` begins; `start`: time of its sync point, kTimeMin: it is not known, and
  // nothing is counted.
  void start(int32_t cpu, Time start) {
    cpu_ = cpu;
    start_ = start;
  }
  bool counting() const { return start_ != kTimeMin; }
  // The flow is at `ip`, not later than `latest`. Returns an address whose visits count from now on, or 0.
  Addr visit(Visits& v, Addr ip, const Returns& returns, Time latest);

 private:
  Addr enter_poke(Visits& v, const Returns& returns) const;
  void leave_poke(Visits& v, Time latest);
  void visit_sync(Visits& v, Time latest) const;
  bool lost_between(Time after, Time before, std::optional<uint32_t> ring) const;
  const std::vector<Time>& ring_times(uint32_t ring);

  const Config& config_;
  const TextStore& text_;
  const Time clock_error_;
  int32_t cpu_ = -1;  // of the segment
  Time start_ = kTimeMin;
  tsl::robin_map<uint32_t, std::vector<Time>> ring_times_;  // of each ring's TEXT_POKE records
};

}  // namespace asof::x86
