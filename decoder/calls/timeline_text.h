// Changes of text, for a timeline: every poke with its window and what each CPU ran around it, lifetimes of
// BPF programs, modules and out-of-line code, and counters.
#pragma once
#include <tsl/robin_map.h>

#include <map>
#include <vector>

#include "decoder/calls/flow_ops.h"
#include "decoder/calls/timeline.h"

namespace asof {

class PokeWindows {
 public:
  explicit PokeWindows(const Capture& capture);

  // A CPU executed a site that was poked.
  void visited(int32_t cpu, Time t, const FlowVisit& visit);
  // An exception was taken at `ip`, to the handler `to`. Only breakpoints count.
  void interrupted(int32_t cpu, Time t, Addr ip, Addr to);
  void finish(TimelineSink& sink) const;

 private:
  struct Window {
    Time first = kTimeMax, last = kTimeMin;  // breakpoint visits
    uint64_t breakpoints = 0;
    std::vector<PokeVisit> visits;
  };
  PokeVisit& visit_of(uint32_t poke, int32_t cpu);
  bool is_breakpoint(Addr handler, Time t) const;

  const Capture& capture_;
  const bool arm64_;
  tsl::robin_map<Addr, std::vector<uint32_t>> sites_;  // pokes of an address, by time
  std::vector<Window> windows_;                        // by poke
};

// Instructions and lost time by CPU, in buckets of equal width that double when there are too many.
class RateBuckets {
 public:
  void add(int32_t cpu, Time t, uint64_t instructions);
  void lost(int32_t cpu, Time begin, Time end);
  // Points from `end` of each CPU's trace back; none without time.
  void finish(TimelineSink& sink) const;

 private:
  struct Cpu {
    std::vector<uint64_t> instructions;
    std::vector<Time> lost;
  };
  size_t bucket(Time t);
  Time start(size_t bucket) const;
  void widen();

  std::map<int32_t, Cpu> cpus_;
  Time origin_ = kTimeMin;
  Time width_ = 1000;
};

// Lifetimes of text and the text-version counter.
void emit_lifetimes(const Capture& capture, TimelineSink& sink);
void emit_text_versions(const Capture& capture, TimelineSink& sink);

}  // namespace asof
