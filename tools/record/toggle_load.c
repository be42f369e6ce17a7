/* Load: system calls whose kernel code contains the sites that are being changed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "toggle.h"

enum { kMaxWorkers = 256 };
static pid_t workers[kMaxWorkers];
static unsigned worker_count;

static void through(int from, int to) { /* the result does not matter */
  char bytes[64] = {0};
  ssize_t n = write(to, bytes, sizeof bytes);
  if (n > 0) n = read(from, bytes, sizeof bytes);
  (void)n;
}

static void map_a_page(void) {
  char* page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  *(volatile char*)page = 1;
  munmap(page, 4096);
}

void toggle_work(unsigned rounds) {
  static int zero = -1, null = -1, pipes[2] = {-1, -1}, sockets[2] = {-1, -1};
  struct stat st;
  struct timespec t;
  if (zero < 0) {
    zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (pipe2(pipes, O_NONBLOCK | O_CLOEXEC) != 0) pipes[0] = pipes[1] = -1;
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) != 0)
      sockets[0] = sockets[1] = -1;
  }
  for (unsigned i = 0; i < rounds; ++i) {
    char bytes[256];
    ssize_t n = read(zero, bytes, sizeof bytes);
    if (n > 0) n = write(null, bytes, sizeof bytes);
    (void)n;
    through(pipes[0], pipes[1]);
    through(sockets[0], sockets[1]);
    map_a_page();
    (void)stat("/proc/self/stat", &st);
    clock_getres(CLOCK_REALTIME, &t);
    (void)getppid();
    sched_yield();
  }
}

void toggle_start_workers(unsigned count) {
  if (count > kMaxWorkers) count = kMaxWorkers;
  const pid_t parent = getpid();
  for (unsigned i = 0; i < count; ++i) {
    const pid_t child = fork();
    if (child < 0) return;
    if (child > 0) {
      workers[worker_count++] = child;
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(i, &set);
    sched_setaffinity(0, sizeof set, &set); /* where there is no such CPU, anywhere will do */
    const struct timespec pause = {0, 2000000};
    for (;;) {
      toggle_work(16);
      nanosleep(&pause, NULL);
    }
  }
}

void toggle_end_workers(void) {
  for (unsigned i = 0; i < worker_count; ++i) kill(workers[i], SIGKILL);
  for (unsigned i = 0; i < worker_count; ++i) waitpid(workers[i], NULL, 0);
  worker_count = 0;
}
