// Elements: what a segment's packets say, with everything resolved that needs no text: addresses
// decompressed, exceptions joined with their return addresses, speculation committed or cancelled (Arm IHI
// 0064, "Trace element descriptions"). The flow, and every hypothesis, walks this list by index.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "arch/arm64/packet.h"
#include "textstore/address.h"

namespace asof::arm64 {

enum class El : uint8_t {
  kNone,                // a timestamp marker that has no timestamp
  kAtoms,               // value: bits, oldest at bit 0; count
  kAddress,             // value, isa
  kContext,             // value: see Context below
  kException,           // value: preferred return address, isa; type; kTarget
  kExceptionNoAddress,  // type
  kExceptionReturn,
  kSourceAddress,  // value: of the branch taken
  kQ,              // type: instructions, kCounted if known; value, isa if kHasAddress
  kTraceOn,
  kTraceInfo,  // the return stack starts anew
  kTime,       // one more timestamp has been passed
  kCycles,     // type; kCounted: it is known
  kEvent,      // type: number
  kTransStart,
  kTransCommit,
  kInstrumentation,  // value, type: EL
  kOverflow,
  kDiscard,
  kEnd,  // value: where the next segment starts
  kEos,  // the stretch ends in the middle of everything
  kBad,  // not a packet, or one out of place
};

struct Element {
  static constexpr uint8_t kTarget = 1;      // exception: its address is the target of the branch before it
  static constexpr uint8_t kCounted = 2;     // Q, cycles
  static constexpr uint8_t kHasAddress = 4;  // Q
  static constexpr uint8_t kStart = 8;       // address where this segment's flow starts

  uint64_t value = 0;
  uint32_t offset = 0;  // of its packet, in the segment's bytes
  uint32_t time = 0;    // timestamps in front of it
  uint32_t type = 0;
  El kind = El::kBad;
  uint8_t count = 0;
  uint8_t isa = 0;
  uint8_t flags = 0;

  // It is a context synchronisation event that packets alone show.
  bool synchronises() const {
    return kind == El::kException || kind == El::kExceptionNoAddress || kind == El::kExceptionReturn;
  }
};

// PE state as context elements give it, packed into Element::value.
struct Context {
  bool sf = false;
  bool ns = false;
  uint8_t el = 0;
  uint32_t cid = 0;
};
constexpr uint64_t pack(const Context& c) {
  return static_cast<uint64_t>(c.cid) << 32 | static_cast<uint64_t>(c.el) << 2 | (c.ns ? 2U : 0U) |
         (c.sf ? 1U : 0U);
}
constexpr Context unpack(uint64_t v) {
  Context c;
  c.sf = (v & 1) != 0;
  c.ns = (v & 2) != 0;
  c.el = (v >> 2) & 3;
  c.cid = static_cast<uint32_t>(v >> 32);
  return c;
}

// Where a segment's flow starts: after A-Sync and Trace Info, at the first address that nothing executed
// separates from a known context.
struct SyncGroup {
  bool has_start = false;
  Addr start = 0;
  uint32_t start_offset = 0;          // of its address packet
  uint32_t size = 0;                  // bytes up to and with the packets that say it
  bool executed_before = false;       // elements that ran precede it: they belong to the segment before
  std::optional<uint64_t> timestamp;  // the first one
};
SyncGroup read_sync_group(std::span<const uint8_t> bytes, const PacketFormat& format);

class ElementParser {
 public:
  // `cycles`: counts are wanted, also where packets are taken that nearly all of a trace consists of.
  explicit ElementParser(const PacketFormat& format, bool cycles = false)
      : format_(format), cycles_(cycles) {}

