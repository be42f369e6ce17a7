// Handover: from the threads that decode to the one that reads, in bounded memory. Either side may end first.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

namespace asof::v0 {

template <class T>
class Handover {
 public:
  // More than `limit` bytes wait only if one item has as many.
  explicit Handover(uint64_t limit) : limit_(limit) {}

  // Takes the item and leaves an empty one, if possible one that was read and keeps its memory. Blocks while
  // too much waits.
  void give(T& item, uint64_t bytes) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return closed_ || waiting_.empty() || bytes_ + bytes <= limit_; });
    if (closed_) return;
    bytes_ += bytes;
    waiting_.emplace_back(std::move(item), bytes);
    item = T();
    if (!spare_.empty()) {
      item = std::move(spare_.back());
      spare_.pop_back();
    }
    ready_.notify_one();
  }
  // No more comes. `error` goes to the reader.
  void end(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    if (error) error_ = std::move(error);
    ready_.notify_one();
  }
  void wait_until_closed() {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return closed_; });
  }

  // The next item. False: that was all.
  bool take(T& item) {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return ended_ || !waiting_.empty(); });
    if (waiting_.empty()) {
      if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
      return false;
    }
    item = std::move(waiting_.front().first);
    bytes_ -= waiting_.front().second;
    waiting_.pop_front();
    room_.notify_all();
    return true;
  }
  // An item that was read, emptied.
  void give_back(T&& item) {
    constexpr size_t kMostSpare = 16;
    const std::lock_guard lock(mutex_);
    if (spare_.size() < kMostSpare) spare_.push_back(std::move(item));
  }
  // The reader has enough: no call waits from here on, and what is given is dropped.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    room_.notify_all();
  }

 private:
  const uint64_t limit_;
  std::mutex mutex_;
  std::condition_variable ready_, room_;
  std::deque<std::pair<T, uint64_t>> waiting_;
  std::vector<T> spare_;
  uint64_t bytes_ = 0;  // that wait
  bool ended_ = false, closed_ = false;
  std::exception_ptr error_;
};

}  // namespace asof::v0
