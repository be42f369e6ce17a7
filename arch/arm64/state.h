// The whole state of a flow through one segment: small and copyable, because hypotheses about changing text
// are followed on copies.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "arch/arch.h"
#include "arch/arm64/block_cache.h"
#include "arch/arm64/elements.h"
#include "arch/arm64/runs.h"
#include "arch/walk/signature.h"

namespace asof::arm64 {

// The decoder's side of the trace return stack (Arm IHI 0064, "Return stack"). An entry is popped when an
// indirect branch has no address in the trace; one that did not match stays. The fast walk keeps edges
// (runs.h) in it instead of addresses, in a ring with room enough that it may push as many as it is full
// without a look; what is below the oldest entry is kNone.
class RetStack {
 public:
  static constexpr uint32_t kSize =
      32;  // deeper than any: an entry that a trace unit has lost is not asked for
  static constexpr uint32_t kRing = 4 * kSize;

  void push(Addr a, uint8_t mode) {
    ++top_;
    edges_[top_ % kRing] = Edge::kAddressOnly;
    edges_[(top_ - kSize) % kRing] = Edge::kNone;
    entries_[top_ % kSize] = a | (mode == kT32 ? 1U : 0U);
  }
  bool pop(Addr& a, uint8_t& mode) {
    if (edges_[top_ % kRing] == Edge::kNone) return false;
    const Addr e = entry(top_);
    --top_;
    if (digested_ > top_) digested_ = top_;
    lower_marks();
    a = e & ~1ULL;
    if (mode != kA64) mode = (e & 1) != 0 ? kT32 : kA32;
    return true;
  }
  void clear() {
    edges_ = {};
    digested_ = 0;
    doubtful_ = before_gap_ = 0;
  }
  // The flow was not sure: calls made up to now may have been missed, or taken for others.
  void doubt() { doubtful_ = top_; }
  bool next_is_sure() const { return top_ > doubtful_; }
  bool is_sure(uint64_t i) const { return i > doubtful_; }
  // The flow is lost: any number of the entries may be taken off until it comes back, and others put on.
  void lose() { doubtful_ = before_gap_ = top_; }
  bool is_before_gap(uint64_t i) const { return i <= before_gap_; }
  // Of all entries: equal where two flows that have joined would return to the same places. Only hypotheses
  // ask, so it is worked out when they do.
  uint64_t digest() const {
    uint64_t bottom = top_;  // in front of the oldest
    while (edges_[bottom % kRing] != Edge::kNone) --bottom;
    for (digested_ = std::max(digested_, bottom); digested_ < top_; ++digested_) {
      const uint64_t below = digested_ == bottom ? 0 : digests_[digested_ % kSize];
      digests_[(digested_ + 1) % kSize] = walk::mix(below, entry(digested_ + 1));
    }
    return bottom == top_ ? 0 : digests_[top_ % kSize];
  }

  // What decides beside the entries what a return to one proves.
  uint64_t rules() const {
    const auto above = [this](uint64_t mark) { return mark == 0 ? 0 : 1 + top_ - mark; };
    return above(doubtful_) << 32U ^ above(before_gap_);
  }

  // For the fast walk in `map`'s code of this space: the ring, and its newest entry. Entries of other code
  // become addresses. So do the newest that are doubtful: the fast walk looks at those before it takes them.
  Edge* borrow(const CodeMap& map, Space space) {
    if (map_ != &map || space_ != space) {
      for (uint64_t i = top_; edges_[i % kRing] != Edge::kNone; --i) {
        entries_[i % kSize] = entry(i);
        edges_[i % kRing] = Edge::kAddressOnly;
      }
      map_ = &map;
      space_ = space;
    }
    for (const uint64_t mark : {doubtful_, before_gap_}) {
      if (mark == 0 || top_ - mark >= kSize || edges_[mark % kRing] == Edge::kNone) continue;
      entries_[mark % kSize] = entry(mark);
      edges_[mark % kRing] = Edge::kAddressOnly;
    }
    digested_ = 0;
    return edges_.data();
  }
  uint64_t newest() const { return top_; }
  void restore(uint64_t newest) {
    top_ = newest;
    lower_marks();
  }
  // Entry `i`: the address; bit 0 says T32.
  Addr entry(uint64_t i) const {
    const Edge edge = edges_[i % kRing];
    return edge == Edge::kAddressOnly ? entries_[i % kSize] : map_->run(run_of(edge)).ip;
  }