  // `bytes` start with an A-Sync; the next sync point at or after `tail` ends the segment.
  void start(std::span<const uint8_t> bytes, size_t tail);
  // Elements are numbered from 0. Parses on until number `index` is resolved; false: there is no such one.
  // The last one is kEnd, kEos, kBad, kOverflow or kDiscard.
  bool has(size_t index) { return index < base_ + ready_ || parse_to(index); }
  bool has_parsed(size_t index) const { return index >= base_ && index < base_ + list_.size(); }
  const Element& operator[](size_t index) const { return list_[index - base_]; }
  // Those that are resolved from number `index` on, as many as are at hand; empty: there is no such one.
  // Valid until more are parsed.
  std::span<const Element> at_hand(size_t index) {
    if (!has(index)) return {};
    return std::span(list_).subspan(index - base_, ready_ - (index - base_));
  }
  // For who can do without the list, after all before was dropped (elements_plain.h): calls
  // taker.atoms(value, count), taker.address(value, isa, offset) and taker.time(value, number) with what the
  // next packets say, as if it had been parsed and dropped, until one of the former two wants no more or a
  // packet comes that cannot be had so. All of them together count as one element.
  enum class Take : uint8_t { kOn, kStop, kRefuse };  // kRefuse: this is not taken, and comes next
  struct Passed {
    size_t elements = 0;
    Take last = Take::kOn;
    uint32_t offset = 0;  // of the packet of atoms that was the last
  };
  template <class Taker>
  Passed pass_plain(Taker& taker);
  // Has the packet of the atoms that were passed last in the list, after nothing.
  void keep_atoms(uint32_t offset);
  // Gives the memory of elements before `index` back, if that is worth it.
  void drop_before(size_t index);
  // The segment's end fell into a packet, or between an exception and its address.
  bool torn() const { return torn_; }
  // Where in the segment's bytes the packet is that has atom number `n` of element `index`.
  uint32_t offset_of_atom(size_t index, uint32_t n) const;

  // Timestamp number `n` of the segment, if it is within reach. Zero ones are left out.
  std::optional<uint64_t> timestamp(size_t n);

 private:
  struct Register {
    Addr address = 0;
    uint8_t isa = 0;
  };

  bool parse_to(size_t index);
  void parse_batch();
  void settle();
  void parse_one();
  bool plain_only() const;
  void parse_plain(size_t most);
  static const uint8_t* plain_atoms(const uint8_t* p, const uint8_t* end, uint64_t& value, uint32_t& count);
  const uint8_t* plain_address(const uint8_t* p, Register& r) const;
  const uint8_t* plain_timestamp(const uint8_t* p, uint64_t& value) const;
  const uint8_t* plain_cycles(const uint8_t* p) const;
  static void skip_field(const uint8_t*& p, unsigned most) {
    for (unsigned i = 0; i < most && (*p++ & 0x80) != 0;) ++i;
  }
  static constexpr ptrdiff_t kLongestPlain = 16;  // bytes of a packet, and more
  bool skip_padding();
  void on_packet(const Packet& k, uint32_t at);
  void drain(const Packet& k, uint32_t at);
  void push(Element e);
  void push_atoms(const Packet& k, uint32_t at);
  void on_address(const Packet& k, uint32_t at);
  void on_context(const ContextInfo& c, uint32_t at);
  void on_exception(const Packet& k, uint32_t at);
  void on_timestamp(const Packet& k, uint32_t at);
  void on_sync(uint32_t at);
  void end_with(El kind, uint32_t at, uint64_t value = 0);
  Addr decompress(const Packet& k, uint8_t& isa);
  void remember(const Register& r) { history_ = {r, history_[0], history_[1]}; }

  void executed(uint32_t count);
  void commit(uint32_t count);
  void cancel(uint32_t count);
  void mispredict();

  const PacketFormat format_;
  const bool cycles_;
  std::span<const uint8_t> bytes_;
  size_t at_ = 0, tail_ = 0;
  std::vector<Element> list_;
  size_t base_ = 0;   // number of list_[0]
  size_t ready_ = 0;  // list_ up to here is committed
  std::vector<uint64_t> times_;
  size_t times_base_ = 0;
  bool done_ = false;      // no packet is left to read
  bool draining_ = false;  // kEnd is in the list; only what resolves the elements before it counts now
  bool waiting_ = false;   // for Trace Info
  bool torn_ = false;
  uint32_t depth_ = 0;    // executed elements not committed yet
  uint32_t unseen_ = 0;   // of those before the segment
  uint32_t foreign_ = 0;  // of those after it (draining_)
  uint32_t cc_threshold_ = 0;
  size_t exception_ = SIZE_MAX;  // waits for its address
  size_t marker_ = SIZE_MAX;     // timestamp marker without its timestamp
  std::array<Register, 3> history_{};
  uint64_t timestamp_ = 0;
  Context context_;
  uint32_t start_offset_ = UINT32_MAX;
};

}  // namespace asof::arm64
