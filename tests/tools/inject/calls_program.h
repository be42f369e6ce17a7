// The program whose samples the tests of `asof inject` count: outer() and inner() run 200 times, leaf() 400 times.
#pragma once

namespace asof::test {

inline constexpr const char* kCallsProgram = R"(
__attribute__((noinline)) int leaf(int x) { return x * 3 + 1; }
__attribute__((noinline)) int inner(int x, int n) {
  volatile int s = 0;
  for (int i = 0; i < n; ++i) s += leaf(x ^ i);
  return s;
}
__attribute__((noinline)) int outer(int x) { return inner(x, x % 5) + 2; }
void _start(void) {
  volatile int sum = 0;
  for (int i = 0; i < 200; ++i) sum += outer(i);
  __asm__ volatile("syscall" ::"a"(60), "D"(0));
  for (;;) {}
}
)";

}  // namespace asof::test
