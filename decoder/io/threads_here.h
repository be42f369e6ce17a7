// How many threads in_order() uses where it is called in this thread: one for each CPU, or as many as the ThreadsHere says
// that lives.
#pragma once
#include <algorithm>
#include <cstddef>
#include <thread>

namespace asof {

class ThreadsHere {
 public:
  explicit ThreadsHere(size_t n) : before_(wanted_) { wanted_ = n; }
  ~ThreadsHere() { wanted_ = before_; }
  ThreadsHere(const ThreadsHere&) = delete;
  ThreadsHere& operator=(const ThreadsHere&) = delete;

  static size_t count() {
    return wanted_ != 0 ? wanted_ : std::max(size_t{1}, size_t{std::thread::hardware_concurrency()});
  }

 private:
  static inline thread_local size_t wanted_ = 0;
  const size_t before_;
};

}  // namespace asof
