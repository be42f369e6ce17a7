/* What changes the kernel's text, one step after the other on CPU 0: static keys, ftrace, kprobes, BPF
 * programs, modules. Tracing of CPU 0 is paused while a step is prepared at length (symbol look-ups, program
 * verification), not while text changes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guest.h"

#define TRACING "/sys/kernel/tracing/"

static unsigned burst;

static void pause_trace(void) { ring(BOARD_PAUSE, 0, 0, 0); }
static void resume_trace(void) { ring(BOARD_RESUME, 0, 0, 0); }

/* Long preparations: nothing is traced. */
static void prepare(void) {
  pause_trace();
  work_pace(kQuiet, 0);
}

static void settle(void) {
  watch_new_symbols();
  work_pace(kCalm, burst);
  resume_trace();
  work_burst(burst);
}

/* Waits untraced: the optimiser of kprobes works half a second later. */
static void wait_ms(unsigned ms) {
  struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
  nanosleep(&t, NULL);
}

/* A switch whose write is traced when `traced`, that is when it is short. */
static bool flip(const char* path, const char* text, bool traced) {
  if (!traced) pause_trace();
  work_pace(kBusy, 6 * burst);
  const bool done = write_file(path, text);
  if (traced) pause_trace();
  settle();
  return done;
}

static void static_keys(bool traced) {
  static const char* const kKeys[] = {"/proc/sys/kernel/sched_schedstats",
                                      "/proc/sys/kernel/bpf_stats_enabled",
                                      "/proc/sys/kernel/task_delayacct"};
  for (size_t i = 0; i < sizeof kKeys / sizeof *kKeys; ++i) {
    say("key %s", kKeys[i]);
    flip(kKeys[i], "1", traced && i != 0);
    flip(kKeys[i], "0", traced && i != 0);
  }
}

static void tracepoint(const char* name) {
  char path[128];
  say("tracepoint %s", name);
  snprintf(path, sizeof path, TRACING "events/%s/enable", name);
  flip(path, "1", false);
  flip(path, "0", false);
}

static void function_tracer(const char* filter) {
  say("function tracer on %s", filter);
  prepare();
  if (!write_file(TRACING "set_ftrace_filter", filter)) die("no filter for the function tracer");
  settle();
  flip(TRACING "current_tracer", "function", false);
  flip(TRACING "current_tracer", "nop", false);
}

/* A probe in the middle of a function, at the first instruction from `offset` on that the kernel takes. */
static bool define_probe(const char* name, const char* function, unsigned offset) {
  char text[128];
  prepare();
  for (unsigned at = offset; at < offset + 16; ++at) {
    if (at == 0)
      snprintf(text, sizeof text, "p:board/%s %s", name, function);
    else
      snprintf(text, sizeof text, "p:board/%s %s+%u", name, function, at);
    const int fd = open(TRACING "kprobe_events", O_WRONLY | O_APPEND);
    const bool done = fd >= 0 && write(fd, text, strlen(text)) > 0;
    close(fd);
    if (done) {
      say("kprobe %s", text);
      settle();
      return true;
    }
    if (at == 0) break;
  }
  say("no kprobe in %s: %s", function, strerror(errno));
  settle();
  return false;
}

static void enable_probe(const char* name, unsigned wait) {
  char path[128];
  snprintf(path, sizeof path, TRACING "events/board/%s/enable", name);
  if (!flip(path, "1", false)) return;
  pause_trace();
  if (wait != 0) {
    work_pace(kSlow, 4 * burst);
    wait_ms(wait);
    work_pace(kQuiet, 0);
    char* list = read_file("/sys/kernel/debug/kprobes/list", NULL);
    say("kprobes:\n%s", list);
    free(list);
  }
  settle();
  flip(path, "0", false);
}

