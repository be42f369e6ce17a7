// One flow record as it is written: what a walk records in addition to the map of code (docs/formats.md).
#pragma once
#include "arch/arch.h"
#include "decoder/blocks/block_format.h"

namespace asof::blocks {

// Lowest first.
class BitList {
 public:
  void add(bool bit) {
    if (count_ % 8 == 0) bytes_.push_back(0);
    bytes_.back() |= static_cast<uint8_t>((bit ? 1U : 0U) << count_ % 8);
    ++count_;
  }
  // Appends the lowest `n` of `bits`, which has no others.
  void add_many(uint64_t bits, unsigned n);
  uint32_t count() const { return count_; }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
  uint32_t count_ = 0;
};

class FlowRecord {
 public:
  uint32_t steps = 0;
  // Steps since one was annotated or had a bit.
  uint32_t quiet = 0;
  // The edge by which the step before was left; no block: it was not left at its end, or there is none.
  Exit exit;
  Calls calls;

  void name_block(uint32_t block_number);
  void bit(bool taken) {
    bits_.add(taken);
    quiet = 0;
  }
  void bits(uint64_t bits, unsigned n) { bits_.add_many(bits, n); }
  // The steps from here on are of this time.
  void at(Time t);
  // Beside its block: what a reader does not assume.
  void attributes(const Step& step);
  void event(const Event& e);
  void gap(const Gap& g);

  std::vector<uint8_t> body(std::span<const uint8_t> prefix) const;

 private:
  struct List {
    Writer content;
    uint32_t count = 0, at = 0;
    // An entry at this step begins.
    Writer& entry(uint32_t step) {
      ++count;
      content.varint(step - at);
      at = step;
      return content;
    }
  };
  List blocks_, odd_, times_, events_, gaps_;
  std::vector<uint32_t> gaps_after_;  // Gap::after
  uint32_t last_block_ = 0;
  Time time_ = kTimeMin, event_time_ = 0;
  BitList bits_;
};

}  // namespace asof::blocks
