// in_order: several threads make n results, which are taken one by one in order.
#pragma once
#include <tbb/global_control.h>
#include <tbb/parallel_pipeline.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace asof {

// take(make(0)), take(make(1)), ...: make() runs in as many threads as tbb::global_control allows, which is one for
// each CPU unless somebody set it; take() runs in one at a time. No more than twice as many results as threads wait.
template <class Make, class Take>
void in_order(size_t n, Make&& make, Take&& take) {
  const size_t jobs = tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  if (jobs == 1 || n < 2) {
    for (size_t i = 0; i < n; ++i) take(make(i));
    return;
  }
  const size_t tokens = std::min(n, 2 * jobs);
  std::vector<std::optional<std::invoke_result_t<Make&, size_t>>> made(tokens);
  // Orders what is written in one thread and read in another. The library does so too, but thread sanitizer does
  // not see it.
  std::mutex hand_over;
  const auto pass = [&] { const std::lock_guard lock(hand_over); };
  size_t next = 0;
  const auto number = [&](tbb::flow_control& flow) -> size_t {
    if (next == n) flow.stop();
    return next == n ? 0 : next++;
  };
  const auto fill = [&](size_t i) {
    pass();
    made[i % tokens].emplace(make(i));
    pass();
    return i;
  };
  const auto empty = [&](size_t i) {
    pass();
    take(std::move(*made[i % tokens]));
    made[i % tokens].reset();
    pass();
  };
  using tbb::filter_mode;
  const auto all = tbb::make_filter<void, size_t>(filter_mode::serial_in_order, number) &
                   tbb::make_filter<size_t, size_t>(filter_mode::parallel, fill) &
                   tbb::make_filter<size_t, void>(filter_mode::serial_in_order, empty);
  pass();
  // More threads than CPUs are possible on request, as in run_pipeline().
  tbb::task_arena(static_cast<int>(jobs)).execute([&] { tbb::parallel_pipeline(tokens, all); });
  pass();
}

}  // namespace asof