static void kprobes(void) {
  static const struct {
    const char *name, *function;
    unsigned offset, wait;
  } kProbes[] = {
      {"entry", "vfs_read", 0, 0}, {"body", "vfs_write", 20, 300}, {"tail", "unix_dgram_sendmsg", 40, 300}};
  bool defined[3];
  for (size_t i = 0; i < 3; ++i)
    defined[i] = define_probe(kProbes[i].name, kProbes[i].function, kProbes[i].offset);
  for (size_t i = 0; i < 3; ++i) {
    if (defined[i]) enable_probe(kProbes[i].name, kProbes[i].wait);
  }
  flip(TRACING "kprobe_events", "-:board/entry", false);
  flip(TRACING "kprobe_events", "-:board/body", false);
  flip(TRACING "kprobe_events", "-:board/tail", false);
}

/* One program after the other on the same socket; the chunk of the first is free for the next. */
static void bpf_programs(unsigned count) {
  say("%u BPF programs", count);
  for (unsigned i = 0; i < count; ++i) {
    prepare();
    const int program = bpf_load((enum bpf_shape)(i / 2 % kBpfShapes), 0x1000 + i);
    bpf_attach(work_socket(), program);
    settle();
    work_burst(2 * burst);
    pause_trace();
    bpf_detach(work_socket());
    close(program);
    work_pace(kQuiet, 0);
    wait_ms(40); /* the code is freed after a grace period */
    settle();
  }
}

static void watch_module(const char* name) {
  size_t size;
  char* list = read_file("/proc/modules", &size);
  char* line = strstr(list, name);
  unsigned bytes;
  unsigned long long address;
  if (line != NULL && sscanf(line, "%*s %u %*s %*s %*s %llx", &bytes, &address) == 2)
    watch_text(address, (bytes + 4095) & ~4095U, 100);
  free(list);
}

static void up_and_down(const char* interface) {
  struct ifreq request = {0};
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
  request.ifr_flags = IFF_UP;
  if (ioctl(fd, SIOCSIFFLAGS, &request) != 0) say("%s stays down: %s", interface, strerror(errno));
  request.ifr_flags = 0;
  (void)ioctl(fd, SIOCSIFFLAGS, &request);
  close(fd);
}

static void module(const char* file, const char* name, const char* interface) {
  const int fd = open(file, O_RDONLY);
  if (fd < 0) return say("no module %s", file);
  prepare();
  const bool loaded = syscall(SYS_finit_module, fd, "", 0) == 0;
  say("module %s: %s", name, loaded ? "loaded" : strerror(errno));
  close(fd);
  if (loaded) watch_module(name);
  settle();
  if (!loaded) return;
  up_and_down(interface);
  pause_trace();
  if (syscall(SYS_delete_module, name, O_NONBLOCK) != 0) say("module %s stays", name);
  settle();
}

/* The workload of a recording on a real machine, when it is in the image. */
static void toggle_program(void) {
  static const char kProgram[] = "/toggle";
  if (access(kProgram, X_OK) != 0) return;
  say("%s", kProgram);
  pause_trace();
  const pid_t child = fork();
  if (child == 0) {
    // The board has workers of its own; those of the program would be most of the trace.
    execl(kProgram, "toggle", "--rounds", "1", "--workers", "0", "--hold", "1", (char*)NULL);
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) != child) continue;
  say("%s ended with %d", kProgram, WEXITSTATUS(status));
  settle();
}

void steps_open(void) {
  write_file("/proc/sys/kernel/kptr_restrict", "0");
  write_file("/proc/sys/net/core/bpf_jit_enable", "1");
  write_file("/proc/sys/net/core/bpf_jit_kallsyms", "1");
  write_file("/proc/sys/net/core/bpf_jit_harden", "0");
  write_file(TRACING "buffer_size_kb", "64");
}

void steps_run(enum plan plan) {
  static const unsigned kBursts[] = {1, 3, 10};
  burst = kBursts[plan];
  work_burst(burst);
  for (int round = 0; round < (plan == kFull ? 3 : 1); ++round) {
    static_keys(true);
    tracepoint("sched/sched_switch");
    function_tracer("vfs_*");
    kprobes();
    bpf_programs(plan == kFull ? 12 : 6);
    module("/dummy.ko", "dummy", "dummy0");
    toggle_program();
  }
  static_keys(false);
}
