/* User code that is unusual to follow: PTWRITE, signals, single steps, filters of system calls, switches, a probe's target. */
#define _GNU_SOURCE
#include <elf.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "work.h"

int work_ptwrite(void) {
#ifdef __x86_64__
  uint64_t memory[2] = {0x1122334455667788u, 0};
  for (uint64_t i = 0; i < 20; ++i) {
    const uint64_t value = work_compute(memory[0] + i, 200);
    memory[i % 2] = value;
    __asm__ volatile(".byte 0xf3, 0x48, 0x0f, 0xae, 0xe0" ::"a"(value));             /* ptwrite %rax */
    __asm__ volatile(".byte 0xf3, 0x41, 0x0f, 0xae, 0xe1" ::: "r9");                 /* ptwrite %r9d */
    __asm__ volatile(".byte 0xf3, 0x48, 0x0f, 0xae, 0x26" ::"S"(memory) : "memory"); /* ptwriteq (%rsi) */
    __asm__ volatile(".byte 0xf3, 0x0f, 0xae, 0x66, 0x08" ::"S"(memory) : "memory"); /* ptwritel 8(%rsi) */
  }
  return 0;
#else
  fputs("work: PTWRITE is of x86\n", stderr);
  return 1;
#endif
}

static volatile uint64_t handled;
static void on_signal(int number) { handled = work_compute(handled + (uint64_t)number, 20); }

int work_signals(void) {
  struct sigaction action = {.sa_handler = on_signal};
  if (sigaction(SIGUSR1, &action, NULL) != 0 || sigaction(SIGALRM, &action, NULL) != 0)
    return work_failed("sigaction");
  const struct timespec soon = {0, 200000};
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
  const struct itimerspec every = {soon, soon};
  timer_t timer;
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &every, NULL) != 0)
    return work_failed("timer");
  for (unsigned i = 0; i < 30; ++i) {
    raise(SIGUSR1);
    work_compute(i, 2000);
  }
  timer_delete(timer);
  return handled == 0;
}

int work_stepped(void) {
  const pid_t child = fork();
  if (child < 0) return work_failed("fork");
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    _exit((int)(work_compute(1, 20) & 0));
  }
  int status = 0;
  waitpid(child, &status, 0);
  for (unsigned steps = 0; WIFSTOPPED(status) && steps < 300; ++steps) {
    if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0) return work_failed("PTRACE_SINGLESTEP");
    waitpid(child, &status, 0);
  }
  if (WIFSTOPPED(status)) {
    ptrace(PTRACE_CONT, child, NULL, NULL);
    waitpid(child, &status, 0);
  }
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

/* Filters of growing length, one over the other: the kernel compiles each, and all run at each system call. */
int work_seccomp(void) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return work_failed("PR_SET_NO_NEW_PRIVS");
  for (unsigned k = 0; k < 5; ++k) {
    struct sock_filter code[40];
    unsigned short n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < 4 + 6 * k; ++i) {
      code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 5000 + work_random() % 1000, 0, 1);
      code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1);
      if (n > 36) break;
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog program = {n, code};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) return work_failed("seccomp");
    for (unsigned i = 0; i < 20; ++i) {
      syscall(SYS_getppid);
      syscall(5001 + i);
    }
  }
  return 0;
}

enum { kTurns = 60 };
static int pipes[2][2];

static void* answer(void* unused) {
  char byte = 0;
  for (unsigned i = 0; i < kTurns; ++i) {
    if (read(pipes[0][0], &byte, 1) != 1) break;
    work_compute(i, 100);
    if (write(pipes[1][1], &byte, 1) != 1) break;
  }
  return unused;
}

/* Threads and processes that wake each other, sleep, and change their CPU. */
int work_switch(void) {
  pthread_t thread;
  if (pipe(pipes[0]) != 0 || pipe(pipes[1]) != 0) return work_failed("pipe");
  if (pthread_create(&thread, NULL, answer, NULL) != 0) return work_failed("pthread_create");
  const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  const pid_t child = fork();
  if (child == 0) {
    for (unsigned i = 0; i < kTurns; ++i) {
      const struct timespec t = {0, 20000 + (long)(work_random() % 200000)};
      work_compute(i, 300);
      nanosleep(&t, NULL);
    }
    _exit(0);
  }
  for (unsigned i = 0; i < kTurns; ++i) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(work_random() % (unsigned)cpus, &set);
    if (i % 8 == 0) sched_setaffinity(0, sizeof set, &set);
    char byte = (char)i;
    if (write(pipes[0][1], &byte, 1) != 1 || read(pipes[1][0], &byte, 1) != 1) return work_failed("pipe");
    if (i % 5 == 0) sched_yield();
    work_compute(i, 200);
  }
  pthread_join(thread, NULL);
  waitpid(child, NULL, 0);
  return 0;
}

/* Begins with the one NOP that Linux 7.3 turns into a CALL (is_optimizable_nop10()) where earlier ones use INT3. */
__attribute__((noinline, noclone)) uint64_t uprobe_target(uint64_t v);
#ifdef __x86_64__
__asm__(
    ".text\n.p2align 4\n.globl uprobe_target\n.type uprobe_target, @function\nuprobe_target:\n"
    ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00\n"
    "lea 1(%rdi,%rdi,2), %rax\nret\n.size uprobe_target, . - uprobe_target\n");
#else
uint64_t uprobe_target(uint64_t v) {
  __asm__ volatile("nop");
  return v * 3 + 1;
}
#endif

int work_uprobe(void) {
  uint64_t v = work_seed;
  for (unsigned i = 0; i < 400; ++i) {
    v = uprobe_target(v);
    v = work_compute(v, 30);
  }
  return v == 0;
}

/* Where uprobe_target and work_compute are in this file, for tracefs. */
int work_uprobe_offset(void) {
  extern const char __ehdr_start[];
  const Elf64_Ehdr* head = (const Elf64_Ehdr*)(const void*)__ehdr_start;
  const Elf64_Phdr* p = (const Elf64_Phdr*)(const void*)(__ehdr_start + head->e_phoff);
  const uint64_t base = head->e_type == ET_DYN ? (uint64_t)(uintptr_t)__ehdr_start : 0;
  const uint64_t at[2] = {(uint64_t)(uintptr_t)uprobe_target - base,
                          (uint64_t)(uintptr_t)work_compute - base};
  for (unsigned k = 0; k < 2; ++k) {
    for (unsigned i = 0; i < head->e_phnum; ++i) {
      if (p[i].p_type == PT_LOAD && at[k] - p[i].p_vaddr < p[i].p_filesz)
        printf("0x%llx\n", (unsigned long long)(at[k] - p[i].p_vaddr + p[i].p_offset));
    }
  }
  return 0;
}
