// in_order: several threads make n results, which are taken one by one in order.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "decoder/io/threads_here.h"

namespace asof {

// Threads that make results, each the next that is wanted. Threads of their own rather than tasks of a library, whose
// hand-overs thread sanitizer does not see.
template <class Make>
class OrderedMakers {
 public:
  using Result = std::invoke_result_t<Make&, size_t>;

  OrderedMakers(size_t n, size_t threads, Make& make) : n_(n), make_(make), made_(std::min(n, 2 * threads)) {
    for (size_t i = 0; i < std::min(n, threads); ++i) {
      try {
        threads_.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        break;  // a limit on threads (setrlimit(2), cgroups): those that there are do it all, or take() does
      }
    }
  }
  ~OrderedMakers() {
    {
      const std::lock_guard lock(mutex_);
      next_ = n_;
    }
    changed_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  OrderedMakers(const OrderedMakers&) = delete;
  OrderedMakers& operator=(const OrderedMakers&) = delete;

  // Result `i`, each once and in order. Throws what make() threw.
  Result take(size_t i) {
    if (threads_.empty()) return make_(i);
    std::unique_lock lock(mutex_);
    std::optional<Result>& slot = made_[i % made_.size()];
    changed_.wait(lock, [&] { return slot.has_value() || failure_ != nullptr; });
    if (!slot.has_value()) std::rethrow_exception(failure_);
    Result out = std::move(*slot);
    slot.reset();
    ++taken_;
    lock.unlock();
    changed_.notify_all();
    return out;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return next_ == n_ || next_ < taken_ + made_.size(); });
      if (next_ == n_) return;
      const size_t i = next_++;
      lock.unlock();
      std::optional<Result> result;
      std::exception_ptr failure;
      try {
        result.emplace(make_(i));
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure != nullptr) {
        failure_ = failure;
        next_ = n_;
      } else {
        made_[i % made_.size()] = std::move(result);
      }
      changed_.notify_all();
    }
  }

  const size_t n_;
  Make& make_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<std::optional<Result>> made_;  // result i in i % size
  size_t next_ = 0, taken_ = 0;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

// take(make(0)), take(make(1)), ...: make() runs in as many threads as ThreadsHere says; take() runs in this one. No more than twice as many results as threads wait.
template <class Make, class Take>
void in_order(size_t n, Make&& make, Take&& take) {
  const size_t jobs = ThreadsHere::count();
  if (jobs == 1 || n < 2) {
    for (size_t i = 0; i < n; ++i) take(make(i));
    return;
  }
  OrderedMakers<std::remove_reference_t<Make>> makers(n, jobs, make);
  for (size_t i = 0; i < n; ++i) take(makers.take(i));
}

}  // namespace asof
