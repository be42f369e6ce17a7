/* work NAME [SEED]: one of the workloads. */
#include "work.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t work_seed = 1;

static int work_true(void) { return 0; }

static const struct {
  const char* name;
  int (*run)(void);
} kWorks[] = {
    {"jit", work_jit},
    {"jitdump", work_jitdump},
    {"jitpatch", work_jitpatch},
    {"ptwrite", work_ptwrite},
    {"seccomp", work_seccomp},
    {"signals", work_signals},
    {"stepped", work_stepped},
    {"switch", work_switch},
    {"tailcall", work_tailcall},
    {"trampoline", work_trampoline},
    {"true", work_true},
    {"uprobe", work_uprobe},
    {"uprobe-offset", work_uprobe_offset},
    {"vdso", work_vdso},
    {"xdp", work_xdp},
};

int work_failed(const char* what) {
  fprintf(stderr, "work: %s: %s\n", what, strerror(errno));
  return 1;
}

uint32_t work_random(void) { /* splitmix64 */
  static uint64_t state;
  uint64_t z = state += 0x9E3779B97F4A7C15ULL;
  z += work_seed;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return (uint32_t)(z >> 32);
}

static uint64_t twist(uint64_t v) { return v * 3 + 1; }
static uint64_t halve(uint64_t v) { return v / 2; }
static uint64_t mix(uint64_t v) { return v ^ v >> 7 ^ v << 9; }
static uint64_t depth(uint64_t v, unsigned left) { return left == 0 ? v : depth(v + left, left - 1) ^ left; }

uint64_t work_compute(uint64_t value, unsigned rounds) {
  static uint64_t (*volatile const kSteps[])(uint64_t) = {twist, halve, mix};
  for (unsigned i = 0; i < rounds; ++i) {
    value = kSteps[value % 3](value);
    if (i % 16 == 0) value += depth(value, i % 23);
  }
  return value;
}

int main(int argc, char** argv) {
  for (size_t i = 0; argc > 1 && i < sizeof kWorks / sizeof *kWorks; ++i) {
    if (strcmp(argv[1], kWorks[i].name) != 0) continue;
    if (argc > 2) work_seed = (uint32_t)strtoul(argv[2], NULL, 0);
    return kWorks[i].run();
  }
  fputs("usage: work NAME [SEED]; names:", stderr);
  for (size_t i = 0; i < sizeof kWorks / sizeof *kWorks; ++i) fprintf(stderr, " %s", kWorks[i].name);
  fputs("\n", stderr);
  return 2;
}
