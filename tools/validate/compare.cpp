#include "tools/validate/compare.h"

#include <algorithm>
#include <numeric>

namespace asof {

const TruthRun* Comparer::run(size_t index) {
  while (!truth_ended_ && index >= run_base_ + runs_.size()) {
    TruthRun next;
    if (source_(next)) {
      ordered_ = ordered_ && next.time >= last_time_;
      last_time_ = next.time;
      runs_.push_back(next);
    } else {
      truth_ended_ = true;
    }
  }
  return index < run_base_ + runs_.size() ? &runs_[index - run_base_] : nullptr;
}

void Comparer::add_gap(std::string cause, std::string text) {
  if (open_gap_ != 0) return;  // the first one is the cause
  gaps_.push_back({std::move(cause), std::move(text)});
  open_gap_ = static_cast<uint32_t>(gaps_.size());
}

void Comparer::add(DecodedPiece piece) {
  if (piece.count == 0 || piece.bytes == 0) return;
  piece.gap = open_gap_;
  open_gap_ = 0;
  pieces_.push_back(piece);
  if (pieces_.size() >= wanted_) process(false);
}

void Comparer::finish() {
  pieces_ended_ = true;
  process(true);
  settle_pending(true);
  const bool gap = open_gap_ != 0;
  bool late = false;
  uint64_t before = result_.missing + result_.late;
  const Addr first = run(at_.run) == nullptr ? 0 : run(at_.run)->ip + at_.run_bytes;
  const Time time = run(at_.run) == nullptr ? kTimeMin : run(at_.run)->time;
  for (const TruthRun* r = run(at_.run); r != nullptr; r = run(++at_.run)) {
    late = late || (r->flags & TruthRun::kLateText) != 0;
    miss(r->count - std::min(r->count, at_.run_count), late, gap ? gaps_[open_gap_ - 1].code : "end of trace",
         r->time);
    at_.run_count = 0;
    runs_.erase(runs_.begin(), runs_.begin() + static_cast<long>(at_.run + 1 - run_base_));
    run_base_ = at_.run + 1;
  }
  before = result_.missing + result_.late - before;
  if (before != 0) {
    note({late ? Difference::Kind::kLate : Difference::Kind::kMissing, 0, first, time, before,
          gap ? gaps_[open_gap_ - 1].text : "end of trace"});
  }
}

// Walks to the end of the piece or of the run, whichever comes first.
Comparer::Stretch Comparer::step(Position& at) {
  const DecodedPiece& a = piece(at.piece);
  const TruthRun* r = run(at.run);
  Stretch s;
  if (r == nullptr) {
    s.outcome = Outcome::kNoTruth;
    return s;
  }
  if (a.ip + at.piece_bytes != r->ip + at.run_bytes) return s;
  uint32_t bytes = a.bytes - at.piece_bytes;
  const uint32_t run_bytes = r->bytes - at.run_bytes;
  s.count = a.count - at.piece_count;
  if (bytes > run_bytes) {
    bytes = 0;
    s.count = 0;
    while (bytes < run_bytes) bytes += a.lengths[at.piece_count + s.count++];
    if (bytes != run_bytes) {
      s.count = 0;
      s.across = true;
      return s;
    }
  }
  s.outcome = Outcome::kSame;
  at.piece_bytes += bytes;
  at.piece_count += s.count;
  at.run_bytes += bytes;
  at.run_count += s.count;
  if (at.piece_count == a.count) {
    ++at.piece;
    at.piece_bytes = at.piece_count = 0;
  }
  if (at.run_bytes == r->bytes) {
    s.run_done = true;
    s.run_agrees = at.midway ? at.run_count <= r->count : at.run_count == r->count;
    ++at.run;
    at.run_bytes = at.run_count = 0;
    at.midway = false;
  }
  return s;
}

// About when a piece ran: from its own time to the next later time that was seen.
TimeBounds Comparer::window(size_t index) const {
  TimeBounds w{piece(index).time, kTimeMax};
  for (size_t i = index; i < piece_end() && w.lo != kTimeMin; ++i) {
    if (piece(i).time <= w.lo) continue;
    w.hi = piece(i).time;
    break;
  }
  return widen(w, slack_);
}

// A run lasts from its own time to that of the next one.
bool Comparer::run_within(size_t index, TimeBounds w) {
  const TruthRun* r = run(index);
  const TruthRun* after = run(index + 1);
  return r != nullptr && r->time <= w.hi && (after == nullptr || after->time >= w.lo);
}

// False: which of several positions it is shows later only.
bool Comparer::resume_after_gap() {
  const GapNote& cause = gaps_[piece(at_.piece).gap - 1];
  Resume found;
  const Search search = find_after_gap(found);
  if (search == Search::kUndecided) return false;
  gap_handled_ = at_.piece;
  if (search == Search::kFound) {
    skip(found, cause.code, cause.text);
  } else {
    resume(cause);
  }
  return true;
}

void Comparer::resume(const GapNote& cause) {
  Resume found;
  if (find_after_difference(found)) {
    skip(found, cause.code, cause.text);
    return;
  }
  // No match: everything up to the next gap is wrong, and the truth stays where it is.
  size_t end = at_.piece + 1;
  while (end < piece_end() && piece(end).gap == 0 && end - at_.piece < kLookAhead) ++end;
  skip({end - at_.piece, at_.run, at_.run_bytes, 0, 0}, cause.code, cause.text);
}

// Passes over pieces (wrong) and runs (missing), and ends at `to`.
void Comparer::skip(const Resume& to, const std::string& cause, const std::string& text) {
  Difference wrong{
      Difference::Kind::kWrong, piece(at_.piece).ip + at_.piece_bytes, 0, piece(at_.piece).time, 0, text};
  if (const TruthRun* r = run(at_.run)) wrong.truth_ip = r->ip + at_.run_bytes;
  for (size_t i = 0; i < to.pieces_skipped; ++i) {
    const DecodedPiece& p = piece(at_.piece);
    const uint32_t count = p.count - at_.piece_count;
    wrong.count += count;
    result_.wrong_by_confidence[static_cast<size_t>(p.confidence)] += count;
    ++at_.piece;
    at_.piece_bytes = at_.piece_count = 0;
  }
  if (to.piece_count > at_.piece_count) {  // the first part of a piece
    const DecodedPiece& p = piece(at_.piece);
    const uint32_t count = to.piece_count - at_.piece_count;
    wrong.count += count;
    result_.wrong_by_confidence[static_cast<size_t>(p.confidence)] += count;
    at_.piece_bytes = to.piece_bytes;
    at_.piece_count = to.piece_count;
  }
  result_.wrong += wrong.count;
  count_event(wrong.time, {0, wrong.count, 0});
  if (wrong.count != 0) note(wrong);

  if (to.run == at_.run) {  // further on in the same run; what is left out shows at its end
    if (to.run_bytes != at_.run_bytes) {
      at_.midway = true;
      at_.run_bytes = to.run_bytes;
      midway_cause_ = cause;
      midway_late_ = (run(at_.run)->flags & TruthRun::kLateText) != 0;
    }
    return;
  }
  drop_excess();
  settle_pending(true);
  Difference missing{Difference::Kind::kMissing, wrong.decoded_ip, wrong.truth_ip, kTimeMin, 0, text};
  bool late = false;
  for (; at_.run < to.run; ++at_.run) {
    const TruthRun& r = *run(at_.run);
    if (missing.time == kTimeMin) missing.time = r.time;
    late = late || (r.flags & TruthRun::kLateText) != 0;
    const uint32_t count = r.count - std::min(r.count, at_.run_count);
    miss(count, late, cause, r.time);
    missing.count += count;
    at_.run_bytes = at_.run_count = 0;
    at_.midway = false;
  }
  if (late) missing.kind = Difference::Kind::kLate;
  if (missing.count != 0) note(missing);
  at_.run_bytes = to.run_bytes;
  at_.midway = to.run_bytes != 0;
  midway_cause_ = cause;
  midway_late_ = late || (at_.midway && (run(at_.run)->flags & TruthRun::kLateText) != 0);
}

void Comparer::miss(uint64_t count, bool late, const std::string& cause, Time time) {
  (late ? result_.late : result_.missing) += count;
  if (!late) count_event(time, {0, 0, count});
  if (count != 0 && !late) result_.missing_by_cause[cause] += count;
}

void Comparer::count_event(Time time, EventCounts counts) {
  if (!classify_ || counts.empty()) return;
  const size_t which = classify_(time);
  if (which >= result_.by_event.size()) result_.by_event.resize(which + 1);
  EventCounts& sum = result_.by_event[which];
  sum.right += counts.right;
  sum.wrong += counts.wrong;
  sum.missing += counts.missing;
}

// The truth's time of a run against when the trace says it was entered.
void Comparer::compare_time(size_t piece_index, Time ran) {
  constexpr uint32_t kEvery = 32;
  constexpr size_t kMostErrors = 65536;
  if (until_time_check_-- != 0) return;
  until_time_check_ = kEvery;
  const TimeBounds w = window(piece_index);
  if (piece(piece_index).time == kTimeMin || w.hi == kTimeMax) return;
  ++result_.timed;
  if (ran >= w.lo && ran <= w.hi) return;
  if (result_.time_errors.size() < kMostErrors)
    result_.time_errors.push_back(
        elapsed(ran, ran < w.lo ? saturating_add(w.lo, slack_) : saturating_add(w.hi, -slack_)));
}

// A run that is left before its end: of more instructions than it has, some are others in the same bytes, and of as many
// the last one is shorter than the one that ran.
void Comparer::drop_excess() {
  const TruthRun& r = *run(at_.run);
  const bool shorter =
      !at_.midway && at_.run_bytes != 0 && at_.run_bytes < r.bytes && at_.run_count == r.count;
  const uint32_t count = r.count - (shorter && r.count != 0 ? 1 : 0);
  if (shorter) note({Difference::Kind::kWrong, r.ip, r.ip, r.time, 1, "an instruction of another length"});
  uint64_t excess = at_.run_count - std::min(at_.run_count, count);
  at_.run_count = std::min(at_.run_count, count);
  for (size_t c = 0; c < pending_.size() && excess != 0; ++c) {
    const uint64_t some = std::min(excess, pending_[c]);
    pending_[c] -= some;
    result_.wrong_by_confidence[c] += some;
    result_.wrong += some;
    count_event(pending_time_, {0, some, 0});
    excess -= some;
  }
}

// An instruction crosses the end of the run: then those before it, which are in the run's bytes, are others
// than those that ran, like those of a run with more or fewer instructions than it has.
void Comparer::refute_run() {
  const uint64_t decoded = std::accumulate(pending_.begin(), pending_.end(), uint64_t{0});
  if (decoded == 0) return;
  const TruthRun& r = *run(at_.run);
  settle_pending(false);
  note({Difference::Kind::kWrong, r.ip, r.ip, r.time, decoded, "other instructions in the same bytes"});
  at_.run_count -= static_cast<uint32_t>(std::min<uint64_t>(decoded, at_.run_count));
}

void Comparer::settle_pending(bool right) {
  const uint64_t all = std::accumulate(pending_.begin(), pending_.end(), uint64_t{0});
  count_event(pending_time_, right ? EventCounts{all, 0, 0} : EventCounts{0, all, 0});
  for (size_t c = 0; c < pending_.size(); ++c) {
    (right ? result_.right : result_.wrong) += pending_[c];
    (right ? result_.right_by_confidence : result_.wrong_by_confidence)[c] += pending_[c];
  }
  pending_.fill(0);
}

void Comparer::note(Difference difference) {
  const auto same_kind = [&](const Difference& d) { return d.kind == difference.kind; };
  if (std::count_if(result_.places.begin(), result_.places.end(), same_kind) <
      static_cast<long>(kMaxPlaces)) {
    result_.places.push_back(std::move(difference));
  }
}

void Comparer::process(bool last) {
  wanted_ = 2 * kLookAhead;
  while (at_.piece < piece_end() && (last || piece_end() - at_.piece > kLookAhead)) {
    const DecodedPiece& p = piece(at_.piece);
    if (p.gap != 0 && at_.piece_bytes == 0 && gap_handled_ != at_.piece) {
      if (resume_after_gap()) continue;
      wanted_ = 2 * (piece_end() - at_.piece);
      break;
    }
    const Position before = at_;
    const Stretch s = step(at_);
    if (s.outcome != Outcome::kSame) {
      if (s.across) refute_run();
      resume({"no gap reported", ""});
      continue;
    }
    const TruthRun r = *run(before.run);
    if (before.run_bytes == 0) compare_time(before.piece, r.time);
    pending_[static_cast<size_t>(p.confidence)] += s.count;
    pending_time_ = r.time;
    if (!s.run_done) continue;
    const uint64_t decoded = std::accumulate(pending_.begin(), pending_.end(), uint64_t{0});
    settle_pending(s.run_agrees);
    if (!s.run_agrees) {
      miss(r.count, (r.flags & TruthRun::kLateText) != 0, "no gap reported", r.time);
      note({Difference::Kind::kWrong, r.ip, r.ip, r.time, decoded, "other instructions in the same bytes"});
    } else if (before.midway) {
      miss(r.count - (before.run_count + s.count), midway_late_, midway_cause_, r.time);
    }
  }
  pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<long>(at_.piece - piece_base_));
  piece_base_ = at_.piece;
  const size_t drop = std::min(at_.run - run_base_, runs_.size());
  runs_.erase(runs_.begin(), runs_.begin() + static_cast<long>(drop));
  run_base_ += drop;
}

}  // namespace asof
