// Text that may have changed without anything in the recording that shows it (textstore: Layer::unsure,
// TextStore::unsure_from). Its bytes are followed, and what runs after it is certain from the next address
// in the trace on.
#include <algorithm>

#include "arch/x86/flow.h"
#include "arch/x86/segments.h"

namespace asof::x86 {

// Which runs are for a segment that begins with `s`.
void Flow::choose_code(const State& s) {
  const Time from = text_.unsure_from();
  unsure_ = walk::Unsure::kNever;
  if (from != kTimeMax && options_.text_at == TextAt::kAsof) {
    const bool known = s.clock.has_time() && tail_ < end_ && !overwritten_;
    // A clock of its own: a group of a guest has no time of the host.
    const Clock next(config_, reference_at(*stream_, segment_->end));
    const Time last = known ? read_sync_group({tail_, end_}, next, errata_).clock.ceiling() : kTimeMax;
    if (!s.clock.has_time() || saturating_add(s.floor, -options_.clock_error) >= from)
      unsure_ = walk::Unsure::kAlways;
    else if (saturating_add(last, options_.clock_error) >= from)
      unsure_ = walk::Unsure::kLater;
  }
  auto& cache = run_caches_[unsure_ == walk::Unsure::kAlways ? 1 : 0];
  runs_ = unsure_ == walk::Unsure::kLater || !cache ? nullptr : &*cache;
  if (runs_ == nullptr || runs_ == paths_of_) return;
  if (paths_of_ != nullptr) paths_ = PathCache();
  paths_of_ = runs_;
}

// May the bytes of `b`, as they are to run now, have changed without a record of it?
bool Flow::is_unsure(const State& s, const Block& b) {
  if (s.space_unsure && b.space != kKernelSpace) return true;  // it is of another process, perhaps
  if (b.unsure || unsure_ == walk::Unsure::kAlways) return options_.text_at == TextAt::kAsof;
  return unsure_ == walk::Unsure::kLater && bounds(s).hi >= text_.unsure_from();
}

// The same of bytes at the place of the flow that are no instruction, and so in no block.
bool Flow::may_have_changed(const State& s) {
  constexpr Addr kLongest = 15;  // bytes of an instruction
  if (options_.text_at != TextAt::kAsof) return false;
  if (unsure_ == walk::Unsure::kAlways || (s.in_user && s.space_unsure)) return true;
  const TimeBounds when = bounds(s);
  if (unsure_ == walk::Unsure::kLater && when.hi >= text_.unsure_from()) return true;
  const Space space = s.in_user ? s.user_space : kKernelSpace;
  for (Addr a = s.ip; a < s.ip + kLongest;) {
    const Cell cell = text_.cell(space, a);
    if (std::ranges::any_of(cell.possible_in(when), &Version::unsure)) return true;
    if (cell.range.end <= a) break;
    a = cell.range.end;
  }
  return false;
}

}  // namespace asof::x86
