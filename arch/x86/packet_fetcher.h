// From packets to what the flow needs next: TNT bits, or something that happens at an address (Pending).
//
// All TNT bits of a packet are used before the next packet is looked at, so the flow always knows what the
// trace says next while it goes on without trace.
#pragma once
#include <span>

#include "arch/walk/segment_log.h"
#include "arch/x86/config.h"
#include "arch/x86/errata.h"
#include "arch/x86/state.h"

namespace asof::x86 {

// The packet at `p`; what an erratum garbled is a PAD packet. `block_bytes`: see read_packet().
Packet read_packet(const Errata& errata, const uint8_t* p, const uint8_t* end, uint8_t block_bytes);

class PacketFetcher {
 public:
  // `log` gets the events of packets that bind to no instruction.
  // `cycles`: it also gets EventKind::kCycles.
  PacketFetcher(const Errata& errata, walk::SegmentLog& log, bool cycles)
      : errata_(errata), log_(log), cycles_wanted_(cycles) {}

  // A segment begins, whose bytes end at `tail`; those of the next sync group are behind it.
  void start(const uint8_t* begin, const uint8_t* tail, const uint8_t* end) {
    begin_ = begin;
    tail_ = tail;
    end_ = end;
    overwritten_ = false;
    cycles_ = {};
  }
  // Somewhere in the segment trace of an earlier time begins.
  void expect_time_back() { overwritten_ = true; }

  // The packet at `p`; what reaches into the next PSB is none. `block_bytes`: see read_packet().
  Packet next(const uint8_t* p, uint8_t block_bytes) const;
  // Reads up to the next TNT, or the next thing that binds to a location in the flow. Emit: not in a
  // hypothesis.
  template <bool Emit>
  void fetch(State& s);
  // False: the packet is of an earlier time. What follows was written before, and nothing that decompression
  // or the return stack need is known of it: the rest of the segment is lost.
  template <bool Emit>
  bool timing(State& s, const Packet& k);
  // Packets without effect on the flow. Those with an IP bit wait for their FUP; PTWRITE waits for its
  // instruction. True: s.pending is set.
  template <bool Emit>
  bool side_packet(State& s, const Packet& k, uint64_t offset);
  // Events that were to bind to an instruction, without one.
  void report_bound_events(const State& s);
  template <bool Emit>
  void report_control_event(State& s);
  // After an OVF: a FUP with only timing in front of it says where tracing goes on; anything else says it is
  // off.
  void resolve_overflow(State& s) const;

 private:
  template <bool Emit>
  bool fetch_one(State& s, const Packet& k, uint64_t offset);
  template <bool Emit>
  bool fetch_fup(State& s, const Packet& k, uint64_t offset);
  template <bool Emit>
  void fetch_async_end(State& s);
  template <bool Emit>
  void fetch_sync(State& s, uint64_t offset);
  bool fup_is_bogus(const State& s, const uint8_t* after_fup) const;
  bool skip_after_overflow(State& s) const;
  void count_cycles(const Packet& k, uint64_t offset);
  void end_cycles(const State& s);

  const Errata& errata_;
  walk::SegmentLog& log_;
  const uint8_t* begin_ = nullptr;
  const uint8_t* tail_ = nullptr;
  const uint8_t* end_ = nullptr;
  bool overwritten_ = false;

  // A CYC packet belongs to the packet after it: a TNT's were counted when its last branch retired, or later, when
  // the next packet was due. So the event comes when that packet is used up. Before other timing packets they are
  // added to the next count, as branches of a TNT that is not written yet may have retired.
  struct Cycles {
    uint64_t since = 0;   // since the last event
    uint64_t offset = 0;  // of the last CYC
    bool whole =
        false;  // nothing is missing in it: CYC packets before a PSB may be (SKL168), and before a TSC
    bool last = false;   // it was the packet just before
    bool bound = false;  // to the packet in use
  };
  bool cycles_wanted_;
  Cycles cycles_;
};

}  // namespace asof::x86
