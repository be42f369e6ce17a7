// Comparer: finds the match again after a gap or a difference. What lies between two gaps (an island) is one
// stretch of execution, so it lies in the truth without a hole, and islands lie there in their order. Of the
// positions that leave room for the islands before and after, the one nearest to the decoder's time is taken.
// An island that fits nowhere as a whole is placed where most of its beginning fits; the rest of it is wrong.
#include <algorithm>
#include <ranges>
#include <utility>

#include "tools/validate/compare.h"

namespace asof {
namespace {

constexpr size_t kMostIslands = 16;                   // considered together
constexpr size_t kMostHeld = size_t{1} << 20U;        // pieces held until only one position is left
constexpr size_t kDifferenceRuns = 8192;              // truth runs searched after a difference without a gap
constexpr size_t kTimelessRuns = 65536;               // ... after a gap, when times do not bound the search
constexpr size_t kGapRuns = size_t{4} * 1024 * 1024;  // ... after a gap, when they do
constexpr Time kLateStamp = 10'000'000;               // ns that a time may be off; only bounds the search
constexpr Time kUsualDelay = 200'000;                 // ns that it is off where packets are rare
constexpr uint32_t kEnough = 32;                      // instructions that must agree after a difference

}  // namespace

// The island, when its first instruction is in this run, not before `from`. No instruction of it need be
// left over for Fit: `pieces` may be 0.
std::optional<Comparer::Fit> Comparer::fit(const Island& island, const Position& from, size_t run_index) {
  const TruthRun* r = run(run_index);
  if (r == nullptr) return std::nullopt;
  const bool same_run = run_index == from.run;
  const uint64_t offset = piece(island.begin).ip - r->ip;
  if (offset >= r->bytes || (same_run && offset < from.run_bytes)) return std::nullopt;
  Fit f;
  f.begin = {island.begin, 0, 0, run_index, static_cast<uint32_t>(offset), 0, offset != 0};
  if (same_run) {
    f.begin.run_count = from.run_count;
    f.begin.midway = from.midway || offset != from.run_bytes;
  }
  Position at = f.begin;
  while (at.piece < island.end) {
    const Position before = at;
    const Stretch s = step(at);
    if (s.outcome != Outcome::kSame || !s.run_agrees) {
      at = before;
      break;
    }
  }
  f.end = at;
  f.pieces = at.piece - island.begin;
  f.more = at.piece < island.end ? at.piece_bytes : 0;
  f.whole = at.piece == island.end;
  return f;
}

// The runs from at_ on, up to `until` or the end of the island's time, that hold its first address. What was found is
// kept: the islands after a gap are those after the one before it, but for one.
const std::vector<size_t>& Comparer::runs_with(const Island& island, size_t until) {
  Places& places = places_[island.begin];
  places.scanned = std::max(places.scanned, at_.run);
  const Addr ip = piece(island.begin).ip;
  const Time last = window(island.begin).hi;
  for (; places.scanned <= until; ++places.scanned) {
    const TruthRun* const r = run(places.scanned);
    if (r == nullptr || (ordered_ && r->time > last)) break;
    if (ip - r->ip < r->bytes) places.runs.push_back(places.scanned);
  }
  return places.runs;
}

// Visits those of them from `from` on, where times never go back; else all runs. Up to the first for which it returns
// false.
template <class Visit>
void Comparer::each_place(const Island& island, size_t from, size_t until, const Visit& visit) {
  const std::vector<size_t>& runs = runs_with(island, until);
  if (ordered_) {
    for (auto i = std::ranges::lower_bound(runs, from); i != runs.end() && *i <= until; ++i)
      if (!visit(*i)) return;
    return;
  }
  for (size_t i = from; i <= until; ++i)
    if (!visit(i)) return;
}

// The first position where all of the island fits, between `from` and `until`. Its time can be late, but not
// early: so it ran before its window ends.
std::optional<Comparer::Fit> Comparer::first_fit(const Island& island, const Position& from,
                                                 const Position& until) {
  const Time last = window(island.begin).hi;
  std::optional<Fit> found;
  each_place(island, from.run, until.run, [&](size_t i) {
    const TruthRun* r = run(i);
    if (r == nullptr || r->time > last) return false;
    const auto f = fit(island, from, i);
    if (!f || !f->whole) return true;
    if (f->end.run < until.run || (f->end.run == until.run && f->end.run_bytes <= until.run_bytes)) found = f;
    return false;
  });
  return found;
}

std::optional<Comparer::Fit> Comparer::last_fit(const Island& island, const Position& from,
                                                const Position& until) {
  const Time last = window(island.begin).hi;
  std::vector<size_t> places;
  each_place(island, from.run, until.run, [&](size_t i) {
    places.push_back(i);
    return true;
  });
  for (const size_t i : std::views::reverse(places)) {
    const TruthRun* r = run(i);
    if (r == nullptr || r->time > last) continue;
    const auto f = fit(island, from, i);
    if (f && f->whole &&
        (f->end.run < until.run || (f->end.run == until.run && f->end.run_bytes <= until.run_bytes)))
      return f;
  }
  return std::nullopt;
}

// For an island that does not fit as a whole, or is too long to be held: a position where all that is held
// fits; else where most of its beginning does, near its time before anywhere else, because a part of it is
// soon found in many positions. The first of equals.
std::optional<Comparer::Fit> Comparer::best_fit(const Island& island, const Position& from,
                                                const Position& until) {
  const TimeBounds w = window(island.begin);
  const TimeBounds about{w.lo == kTimeMin ? w.lo : saturating_add(w.lo, -kUsualDelay), w.hi};
  const auto level = [&](size_t i) { return run_within(i, w) ? 0 : run_within(i, about) ? 1 : 2; };
  const auto length = [](const Fit& f) { return std::pair(f.pieces, f.more); };
  std::optional<Fit> best;
  for (int wanted = 0; wanted <= 2; ++wanted) {
    const bool enough = best.has_value();
    bool whole = false;
    each_place(island, from.run, until.run, [&](size_t i) {
      const TruthRun* r = run(i);
      if (r == nullptr || r->time > about.hi) return false;
      if (level(i) != wanted) return true;
      const auto f = fit(island, from, i);
      if (!f || length(*f) == std::pair(size_t{0}, uint32_t{0})) return true;
      if (whole) {
        best->alone = !f->whole;
        return best->alone;
      }
      whole = f->whole;
      if (whole || (!enough && (!best || length(*f) > length(*best)))) best = f;
      return !whole || !island.ended;
    });
    if (whole) break;
  }
  return best;
}

// Of the positions from the island's first to its last possible one: the first that is not long before its
// time.
Comparer::Position Comparer::nearest_in_time(const Island& island) {
  const Time lo = window(island.begin).lo;
  if (lo == kTimeMin) return island.earliest;
  Position nearest = island.earliest;
  each_place(island, island.earliest.run, island.latest.run, [&](size_t i) {
    const TruthRun* after = run(i + 1);
    if (after != nullptr && after->time < saturating_add(lo, -kUsualDelay)) return true;
    const auto f = fit(island, island.earliest, i);
    if (!f || !f->whole) return true;
    nearest = f->begin;
    return false;
  });
  return nearest;
}

// From the current piece on, up to the first that does not end before a gap.
std::vector<Comparer::Island> Comparer::islands_in_hand() {
  std::vector<Island> islands;
  for (size_t begin = at_.piece; begin < piece_end() && islands.size() < kMostIslands;) {
    Island island{.begin = begin, .end = begin + 1};
    while (island.end < piece_end() && piece(island.end).gap == 0) ++island.end;
    island.ended = island.end < piece_end() || pieces_ended_;
    begin = island.end;
    islands.push_back(island);
    if (!island.ended) break;
  }
  return islands;
}

// How far the truth is searched: up to the last time that the islands have. The position after that.
Comparer::Position Comparer::search_end(const std::vector<Island>& islands) {
  Time last = kTimeMin;
  bool timed = false;
  for (const Island& island : islands) {
    last = std::max(last,
                    window(island.ended && &island != &islands.front() ? island.end - 1 : island.begin).hi);
    timed = timed || piece(island.begin).time != kTimeMin;
  }
  // Of the last piece of all, no later time ends the window; it has a time all the same.
  const size_t most = timed ? kGapRuns : kTimelessRuns;
  const Time until = saturating_add(last, kLateStamp);
  Position end = at_;
  // Where times never go back, the runs that are held need not be looked at one by one for each gap.
  const size_t held = std::min(run_base_ + runs_.size(), at_.run + most);
  if (ordered_ && held > at_.run + 1) {
    const auto first = runs_.begin() + static_cast<std::ptrdiff_t>(at_.run + 1 - run_base_);
    const auto past = runs_.begin() + static_cast<std::ptrdiff_t>(held - run_base_);
    end.run = run_base_ +
              static_cast<size_t>(
                  std::upper_bound(first, past, until, [](Time t, const TruthRun& r) { return t < r.time; }) -
                  runs_.begin());
  }
  // Code without bytes, which no decoder can have, may run in a loop for millions of runs: they do not count.
  for (size_t past = at_.run + most, counted = at_.run;; ++end.run) {
    if (end.run >= past) {
      for (; counted < end.run; ++counted) past += is_late(counted) ? 1 : 0;
      if (end.run >= past) break;
    }
    const TruthRun* r = run(end.run);
    if (r == nullptr || (r->time > until && end.run > at_.run)) break;
  }
  end.run_bytes = 0;
  return end;
}

// Places each island at the first position after the one before it, except the one that is left out. Returns
// how many pieces were placed.
uint64_t Comparer::place_in_order(std::vector<Island>& islands, const Position& until, size_t left_out) {
  uint64_t placed = 0;
  Position from = at_;
  for (size_t k = 0; k < islands.size(); ++k) {
    Island& island = islands[k];
    const auto f = k == left_out ? std::nullopt : first_fit(island, from, until);
    island.placed = f.has_value();
    if (!f) continue;
    island.earliest = f->begin;
    island.earliest_end = f->end;
    from = f->end;
    placed += island.end - island.begin;
  }
  return placed;
}

// One wrong island can take a position so far ahead that those after it find none: then it is the one to
// leave out.
void Comparer::place_islands(std::vector<Island>& islands, const Position& until) {
  uint64_t all = 0;
  for (const Island& island : islands) all += island.end - island.begin;
  size_t best_left_out = SIZE_MAX;
  uint64_t best = place_in_order(islands, until, SIZE_MAX);
  if (best != all) {
    const auto lost = std::ranges::find_if(islands, [](const Island& i) { return !i.placed; });
    for (size_t k = 0; k < static_cast<size_t>(lost - islands.begin()); ++k) {
      const uint64_t placed = place_in_order(islands, until, k);
      if (placed > best) best = placed, best_left_out = k;
    }
    place_in_order(islands, until, best_left_out);
  }
  Position end = until;
  for (size_t k = islands.size(); k-- > 0;) {
    Island& island = islands[k];
    if (!island.placed) continue;
    const auto f = last_fit(island, island.earliest, end);
    island.latest = f ? f->begin : island.earliest;
    end = island.latest;
  }
}

Comparer::Search Comparer::find_after_gap(Resume& found) {
  places_.erase(places_.begin(), places_.lower_bound(at_.piece));
  std::vector<Island> islands = islands_in_hand();
  Position until = search_end(islands);
  const auto begin_at = [&](const Position& p) {
    found = {0, p.run, p.run_bytes, 0, 0};
    return Search::kFound;
  };
  // The one that is too long to be held as a whole is placed first, by its time: nothing else is as certain. In a loop of
  // thousands of rounds it may begin in any: how the loop is left decides.
  if (!islands.back().ended) {
    const auto f = best_fit(islands.back(), at_, until);
    if (f && !f->alone && piece_end() - at_.piece < kMostHeld) return Search::kUndecided;
    if (islands.size() == 1) return f ? begin_at(f->begin) : Search::kNothing;
    if (f) until = f->begin;
    islands.pop_back();
  }
  place_islands(islands, until);
  if (islands.front().placed) return begin_at(nearest_in_time(islands.front()));
  const auto next = std::ranges::find_if(islands, [](const Island& i) { return i.placed; });
  const auto f = best_fit(islands.front(), at_, next == islands.end() ? until : next->latest);
  return f ? begin_at(f->begin) : Search::kNothing;
}

// Whether the bytes of this run are nowhere in the capture.
bool Comparer::is_late(size_t index) {
  const TruthRun* r = index < run_base_ ? nullptr : run(index);
  return r != nullptr && (r->flags & TruthRun::kLateText) != 0;
}

// Or all that ran between code without bytes and other such code, which no decoder has right, however few these are.
bool Comparer::agrees_for_a_while(Position at) {
  const size_t first = at.piece;
  const bool after_late = at.run != 0 && is_late(at.run - 1) && !is_late(at.run);
  uint32_t agreed = 0;
  while (agreed < kEnough) {
    if (after_late && agreed != 0 && at.run_bytes == 0 && is_late(at.run)) return true;
    if (at.piece == piece_end() || (at.piece != first && at.piece_bytes == 0 && piece(at.piece).gap != 0))
      return false;
    const Stretch s = step(at);
    if (s.outcome != Outcome::kSame || !s.run_agrees) return false;
    agreed += s.count;
  }
  return true;
}

// Without a gap: the fewest instructions and runs to skip until both agree for a while.
bool Comparer::find_after_difference(Resume& found) {
  std::vector<std::pair<Addr, size_t>> starts;  // of runs; of the one that was begun, of its rest
  for (size_t i = at_.run; starts.size() < kDifferenceRuns; ++i) {
    const TruthRun* r = run(i);
    if (r == nullptr) break;
    starts.emplace_back(r->ip + (i == at_.run ? at_.run_bytes : 0), i);
  }
  std::sort(starts.begin(), starts.end());
  size_t best = SIZE_MAX, passed = 0;
  for (size_t j = at_.piece; j < piece_end() && passed < best && passed < kDifferenceRuns; ++j) {
    const DecodedPiece& p = piece(j);
    if (j != at_.piece && p.gap != 0) break;
    const Time last = window(j).hi;
    uint32_t bytes = j == at_.piece ? at_.piece_bytes : 0;
    for (uint32_t k = j == at_.piece ? at_.piece_count : 0; k < p.count; bytes += p.lengths[k++], ++passed) {
      auto it = std::lower_bound(starts.begin(), starts.end(), std::pair<Addr, size_t>(p.ip + bytes, 0));
      for (; it != starts.end() && it->first == p.ip + bytes; ++it) {
        const size_t cost = passed + (it->second - at_.run);
        if (cost >= best || run(it->second)->time > last) break;
        Position to{j, bytes, k, it->second, 0, 0, false};
        if (to.run == at_.run) {
          to.run_bytes = at_.run_bytes;
          to.run_count = at_.run_count;
          to.midway = at_.midway;
        }
        if (!agrees_for_a_while(to)) continue;
        best = cost;
        found = {j - at_.piece, to.run, to.run_bytes, bytes, k};
      }
    }
  }
  return best != SIZE_MAX;
}

}  // namespace asof
