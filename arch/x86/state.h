// The whole state of a flow through one segment: small and copyable, because hypotheses about changing text
// are followed on copies.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "arch/arch.h"
#include "arch/walk/signature.h"
#include "arch/x86/anchors.h"
#include "arch/x86/block_cache.h"
#include "arch/x86/clock.h"
#include "arch/x86/runs.h"

namespace asof::x86 {

// The decoder's side of return compression (SDM vol. 3, "RET compression"): 64 entries, the oldest falls out.
// The fast walk keeps edges (runs.h) in it instead of addresses, and looks neither for its end nor for its
// beginning: above the newest entry are places for all that it may push at once, below the oldest is kNone.
class RetStack {
 public:
  static constexpr uint32_t kSize = 64;
  static constexpr uint32_t kAbove = 4 * kSize;

  void push(Addr a) {
    digested_ -= std::min(digested_, make_places(top_));
    addresses_[++top_ % kSize] = a;
    edges_[top_] = Edge::kAddressOnly;
    end_below(top_);
  }
  bool empty() const { return edges_[top_] == Edge::kNone; }
  bool top(Addr& a) const {
    if (empty()) return false;
    a = address(top_);
    return true;
  }
  void drop() {
    --top_;
    if (digested_ > top_) digested_ = top_;
  }
  bool pop(Addr& a) {
    if (!top(a)) return false;
    drop();
    return true;
  }
  void clear() {
    edges_[top_] = Edge::kNone;
    digested_ = 0;
  }
  // Of all entries: equal where two flows that have joined would return to the same places. Only hypotheses
  // ask, so it is worked out when they do.
  uint64_t digest() const {
    const uint32_t bottom = below_oldest();
    for (digested_ = std::max(digested_, bottom); digested_ < top_; ++digested_) {
      const uint64_t below = digested_ == bottom ? 0 : digests_[digested_ % kSize];
      digests_[(digested_ + 1) % kSize] = walk::mix(below, address(digested_ + 1));
    }
    return bottom == top_ ? 0 : digests_[top_ % kSize];
  }

  // For the fast walk in `map`'s code of this space and mode: all places, of which newest() is in use.
  // Entries of other code become addresses.
  Edge* borrow(const CodeMap& map, Space space, uint8_t mode) {
    if (map_ != &map || space_ != space || mode_ != mode) {
      for (uint32_t i = top_; edges_[i] != Edge::kNone; --i) {
        addresses_[i % kSize] = address(i);
        edges_[i] = Edge::kAddressOnly;
      }
      map_ = &map;
      space_ = space;
      mode_ = mode;
    }
    digested_ = 0;
    return edges_.data();
  }
  uint32_t newest() const { return top_; }
  void restore(uint32_t newest) { top_ = newest; }
  // Entries that fell out when `most` was the newest are none.
  void end_below(uint32_t most) {
    if (most >= kSize) edges_[most - kSize] = Edge::kNone;
  }
  // Sees that there are kAbove places above `newest`, which others may be written to already, and kSize that
  // may be read below all entries. Those move down by what it returns, a multiple of the size.
  uint32_t make_places(uint32_t& newest) {
    if (newest < kPlaces - kAbove) [[likely]]
      return 0;
    const uint32_t by = (newest / kSize - 2) * kSize;
    newest -= by;
    std::copy_n(&edges_[newest - kSize + by], kSize + 1, &edges_[newest - kSize]);
    return by;
  }

  // All of `above`, of which there were `most` at a time.
  void append(const RetStack& above, uint64_t most) {
    end_below(top_ + static_cast<uint32_t>(std::min<uint64_t>(most, kSize)));
    for (uint32_t i = above.below_oldest(); i < above.top_;) push(above.address(++i));
  }
  uint32_t size() const { return top_ - below_oldest(); }
  Addr address(uint32_t i) const {
    return edges_[i] == Edge::kAddressOnly ? addresses_[i % kSize] : map_->ip_of(run_of(edges_[i]));
  }

 private:
  static constexpr uint32_t kPlaces = kAbove + 3 * kSize;

  uint32_t below_oldest() const {
    uint32_t i = top_;
    while (edges_[i] != Edge::kNone) --i;
    return i;
  }

