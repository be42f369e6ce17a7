#include "tools/profile/lost_time.h"

#include <algorithm>
#include <iterator>

namespace asof {
namespace {

uint64_t length(Time begin, Time end) {
  return end > begin ? static_cast<uint64_t>(end) - static_cast<uint64_t>(begin) : 0;
}

}  // namespace

uint64_t LostTime::Block::sum() const {
  return stretches.back().before + length(stretches.back().begin, stretches.back().end);
}

void LostTime::add(Time begin, Time end) {
  if (end <= begin) return;
  if (blocks_.empty()) blocks_.push_back({{{begin, end, 0}}, 0});
  Block& block = blocks_.back();
  Stretch& last = block.stretches.back();
  if (begin < last.begin) return insert(begin, end);
  if (begin <= last.end) {
    last.end = std::max(last.end, end);
  } else if (block.stretches.size() < kMost) {
    block.stretches.push_back({begin, end, block.sum()});
  } else {
    blocks_.push_back({{{begin, end, 0}}, block.before + block.sum()});
  }
}

// Before the last one begins.
void LostTime::insert(Time begin, Time end) {
  const auto ends_before = [&](const Block& b) { return b.stretches.back().end < begin; };
  const auto first =
      static_cast<size_t>(std::ranges::partition_point(blocks_, ends_before) - blocks_.begin());
  size_t at = first;
  // What it touches goes into it.
  for (; at < blocks_.size() && blocks_[at].stretches.front().begin <= end; ++at) {
    auto& list = blocks_[at].stretches;
    const auto from = std::ranges::lower_bound(list, begin, {}, &Stretch::end);
    const auto to = std::ranges::upper_bound(from, list.end(), end, {}, &Stretch::begin);
    if (from != to) {
      begin = std::min(begin, from->begin);
      end = std::max(end, std::prev(to)->end);
    }
    list.erase(from, to);
  }
  auto& list = blocks_[first].stretches;
  list.insert(std::ranges::lower_bound(list, begin, {}, &Stretch::begin), {begin, end, 0});
  std::erase_if(blocks_, [](const Block& b) { return b.stretches.empty(); });
  if (blocks_[first].stretches.size() > kMost) split(first);
  add_up(first);
}

void LostTime::split(size_t block) {
  auto& list = blocks_[block].stretches;
  const auto half = list.begin() + static_cast<ptrdiff_t>(list.size() / 2);
  Block rest{{half, list.end()}, 0};
  list.erase(half, list.end());
  blocks_.insert(blocks_.begin() + static_cast<ptrdiff_t>(block) + 1, std::move(rest));
}

// From this block on. Of those behind the next only what precedes them has changed.
void LostTime::add_up(size_t first) {
  for (size_t i = first; i < blocks_.size(); ++i) {
    blocks_[i].before = i == 0 ? 0 : blocks_[i - 1].before + blocks_[i - 1].sum();
    uint64_t lost = 0;
    for (size_t k = 0; i <= first + 1 && k < blocks_[i].stretches.size(); ++k) {
      Stretch& s = blocks_[i].stretches[k];
      s.before = lost;
      lost += length(s.begin, s.end);
    }
  }
}

uint64_t LostTime::until(Time t) const {
  const auto starts = [](const Block& b) { return b.stretches.front().begin; };
  const auto block = std::ranges::upper_bound(blocks_, t, {}, starts);
  if (block == blocks_.begin()) return 0;
  const Block& in = *std::prev(block);
  const auto next = std::ranges::upper_bound(in.stretches, t, {}, &Stretch::begin);
  const Stretch& last = *std::prev(next);
  return in.before + last.before + length(last.begin, std::min(t, last.end));
}

}  // namespace asof
