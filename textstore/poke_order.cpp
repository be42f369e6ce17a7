#include "textstore/poke_order.h"

#include <algorithm>
#include <numeric>

namespace asof {
namespace {

// Up to this many pokes of one time every order is tried; longer ties are chained greedily.
constexpr size_t kMaxPermuted = 6;
// A poke contradicting the poke before it weighs more than one contradicting a snapshot.
constexpr unsigned kChainMismatch = 4;
constexpr unsigned kBaseMismatch = 1;
constexpr size_t kLookAhead = 2;

enum class Known : uint8_t { kNo, kBase, kChain };

// The assumed bytes of a site.
class State {
 public:
  explicit State(AddrRange site) : site_(site), bytes_(site.size()), known_(site.size()) {}

  void reset(const Lifetime& lifetime) {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      known_[i] = lifetime.is_known(i) ? Known::kBase : Known::kNo;
      if (lifetime.is_known(i)) bytes_[i] = lifetime.byte(i);
    }
  }

  unsigned mismatch(const PokeRecord& p) const {
    unsigned worst = 0;
    for_each(p, p.old_bytes(), [&](size_t i, uint8_t old) {
      if (known_[i] == Known::kNo || bytes_[i] == old) return;
      worst = std::max(worst, known_[i] == Known::kChain ? kChainMismatch : kBaseMismatch);
    });
    return worst;
  }

  void apply(const PokeRecord& p) {
    const auto set = [&](size_t i, uint8_t b) {
      bytes_[i] = b;
      known_[i] = Known::kChain;
    };
    for_each(p, p.new_len != 0 ? p.new_bytes() : p.old_bytes(), set);
  }

 private:
  template <class F>
  void for_each(const PokeRecord& p, std::span<const uint8_t> bytes, F&& f) const {
    const AddrRange r = site_.intersect(range_of(p.addr, bytes.size()));
    for (Addr a = r.begin; a < r.end; ++a) f(a - site_.begin, bytes[a - p.addr]);
  }

  AddrRange site_;
  std::vector<uint8_t> bytes_;
  std::vector<Known> known_;
};

class TieOrder {
 public:
  TieOrder(AddrRange site, std::span<const uint32_t> members, std::span<const Lifetime> lifetimes,
           TieContext& context)
      : site_(site), members_(members), lifetimes_(lifetimes), context_(context), state_(site) {}

  void run() {
    for (size_t i = 0; i < members_.size();) {
      size_t end = i + 1;
      while (end < members_.size() && poke(end).time == poke(i).time) ++end;
      enter_lifetime(poke(i).time);
      if (end - i > 1) order(i, end);
      for (; i < end; ++i) state_.apply(poke(i));
    }
  }

 private:
  PokeRecord& poke(size_t member) { return context_.pokes[members_[member]]; }

  void enter_lifetime(Time t) {
    bool moved = false;
    while (next_lifetime_ < lifetimes_.size() && lifetimes_[next_lifetime_].from <= t) {
      ++next_lifetime_;
      moved = true;
    }
    if (moved) state_.reset(lifetimes_[next_lifetime_ - 1]);
  }

  // Mismatches when group_ runs in the order of `slots`, then what follows it. Stops at `limit`.
  unsigned score(const std::vector<size_t>& slots, size_t end, unsigned limit) {
    State s = state_;
    unsigned sum = 0;
    for (size_t k = 0; k < slots.size() && sum < limit; ++k) {
      sum += s.mismatch(group_[slots[k]]);
      s.apply(group_[slots[k]]);
    }
    const bool same_lifetime = next_lifetime_ == lifetimes_.size();
    for (size_t k = end; k < std::min(end + kLookAhead, members_.size()) && sum < limit; ++k) {
      if (!same_lifetime && poke(k).time >= lifetimes_[next_lifetime_].from) break;
      sum += s.mismatch(poke(k));
      s.apply(poke(k));
    }
    return sum;
  }

  void order(size_t begin, size_t end) {
    std::vector<size_t> places;  // members that may be reordered
    group_.clear();
    for (size_t i = begin; i < end; ++i) {
      if (!site_.contains(poke_range(poke(i)))) return;
      places.push_back(i);
      group_.push_back(poke(i));
    }
    std::vector<size_t> slots(group_.size());
    std::iota(slots.begin(), slots.end(), 0);
    if (!context_.steps.take(cost())) return;
    if (score(slots, end, UINT32_MAX) == 0) return;
    const std::vector<size_t> best = group_.size() <= kMaxPermuted ? permuted(slots, end) : chained();
    bool moved = false;
    for (size_t k = 0; k < places.size(); ++k) {
      moved = moved || best[k] != k;
      poke(places[k]) = group_[best[k]];
    }
    if (moved) context_.log.count(TextNotice::Kind::kReordered, group_[0].addr, group_[0].time);
  }

  std::vector<size_t> permuted(std::vector<size_t> slots, size_t end) {
    std::vector<size_t> best = slots;
    unsigned least = score(slots, end, UINT32_MAX);
    while (least != 0 && std::ranges::next_permutation(slots).found) {
      if (!context_.steps.take(cost())) break;
      const unsigned s = score(slots, end, least);
      if (s < least) {
        least = s;
        best = slots;
      }
    }
    return best;
  }

  std::vector<size_t> chained() {
    std::vector<size_t> left(group_.size()), best;
    std::iota(left.begin(), left.end(), 0);
    State s = state_;
    while (!left.empty()) {
      if (!context_.steps.take(left.size())) {
        best.insert(best.end(), left.begin(), left.end());
        break;
      }
      const auto fits = [&](size_t slot) { return s.mismatch(group_[slot]) == 0; };
      auto take = std::ranges::find_if(left, fits);
      if (take == left.end()) take = left.begin();
      s.apply(group_[*take]);
      best.push_back(*take);
      left.erase(take);
    }
    return best;
  }

  // Of one score(): it copies the state.
  uint64_t cost() const { return group_.size() + site_.size() / 64; }

  AddrRange site_;
  std::span<const uint32_t> members_;
  std::span<const Lifetime> lifetimes_;
  TieContext& context_;
  State state_;
  size_t next_lifetime_ = 0;
  std::vector<PokeRecord> group_;
};

}  // namespace

void order_ties(AddrRange site, std::span<const uint32_t> members, std::span<const Lifetime> lifetimes,
                TieContext& context) {
  bool any = false;
  for (size_t i = 1; i < members.size() && !any; ++i) {
    any = context.pokes[members[i]].time == context.pokes[members[i - 1]].time;
  }
  if (any) TieOrder(site, members, lifetimes, context).run();
}

}  // namespace asof
