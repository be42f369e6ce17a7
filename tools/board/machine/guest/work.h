/* The workloads that are programs: `work NAME`. Static, of libc only; each returns 0 when it did what it is for. */
#ifndef ASOF_MACHINE_WORK_H
#define ASOF_MACHINE_WORK_H

#include <stdint.h>

extern uint32_t work_seed;

int work_jit(void);
int work_jitdump(void);
int work_jitpatch(void);
int work_ptwrite(void);
int work_seccomp(void);
int work_signals(void);
int work_stepped(void);
int work_switch(void);
int work_tailcall(void);
int work_trampoline(void);
int work_uprobe(void);
int work_uprobe_offset(void);
int work_vdso(void);
int work_xdp(void);

/* Arithmetic with branches, calls and indirect calls: the user code that most of them run. */
uint64_t work_compute(uint64_t value, unsigned rounds);
uint32_t work_random(void);
/* Says why, with errno; 1. */
int work_failed(const char* what);

#endif
