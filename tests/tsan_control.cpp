// A race in what a worker of oneTBB does: thread sanitizer with the suppressions of the suite must find it.
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <array>
#include <atomic>
#include <cstdio>

namespace {

// Many: where both write at the very same moment, thread sanitizer may see none of it.
std::array<int, 10000> raced{};

// Both bodies are under way, each on a thread of its own, before either counts.
void count_when_both_run(std::atomic<int>& running) {
  ++running;
  while (running.load() < 2) {
  }
  for (int& n : raced) ++n;
}

}  // namespace

int main() {
  const tbb::global_control two(tbb::global_control::max_allowed_parallelism, 2);  // also on one CPU
  std::atomic<int> running = 0;
  tbb::task_arena arena(2);
  arena.execute([&] {
    tbb::parallel_for(
        0, 2, [&](int) { count_when_both_run(running); }, tbb::simple_partitioner());
  });
  std::printf("%d\n", raced.back());
}