  std::array<Edge, kPlaces> edges_{};
  std::array<Addr, kSize> addresses_;            // of those that are kAddressOnly
  mutable std::array<uint64_t, kSize> digests_;  // of the entries up to and with this one,
  mutable uint32_t digested_ = 0;                // for indices up to this
  uint32_t top_ = 2 * kSize;                     // the newest entry
  const CodeMap* map_ = nullptr;                 // of the edges, which are all of
  Space space_ = kNoSpace;                       // this space
  uint8_t mode_ = 0;                             // and mode
};

// A return that goes elsewhere than its call says (livepatch, retpolines, an emulated CALL) is not
// compressed. Whether hardware takes the entry off its stack then is not said clearly: libipt keeps it, perf
// takes it off. Both stacks are kept from the first such return on, until a compressed return that would go
// to two places shows which is right (Flow::settle_return).
//
// Where the flow was not sure, calls may have been missed or taken for others. Entries from then on are sure;
// those below are doubtful, also when there are none: the hardware may have some.
class Returns {
 public:
  enum class Policy : uint8_t { kUnknown, kKeep, kTake };

  void push(Addr a) {
    kept_.push(a);
    if (split_) taken_.push(a);
    if (doubtful_) count_sure(1);
  }
  // All that is on the stack now is doubtful.
  void doubt() {
    doubtful_ = true;
    sure_ = 0;
  }
  bool next_is_sure() const { return !doubtful_ || sure_ != 0; }
  // For the fast walk: the stack to work on. While both are kept, or entries are doubtful, it is `recent`,
  // empty: what was there before is for the careful walk.
  RetStack& open(RetStack& recent) {
    if (!hides()) return kept_;
    recent.clear();
    return recent;
  }
  bool hides() const { return split_ || doubtful_; }
  // It is over; `most` entries more than at first were on the stack at a time.
  void close(const RetStack& recent, uint64_t most) {
    if (!hides()) return;
    kept_.append(recent, most);
    if (split_) taken_.append(recent, most);
    if (doubtful_) count_sure(recent.size());
  }
  // A compressed return. Only while both stacks give the same.
  bool pop(Addr& a) {
    sure_ -= sure_ != 0 ? 1 : 0;
    if (split_) taken_.pop(a);
    return kept_.pop(a);
  }
  // A return with a target of its own ran.
  void uncompressed() {
    Addr a = 0;
    if (policy_ == Policy::kKeep) return;
    sure_ = policy_ == Policy::kTake && sure_ != 0 ? sure_ - 1 : 0;  // it takes off one, or may
    if (policy_ == Policy::kUnknown && !split_) {
      if (!kept_.top(a)) return;
      taken_ = kept_;
      split_ = true;
    }
    (split_ ? taken_ : kept_).pop(a);
  }
  bool split() const { return split_; }
  // What is known of returns with a TIP; never anything while split().
  Policy policy() const { return policy_; }
  bool top_if_kept(Addr& a) const { return kept_.top(a); }
  bool top_if_taken(Addr& a) const { return taken_.top(a); }
  void settle(Policy p) {
    if (split_ && p == Policy::kTake) kept_ = taken_;
    split_ = false;
    policy_ = p;
  }
  // Goes on with one of both stacks, which says nothing of the hardware.
  void follow(Policy p) {
    settle(p);
    policy_ = Policy::kUnknown;
    doubt();
  }
  void clear() {
    kept_.clear();
    split_ = doubtful_ = false;
  }
  uint64_t digest() const { return split_ ? walk::mix(kept_.digest(), taken_.digest()) : kept_.digest(); }
  // What decides beside the entries what a return does, and what it proves.
  uint64_t rules() const {
    return static_cast<uint64_t>(policy_) << 2U | (split_ ? 2U : 0U) | (doubtful_ ? 1U : 0U) |
           uint64_t{doubtful_ ? sure_ : 0} << 4U;
  }

 private:
  void count_sure(uint32_t n) {
    sure_ += n;
    if (sure_ >= RetStack::kSize) doubtful_ = false;  // the others have fallen out
  }

