/* The program: options, order, restoring. See toggle.h. */
#define _GNU_SOURCE
#include "toggle.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "undo.h"

enum { kToggles = 64, kMaxModules = 8, kUsage = 1, kMissing = 2, kNotRestored = 3 };

const char* toggle_root = "";
static uint64_t random_state = 1;
static volatile sig_atomic_t ended = 0;

static void on_signal(int number) {
  (void)number;
  ended = 1;
}

uint32_t toggle_random(void) { /* splitmix64 */
  uint64_t z = random_state += 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return (uint32_t)(z >> 32);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void say(const char* what, const struct toggle* t, int error) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  printf("%lld.%09ld %s %s %s%s%s\n", (long long)at.tv_sec, at.tv_nsec, what, t->kind, t->name,
         error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
  fflush(stdout);
}

static int switch_it(struct toggle* t, int on) {
  const int error = t->set(t, on);
  if (error == 0) t->is_on = on;
  say(on ? "on" : "off", t, error);
  return error;
}

struct options {
  uint64_t seed;
  double seconds;
  unsigned rounds, workers, hold_ms, burst;
  int cpu, list;
  const char *kinds, *need, *modules[kMaxModules];
  size_t module_count;
};

static int has_word(const char* words, const char* word) { /* "a,b,c" */
  const size_t n = strlen(word);
  for (const char* p = words; p != NULL && *p != '\0';) {
    const char* end = strchr(p, ',');
    const size_t length = end != NULL ? (size_t)(end - p) : strlen(p);
    if (length == n && strncmp(p, word, n) == 0) return 1;
    p = end != NULL ? end + 1 : NULL;
  }
  return 0;
}

static int usage(void) {
  fputs(
      "usage: toggle [--seed N] [--seconds S | --rounds N] [--only KIND,...] [--need KIND,...] [--module "
      "FILE]...\n"
      "              [--workers N] [--cpu N] [--hold MS] [--burst N] [--list] [--root DIR]\n"
      "Switches everything that changes kernel text on and off in random order, and restores it.\n"
      "Kinds: static_key, tracepoint, ftrace, kprobe, bpf, module. A line for each change: CLOCK_MONOTONIC, "
      "on or\n"
      "off, kind, name. Exit status: 0 done, 1 usage, 2 a kind of --need (or every kind) is missing here, 3 "
      "something\n"
      "could not be restored.\n",
      stderr);
  return kUsage;
}

static int number(const char* text, double most, double* out) {
  char* end = NULL;
  *out = strtod(text, &end);
  return end != text && *end == '\0' && *out >= 0 && *out <= most;
}

static int parse(int argc, char** argv, struct options* o) {
  for (int i = 1; i < argc; ++i) {
    double n = 0;
    const char* name = argv[i];
    if (strcmp(name, "--list") == 0) {
      o->list = 1;
      continue;
    }
    if (i + 1 == argc) return 0;
    const char* value = argv[++i];
    if (strcmp(name, "--only") == 0) {
      o->kinds = value;
    } else if (strcmp(name, "--need") == 0) {
      o->need = value;
    } else if (strcmp(name, "--root") == 0) {
      toggle_root = value;
    } else if (strcmp(name, "--module") == 0) {
      if (o->module_count == kMaxModules) return 0;
      o->modules[o->module_count++] = value;
    } else if (!number(value, 1e9, &n)) {
      return 0;
    } else if (strcmp(name, "--seed") == 0) {
      o->seed = (uint64_t)n;
    } else if (strcmp(name, "--seconds") == 0) {
      o->seconds = n;
    } else if (strcmp(name, "--rounds") == 0) {
      o->rounds = (unsigned)n;
    } else if (strcmp(name, "--workers") == 0) {
      o->workers = (unsigned)n;
    } else if (strcmp(name, "--cpu") == 0) {
      o->cpu = (int)n;
    } else if (strcmp(name, "--hold") == 0) {
      o->hold_ms = (unsigned)n;
    } else if (strcmp(name, "--burst") == 0) {
      o->burst = (unsigned)n;
    } else {
      return 0;
    }
  }
  return 1;
}

static size_t gather(const struct options* o, struct toggle* list) {
  size_t count = toggle_add_keys(list, 0, kToggles);
  count = toggle_add_tracing(list, count, kToggles);
  count = toggle_add_bpf(list, count, kToggles);
  for (size_t i = 0; i < o->module_count; ++i)
    count = toggle_add_module(list, count, kToggles, o->modules[i]);
  if (o->kinds == NULL) return count;
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) {
    if (has_word(o->kinds, list[i].kind)) list[kept++] = list[i];
  }
  return kept;
}

