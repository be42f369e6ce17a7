/* What both CPUs do while text changes: a fixed sequence of cheap system calls in pseudo-random order, with a
 * mark of the clock at each. CPU 1 does it in a process of its own, all the time: a machine that is never
 * idle has a clock that only instructions advance. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guest.h"

#if defined(__x86_64__)
enum { kTicksPerMicrosecond = 1000 };
#else
enum { kTicksPerMicrosecond = 62 };
#endif

static struct {
  volatile int stop, pace;
  volatile unsigned credit; /* bursts that the other CPU may still do */
  volatile unsigned rounds;
} * shared;
static int zero_fd, null_fd, pipe_fd[2], sockets[2];
static uint32_t random_state = 1;
static pid_t worker;

void work_open(uint32_t seed) {
  random_state = seed;
  shared = mmap(NULL, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  zero_fd = open("/dev/zero", O_RDONLY);
  null_fd = open("/dev/null", O_WRONLY);
  if (shared == MAP_FAILED || zero_fd < 0 || null_fd < 0 || pipe2(pipe_fd, O_NONBLOCK) != 0 ||
      socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, sockets) != 0) {
    die("cannot set up the work");
  }
}

int work_socket(void) { return sockets[1]; }

static uint32_t next_random(void) {
  random_state = random_state * 1664525U + 1013904223U;
  return random_state >> 16;
}

/* In the emulator this lets the next CPU run. */
static void relax(void) {
#if defined(__x86_64__)
  __asm__ volatile("pause");
#else
  __asm__ volatile("yield");
#endif
}

static void rest(uint64_t ticks) {
  for (const uint64_t begin = counter(); counter() - begin < ticks;) relax();
}

static void item(unsigned which) {
  char bytes[64] = {0};
  struct stat st;
  struct timespec now;
  switch (which) {
    case 0:
      (void)getppid();
      return (void)getuid();
    case 1:
      return (void)read(zero_fd, bytes, sizeof bytes);
    case 2:
      return (void)write(null_fd, bytes, sizeof bytes);
    case 3:
      if (write(pipe_fd[1], bytes, 16) == 16) (void)read(pipe_fd[0], bytes, 16);
      return;
    case 4:
    case 5:
      if (send(sockets[0], bytes, 1 + next_random() % 48, 0) > 0)
        (void)recv(sockets[1], bytes, sizeof bytes, 0);
      return;
    case 6:
      return (void)stat("/dev/null", &st);
    case 7:
      return (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    case 8: {
      char* p = mmap(NULL, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (p == MAP_FAILED) return;
      *(volatile char*)p = 1;
      return (void)munmap(p, kPageBytes);
    }
    default:
      return (void)sched_yield();
  }
}

void work_burst(unsigned items) {
  for (unsigned i = 0; i < items; ++i) {
    mark();
    item(next_random() % 10);
  }
}

void work_start(int cpu) {
  worker = fork();
  if (worker < 0) die("fork");
  if (worker != 0) {
    while (shared->rounds == 0) sched_yield();
    return;
  }
  pin(cpu);
  random_state += 7919;
  while (!shared->stop) {
    const int pace = shared->pace;
    if (pace != kQuiet && shared->credit != 0) {
      work_burst(4);
      __atomic_fetch_sub(&shared->credit, 1, __ATOMIC_RELAXED);
    }
    ++shared->rounds;
    if (pace == kQuiet || pace == kSlow) {
      /* A clock that jumps because both CPUs are idle must not be seen in the trace. */
      const struct timespec t = {0, 2000000};
      ring(BOARD_PAUSE, 0, 0, 0);
      nanosleep(&t, NULL);
      mark();
      ring(BOARD_RESUME, 0, 0, 0);
    } else {
      rest(pace == kBusy ? kTicksPerMicrosecond * 40 : kTicksPerMicrosecond * 400);
    }
  }
  _exit(0);
}

void work_pace(enum work_pace pace, unsigned bursts) {
  shared->pace = pace;
  __atomic_store_n(&shared->credit, bursts, __ATOMIC_RELAXED);
}

void work_stop(void) {
  shared->stop = 1;
  while (waitpid(worker, NULL, 0) != worker) continue;
}
