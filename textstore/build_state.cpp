#include "textstore/build_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace asof {
namespace {

const char* plural_name(TextNotice::Kind kind) {
  switch (kind) {
    case TextNotice::Kind::kChainBreak:
      return "broken chains of changes";
    case TextNotice::Kind::kBaselineMismatch:
      return "sites where snapshot and first change disagree";
    case TextNotice::Kind::kDuplicatePoke:
      return "pokes recorded twice, dropped";
    case TextNotice::Kind::kTransientHealed:
      return "breakpoints of unfinished pokes in a snapshot, replaced";
    case TextNotice::Kind::kPokeOutsideText:
      return "poked sites in unknown text";
    case TextNotice::Kind::kReordered:
      return "pokes of one time put in the order their bytes demand";
    case TextNotice::Kind::kTooComplex:
      return "ranges with more overlapping facts than can be told apart";
  }
  std::unreachable();
}

}  // namespace

void NoticeLog::count(TextNotice::Kind kind, Addr addr, Time time) {
  Count& c = counted_[static_cast<size_t>(kind)];
  if (c.number++ == 0) c.addr = addr;
  c.from = std::min(c.from, time);
  c.until = std::max(c.until, time);
}

std::vector<TextNotice> NoticeLog::take() {
  for (size_t i = 0; i < kKinds; ++i) {
    const Count& c = counted_[i];
    if (c.number == 0) continue;
    const auto kind = static_cast<TextNotice::Kind>(i);
    const char* more = kept_[i].number != 0 ? " more" : "";
    notices_.push_back(
        {kind, c.addr, c.from, c.until, fmt::format("{}{} {}", c.number, more, plural_name(kind))});
  }
  return std::move(notices_);
}

}  // namespace asof
