// What happened to text, in Perfetto: changes, their windows, what each CPU ran of them, programs, modules,
// snapshots, counters, and what was left out.
#pragma once
#include <map>
#include <string_view>
#include <vector>

#include "decoder/calls/timeline.h"
#include "decoder/model/capture.h"
#include "tools/timeline/perfetto_packets.h"

namespace asof {

class PerfettoText {
 public:
  PerfettoText(const Capture& capture, const Timeline& timeline, PerfettoPackets& out)
      : c_(capture), t_(timeline), out_(out) {}

  // `groups`: of the tracks of each CPU.
  void write(const std::map<int32_t, uint64_t>& groups, uint64_t instructions_left_out);

 private:
  struct Mark {
    int32_t cpu = -1;
    Time time = 0;
    const PokeSlice* poke = nullptr;
    uint64_t flow = 0;
    std::string_view which;
  };
  void pokes(uint64_t group);
  void poke_windows(uint64_t group, uint64_t uuid, std::vector<const PokeSlice*> windows);
  void annotate_poke(const PokeSlice& p);
  void visit(const PokeSlice& p, const PokeVisit& v);
  void visits();
  void lifetimes(uint64_t group);
  void annotate_lifetime(const LifetimeSlice& lifetime);
  void snapshots(uint64_t group);
  void counters(uint64_t group);
  void left_out(uint64_t instructions);

  const Capture& c_;
  const Timeline& t_;
  PerfettoPackets& out_;
  std::map<int32_t, uint64_t> groups_;
  std::vector<Mark> marks_;
  uint64_t flows_ = 0;
};

}  // namespace asof
