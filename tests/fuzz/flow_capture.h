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

  // Of an Intel PT, of an ETMv4 or ETE. They take a byte of choices, changes of text and text off `in`; the rest is trace.
  static FlowCapture of_pt(Input& in);
  static FlowCapture of_etm(Input& in);

  bool has_changes() const { return has_changes_; }
  // A choice that is left for the target.
  bool wants_threads() const { return (choice_ & 32U) != 0; }
  Capture& capture() { return capture_; }

 private:
  struct Change {
    uint64_t at = 0;
    Time time = 0;
    std::vector<uint8_t> bytes;
  };
  FlowCapture(Input& in, const PatchRules& rules);
  void build_text(const std::vector<Change>& changes, const PatchRules& rules);
  void add_trace(Bytes trace);

  uint8_t choice_ = 0;
  bool has_changes_ = false;
  std::vector<uint8_t> text_;
  Capture capture_;
};

}  // namespace asof::fuzz
