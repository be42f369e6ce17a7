// Ordered: results of parallel work passed on in the order of the work, in bounded memory.
//
// Workers take items 0, 1, 2 ... in that order. The lowest unfinished item is the head: what its worker gives
// is passed on at once; what others give waits. When too much waits, a worker stops until its item is the
// head. This always happens, because every item below it has been taken by a running worker.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace asof {

template <class T>
class Ordered {
 public:
  // `deliver` is called by one thread at a time. `limit`: bytes that may wait.
  Ordered(uint64_t limit, std::function<void(T&)> deliver) : limit_(limit), deliver_(std::move(deliver)) {}

  void give(size_t item, T value, uint64_t bytes) {
    std::unique_lock lock(mutex_);
    if (item != head_ && waiting_ + bytes > limit_) head_moved_.wait(lock, [&] { return item == head_; });
    if (item == head_) {
      drain(lock, item);
      lock.unlock();
      deliver_(value);  // only the head's worker gets here, so no other worker delivers meanwhile
      return;
    }
    waiting_ += bytes;
    queues_[item].emplace_back(std::move(value), bytes);
  }

  void finish(size_t item) {
    std::unique_lock lock(mutex_);
    if (item != head_) {
      if (item - head_ >= done_.size()) done_.resize(item - head_ + 1, false);
      done_[item - head_] = true;
      return;
    }
    // Everything finished after the head follows, in this thread. Until this is done the head does not move:
    // no other worker delivers.
    size_t n = 0;
    do {
      drain(lock, item + n);
      ++n;
    } while (n < done_.size() && done_[n]);
    done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(std::min(n, done_.size())));
    head_ += n;
    head_moved_.notify_all();
  }

 private:
  void drain(std::unique_lock<std::mutex>& lock, size_t item) {
    for (auto queue = queues_.extract(item); !queue.empty(); queue = queues_.extract(item)) {
      auto& ready = queue.mapped();
      lock.unlock();
      for (auto& [value, bytes] : ready) deliver_(value);
      lock.lock();
      for (auto& [value, bytes] : ready) waiting_ -= bytes;
    }
  }

  std::mutex mutex_;
  std::condition_variable head_moved_;
  std::unordered_map<size_t, std::vector<std::pair<T, uint64_t>>> queues_;  // of the items that wait
  std::deque<bool> done_;                                                   // from the head on
  size_t head_ = 0;
  uint64_t waiting_ = 0;
  const uint64_t limit_;
  std::function<void(T&)> deliver_;
};

}  // namespace asof
