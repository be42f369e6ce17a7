#include "tools/output/merge.h"

#include <algorithm>

namespace asof {

void Merger::add(size_t stream, TimedText text, Time watermark) {
  Queue& q = queues_[stream];
  if (!text.text.empty()) {
    if (text.marks.empty() || text.marks.front().begin != 0)
      text.marks.insert(text.marks.begin(), {kTimeMin, 0});
    for (TimedText::Mark& m : text.marks) m.time = q.latest = std::max(q.latest, m.time);
    waiting_ += text.text.size();
    q.pieces.push_back({std::move(text), 0});
  }
  flush(watermark, queues_.size() == 1, 0);  // a single stream waits for no other
  if (waiting_ > limit_) {
    ++forced_;
    flush(kTimeMax, true, limit_ / 2);
  }
}

void Merger::finish() { flush(kTimeMax, true, 0); }

// Writes what is before `before` (or all), earliest first, until no more than `down_to` bytes wait.
void Merger::flush(Time before, bool all, uint64_t down_to) {
  while (waiting_ > down_to) {
    // The stream whose next lines are earliest, and until when they stay the earliest.
    size_t best = queues_.size();
    Time second = kTimeMax;
    size_t second_stream = queues_.size();
    Time best_time = kTimeMax;
    for (size_t i = 0; i < queues_.size(); ++i) {
      if (queues_[i].pieces.empty()) continue;
      const Piece& p = queues_[i].pieces.front();
      const Time t = p.text.marks[p.mark].time;
      if (best == queues_.size() || t < best_time) {
        second = best == queues_.size() ? kTimeMax : best_time;
        second_stream = best;
        best = i;
        best_time = t;
      } else if (second_stream == queues_.size() || t < second) {
        second = t;
        second_stream = i;
      }
    }
    if (best == queues_.size() || (!all && best_time >= before)) return;
    Piece& p = queues_[best].pieces.front();
    const size_t begin = p.text.marks[p.mark].begin;
    const auto turn = [&](Time t) {
      if (!all && t >= before) return false;
      return second_stream == queues_.size() || t < second || (t == second && best < second_stream);
    };
    do {
      ++p.mark;
    } while (p.mark < p.text.marks.size() && turn(p.text.marks[p.mark].time));
    const bool done = p.mark == p.text.marks.size();
    const size_t end = done ? p.text.text.size() : p.text.marks[p.mark].begin;
    write_(std::string_view(p.text.text).substr(begin, end - begin));
    waiting_ -= end - begin;
    if (!done) continue;
    if (recycle_) recycle_(std::move(p.text));
    queues_[best].pieces.pop_front();
  }
}

}  // namespace asof
