// When kernel text changed, for the analysis of faults: which change was nearest to an instant, and of which
// mechanism.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/model/capture.h"
#include "decoder/model/text_mechanism.h"
#include "decoder/sideband/sideband.h"

namespace asof {

class LiveEvents {
 public:
  static constexpr Time kNear = 1'000'000;             // ns: further away is not near
  static constexpr size_t kClasses = kMechanisms + 1;  // the last one: nothing near
  static constexpr size_t kNothingNear = kClasses - 1;

  // `side`: of the same capture; empty where it has no records.
  LiveEvents(const Capture& capture, const SideBand& side);

  // The mechanism of the event nearest to `t`, or kNothingNear. `cursor` makes calls with mostly increasing
  // times cheap; start with 0.
  size_t classify(Time t, size_t& cursor) const;
  // "2.1 us after poke #17 (jump_label, nop to jump) at ffffffff81a3c0f4 (__schedule+0x114)"; empty when
  // nothing is near.
  std::string describe(Time t) const;
  static std::string_view class_name(size_t index);
  bool empty() const { return events_.empty(); }

 private:
  enum class What : uint8_t { kPoke, kLoad, kUnload };
  struct Event {
    Time time = kTimeMin;
    Addr addr = 0;
    uint32_t poke = 0;
    What what = What::kPoke;
    Mechanism mechanism = Mechanism::kUnknown;
  };
  size_t nearest(Time t, size_t from) const;

  const Capture& capture_;
  Recognizer recognizer_;
  std::vector<Event> events_;  // by time
};

}  // namespace asof
