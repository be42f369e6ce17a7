// What every step of a build shares: limits against made-up input, and the log of notices.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "textstore/facts.h"

namespace asof {

// Work that a small file could inflate without bound, counted down over one build. Real recordings stay far
// below; where a budget is spent, the text concerned is reported as unknown and a notice says so.
class Budget {
 public:
  explicit Budget(uint64_t limit) : left_(limit) {}
  bool take(uint64_t amount) {
    if (amount > left_) return false;
    left_ -= amount;
    return true;
  }

 private:
  uint64_t left_;
};

struct BuildLimits {
  // Budgets for work that grows with the number of facts in real recordings grow with it, plus a fixed
  // amount.
  void allow_for(uint64_t layers, uint64_t pokes) {
    overlaps = Budget((uint64_t{1} << 22) + 64 * layers + 16 * pokes);
    poke_overlaps = Budget((uint64_t{1} << 22) + 16 * pokes);
    copied_bytes = Budget((uint64_t{1} << 28) + 16 * pokes);
  }

  Budget overlaps{0};                        // (piece of address space, layer) pairs
  Budget poke_overlaps{0};                   // (site, poke) pairs
  Budget copied_bytes{0};                    // version bytes that no poke record holds as they are
  Budget inherited{uint64_t{1} << 23};       // layers that children of fork hold in lists of their own
  Budget fork_steps{uint64_t{1} << 30};      // layers examined for forks
  Budget compared_bytes{uint64_t{1} << 33};  // layers against each other
  Budget tie_steps{uint64_t{1} << 25};       // orders tried for pokes of one time
  Budget place_steps{uint64_t{1} << 28};     // layers and pokes examined for patched sites
  Budget roll_steps{uint64_t{1} << 25};      // pokes undone or redone on a layer outside its lifetime
};

// If more versions than this are possible at one instant, the bytes count as unknown.
inline constexpr size_t kMaxCandidates = 16;

class NoticeLog {
 public:
  // `text` is only made when the notice is kept: after kMaxPerKind of a kind the rest is counted.
  template <class MakeText>
  void add(TextNotice::Kind kind, Addr addr, Time from, Time until, MakeText&& text) {
    if (keep(kind)) {
      notices_.push_back({kind, addr, from, until, text()});
    } else {
      count(kind, addr, from);
    }
  }
  // For what is only counted; `addr` is that of the first one.
  void count(TextNotice::Kind kind, Addr addr, Time time);
  std::vector<TextNotice> take();

 private:
  static constexpr size_t kMaxPerKind = 1000;
  static constexpr size_t kKinds = 8;
  struct Count {
    uint64_t number = 0;
    Addr addr = 0;
    Time from = kTimeMax, until = kTimeMin;
  };
  bool keep(TextNotice::Kind kind) {
    Count& kept = kept_[static_cast<size_t>(kind)];
    if (kept.number == kMaxPerKind) return false;
    ++kept.number;
    return true;
  }

  std::vector<TextNotice> notices_;
  std::array<Count, kKinds> kept_{}, counted_{};
};

}  // namespace asof
