// A capture made of fuzzed bytes: one CPU's trace over kernel text that may change while it runs.
#pragma once
#include <vector>

#include "decoder/model/capture.h"
#include "tests/fuzz/fuzz.h"

namespace asof {
struct PatchRules;
}

namespace asof::fuzz {

class FlowCapture {
 public:
  static constexpr Addr kText = 0xffffffff81000000;

  // Takes a byte of choices, changes of text and text off `in`; the rest is trace. `rules`: of the machine.
  FlowCapture(Input& in, const PatchRules& rules);

  bool changes() const { return changes_; }
  uint8_t choice() const { return choice_; }
  Capture& capture() { return capture_; }

 private:
  struct Change {
    uint64_t at = 0;
    Time time = 0;
    std::vector<uint8_t> bytes;
  };
  void build_text(const std::vector<Change>& changes, const PatchRules& rules);
  void add_trace(Bytes trace);

  uint8_t choice_ = 0;
  bool changes_ = false;
  std::vector<uint8_t> text_;
  Capture capture_;
};

}  // namespace asof::fuzz