  RetStack kept_;   // the only one unless split_
  RetStack taken_;  // with split_
  bool split_ = false;
  bool doubtful_ = false;
  uint32_t sure_ = 0;  // with doubtful_: entries on top that are not
  Policy policy_ = Policy::kUnknown;
};

// What the packets say next, once all TNT bits are used: one thing that needs the flow to be at a certain
// place.
struct PendingPacket {
  enum class Kind : uint8_t {
    kNone,     // fetch the next packet
    kTip,      // the next branch that needs a target goes to `ip`
    kGuest,    // the next VM entry is done: packets from here on are a guest's
    kPgd,      // tracing stops at `ip`, or at the next branch that needs trace
    kPge,      // tracing starts at `ip`
    kAsync,    // at `at`: interrupt or exception to `ip`, or (to_pgd) tracing stops
    kReach,    // at `at`: something without effect on the flow
    kPtwrite,  // at the next PTWRITE instruction
    kOverflow,
    kEnd,       // next sync point: the flow must arrive at `ip` if has_ip, tracing is off if not
    kEos,       // the stretch ends here, in the middle of everything
    kTimeBack,  // what follows was written before: trace was overwritten
    kBad,       // not a packet
  };
  Kind kind = Kind::kNone;
  bool has_ip = false;
  bool to_pgd = false;
  bool tsx_abort = false;
  bool async_event = false;  // a CFE that has the FUP of its interrupt
  bool half = false;         // kReach: an asynchronous event whose TIP or TIP.PGD is missing
  uint8_t mode = 0;          // MODE.Exec that takes effect with this: 16, 32, 64; 0: none
  bool interrupts = false;   // with it: RFLAGS.IF
  uint8_t event_count = 0;
  Addr at = 0;
  Addr ip = 0;
  uint64_t offset = 0;  // in the segment's bytes, of the packet that opened it

  // Binds to an address that the flow must reach without using trace.
  bool binds() const {
    return kind == Kind::kAsync || kind == Kind::kReach || (kind == Kind::kEnd && has_ip);
  }
  Addr bound_ip() const { return kind == Kind::kEnd ? ip : at; }
};
struct Pending : PendingPacket {
  std::array<Event, 4>
      events{};  // of these `event_count` happen when the flow is at `at` (kPtwrite: the instruction)
  // Events without a count are not met, so they stay: this is done for every packet.
  void clear() { static_cast<PendingPacket&>(*this) = {}; }
};

struct State {
  const uint8_t* p = nullptr;  // next packet
  uint64_t tnt = 0;            // bits left, oldest at bit tnt_count - 1
  uint32_t tnt_count = 0;
  uint8_t mode = 64;
  uint8_t block_bytes = 0;  // see read_packet
  bool enabled = false;     // PacketEn
  bool lost = false;        // enabled, but where is not known
  bool transaction = false;
  std::optional<bool> interrupts;  // RFLAGS.IF; nothing: not known, or not traced
  bool maybe_guest = false;        // packets were lost that may have announced a VM entry or exit
  Addr ip = 0;
  Addr last_ip = 0;
  Node* node = nullptr;       // at ip, when known already
  Variant* forced = nullptr;  // a hypothesis: what to take at ip
  Space user_space = kNoSpace;
  bool in_user = false;  // the last block was user_space's
  // The last block's, if the flow came here straight or by a direct branch: what runs is not freed meanwhile,
  // so of several lifetimes of this memory it is in the same one.
  OriginRef life = kNoOrigin;
  bool space_unsure = false;  // user_space is the likeliest of several
  // Since the last packet with an address the flow may have gone another way: over text that may have changed
  // unseen, by a choice that is not proved, or by a return whose call is doubtful.
  bool unsure = false;
  uint64_t path = 0;  // of a hypothesis: the addresses that ran, as a number
  Pending pending;
  Clock clock;
  // Nothing executed now ran before `lo`: the floor at the last packet whose content is used up. `floor` is
  // the one at the packet in use.
  Time lo = kTimeMin;
  Time floor = kTimeMin;
  bool clock_moved = false;  // since `floor` was taken
  Time now = kTimeMin;       // for display: the clock at the packet in use
  uint64_t decisions = 0;    // TNT bits, TIPs, events used so far
  uint64_t started = 0;      // of them, when tracing started last
  uint32_t idle_blocks = 0;  // blocks since the last one
  bool calls_missing =
      false;  // a gap since the sync point: the hardware's return stack may hold more than `rets`
  Returns rets;
  Visits visits;  // to the kernel's own patching code
};

}  // namespace asof::x86
