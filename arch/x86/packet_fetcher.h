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
  PacketFetcher(const Errata& errata, walk::SegmentLog& log) : errata_(errata), log_(log) {}

  // A segment begins. `bytes`: with those of the next sync group.
  void start(std::span<const uint8_t> bytes) {
    begin_ = bytes.data();
    end_ = begin_ + bytes.size();
    overwritten_ = false;
  }
  // Somewhere in the segment trace of an earlier time begins.
  void expect_time_back() { overwritten_ = true; }

  // The packet at `p`. `block_bytes`: see read_packet().
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

  const Errata& errata_;
  walk::SegmentLog& log_;
  const uint8_t* begin_ = nullptr;
  const uint8_t* end_ = nullptr;
  bool overwritten_ = false;
};

}  // namespace asof::x86