 private:
  void lower_marks() {
    doubtful_ = std::min(doubtful_, top_);
    before_gap_ = std::min(before_gap_, top_);
  }

  std::array<Edge, kRing> edges_{};
  std::array<Addr, kSize> entries_;              // of those that are kAddressOnly
  mutable std::array<uint64_t, kSize> digests_;  // of the entries up to and with this one,
  mutable uint64_t digested_ = 0;                // for indices up to this
  uint64_t top_ = kRing;                         // the newest entry
  uint64_t doubtful_ = 0;                        // entries up to this one are
  uint64_t before_gap_ = 0;                      // and those up to this one were made in front of a gap
  const CodeMap* map_ = nullptr;                 // of the edges, which are all of
  Space space_ = kNoSpace;                       // this space
};

// Where the flow is.
enum class Position : uint8_t {
  kKnown,    // at State::ip
  kTarget,   // an indirect branch was taken: an address follows, or the return stack has it
  kVector,   // an exception was taken: an address follows
  kOff,      // not traced
  kWaiting,  // the segment's first address is still to come
  kLost,     // a gap is open
};

struct State {
  size_t e = 0;        // next element
  uint32_t atoms = 0;  // left, oldest at bit 0
  uint8_t atom_count = 0;
  uint8_t mode = kA64;
  bool sf = true;  // AArch64 state by the last context
  bool transaction = false;
  bool fresh = false;  // at an address that the trace gave, and nothing ran since
  Position position = Position::kWaiting;
  Addr ip = 0;
  Node* node = nullptr;       // at ip, when known already
  Variant* branch = nullptr;  // kTarget: the block that ended in the branch, if known
  Variant* forced = nullptr;  // a hypothesis: what to take at ip
  Space user_space = kNoSpace;
  bool in_user = false;        // the last block was user_space's
  bool assumed = false;        // `floor` was raised by what a hypothesis says
  bool clockless = false;      // timestamps of this segment have no time
  bool calls_missing = false;  // the trace unit's return stack may hold more than `rets`
  // Since the last address in the trace the flow may have gone another way: over text that may have changed
  // unseen, by a choice that is not proved, or by a return whose call is doubtful.
  bool unsure = false;
  bool space_unsure = false;  // user_space is the likeliest of several
  uint64_t path = 0;          // of a hypothesis: the addresses that ran and the atoms they took, as a number
  // Nothing executed now ran before `lo`: the last timestamp before the element before the one in use.
  // `floor` is the last one passed.
  Time lo = kTimeMin;
  Time floor = kTimeMin;
  // The last context synchronisation event was not before this: text that was replaced later may still run.
  // kTimeMin: there was none in this segment (Flow::synced_before()).
  Time synced = kTimeMin;
  // Anchors (anchors.cpp): what visits to the kernel's own patching code say of time, on perf's clock without
  // error.
  Time anchor_lo = kTimeMin, anchor_hi = kTimeMax;
  Addr patch_return = 0;          // inside such a visit: where it goes back to
  uint32_t patch_visits = 0;      // that came back, since the segment's start
  bool patch_uncounted = false;   // visits are not counted any more
  uint32_t times_seen = 0;        // timestamps passed
  Addr trap = 0;                  // of the last debug exception: a kprobe whose slot may run next
  uint64_t context = UINT64_MAX;  // Element::value of the last context
  uint64_t decisions = 0;         // atoms, addresses and exceptions used so far
  uint32_t idle_blocks = 0;       // blocks since the last one
  RetStack rets;
};

}  // namespace asof::arm64
