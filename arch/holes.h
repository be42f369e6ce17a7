// Where no text has ever been known: what a lost flow asks of every address that the trace gives it.
#pragma once
#include "textstore/text_store.h"

namespace asof {

// Not thread-safe: it remembers the last hole.
class Holes {
 public:
  explicit Holes(const TextStore& text) : text_(text) {}

  // Nothing has ever been known to be at `ip`.
  bool contain(Space space, Addr ip) {
    if (space_ == space && range_.contains(ip)) return true;
    const Cell cell = text_.cell(space, ip);
    if (!cell.versions.empty()) return false;
    range_ = cell.range;
    space_ = space;
    return true;
  }

 private:
  const TextStore& text_;
  AddrRange range_;
  Space space_ = kNoSpace;
};

}  // namespace asof