/* Kinds of --need that are missing. */
static int tell_missing(const struct options* o, const struct toggle* list, size_t count) {
  static const char* const kKinds[] = {"static_key", "tracepoint", "ftrace", "kprobe", "bpf", "module"};
  int missing = 0;
  for (size_t k = 0; k < sizeof kKinds / sizeof *kKinds; ++k) {
    if (!has_word(o->need, kKinds[k])) continue;
    size_t i = 0;
    while (i < count && strcmp(list[i].kind, kKinds[k]) != 0) ++i;
    if (i < count) continue;
    fprintf(stderr, "toggle: this machine has no switch of kind %s\n", kKinds[k]);
    missing = 1;
  }
  if (count == 0)
    fputs("toggle: there is nothing here that can be switched (root, /proc, tracefs?)\n", stderr);
  return missing || count == 0;
}

static void hold(const struct options* o, const struct toggle* t) {
  const unsigned least = t->hold_ms > o->hold_ms ? t->hold_ms : o->hold_ms;
  const double until = now() + least * (0.5 + toggle_random() % 100 / 100.0) / 1000;
  do {
    toggle_work(o->burst);
    if (now() < until) usleep(500);
  } while (now() < until && !ended);
}

/* Everything on and off, in random order; up to three are on at a time, so that changes nest. */
static int one_round(const struct options* o, struct toggle* list, size_t count, double until) {
  size_t order[kToggles];
  size_t open[3];
  size_t opened = 0;
  int failed = 0;
  for (size_t i = 0; i < count; ++i) order[i] = i;
  for (size_t i = count; i > 1; --i) {
    const size_t j = toggle_random() % i;
    const size_t swap = order[i - 1];
    order[i - 1] = order[j];
    order[j] = swap;
  }
  for (size_t i = 0; i < count && !ended && now() < until; ++i) {
    if (opened == 3 || (opened > 0 && toggle_random() % 2 == 0)) {
      const size_t which = toggle_random() % opened;
      failed |= switch_it(&list[open[which]], 0);
      open[which] = open[--opened];
      toggle_work(o->burst);
    }
    struct toggle* t = &list[order[i]];
    if (switch_it(t, 1) != 0) continue;
    open[opened++] = order[i];
    hold(o, t);
  }
  while (opened > 0) failed |= switch_it(&list[open[--opened]], 0);
  return failed;
}

int main(int argc, char** argv) {
  struct options o = {.seed = 1,
                      .seconds = 5,
                      .workers = (unsigned)sysconf(_SC_NPROCESSORS_ONLN),
                      .hold_ms = 10,
                      .burst = 4,
                      .cpu = -1};
  static struct toggle list[kToggles];
  if (!parse(argc, argv, &o)) return usage();
  random_state = o.seed;
  /* What an earlier one that was killed has left would be taken for the machine's own state. */
  undo_all(toggle_root);
  const int unsafe = undo_open(toggle_root, "toggle");
  if (unsafe != 0)
    fprintf(stderr, "toggle: %s/run/asof-record: %s: nothing is put back if this is killed\n", toggle_root,
            strerror(unsafe));
  /* Looking for switches makes probes, which are to be removed. */
  struct sigaction action = {.sa_handler = on_signal};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGHUP, &action, NULL);
  const size_t count = gather(&o, list);
  if (o.list) {
    for (size_t i = 0; i < count; ++i) printf("%s %s\n", list[i].kind, list[i].name);
  }
  const int missing = tell_missing(&o, list, count);
  if (missing || o.list) {
    toggle_end_tracing();
    undo_done();
    return missing ? kMissing : 0;
  }
  if (o.workers > 0) toggle_start_workers(o.workers);
  if (o.cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((unsigned)o.cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) perror("toggle: --cpu");
  }
  const double until = o.rounds != 0 ? 1e18 : now() + o.seconds;
  int failed = 0;
  for (unsigned round = 0; !ended && now() < until && (o.rounds == 0 || round < o.rounds); ++round)
    failed |= one_round(&o, list, count, until);
  for (size_t i = 0; i < count; ++i) {
    if (list[i].is_on) failed |= switch_it(&list[i], 0);
  }
  toggle_end_tracing();
  toggle_end_workers();
  if (!failed) undo_done();
  return failed ? kNotRestored : 0;
}
