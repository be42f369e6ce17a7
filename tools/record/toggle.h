/* toggle: makes a running kernel change its own text in every way that has a switch, puts everything back,
 * and says when it did what. The workload of recordings that are to be validated, on real machines and inside
 * simulated boards. Plain C of libc only, so that it can be linked statically and run as a guest's first
 * program; needs /proc, /sys/kernel/tracing and bpf(2), and goes on without what is missing.
 *
 * Who changes which text: docs/live-text.md, "Who changes text". */
#ifndef ASOF_TOOLS_RECORD_TOGGLE_H
#define ASOF_TOOLS_RECORD_TOGGLE_H

#include <stddef.h>
#include <stdint.h>

enum { kPathMax = 512, kTextMax = 256 };

/* Something that can be switched. set() gives 0 or an errno value; a state that was not there before comes
 * back with set(t, 0). */
struct toggle {
  const char* kind; /* "static_key", "tracepoint", "ftrace", "kprobe", "bpf", "module" */
  char name[kTextMax];
  int (*set)(struct toggle* t, int on);
  char path[kPathMax];
  char on_text[kTextMax], off_text[kTextMax]; /* written to `path` */
  unsigned hold_ms;                           /* how long it stays on at least */
  int is_on, fd, link_fd;
  uint32_t number;
};

/* Prefix of /proc and /sys, for tests: "" on a real machine. */
extern const char* toggle_root;

/* Random numbers of one seed: the order of everything depends on nothing else. */
uint32_t toggle_random(void);

/* Both give 0 or an errno value. */
int toggle_write(const char* path, const char* text);
int toggle_read(const char* path, char* text, size_t size);
/* toggle_root + path; for what lies below the tracing directory, wherever that is mounted. */
void toggle_path(char* out, const char* path);
int toggle_tracing_path(char* out, const char* path);

/* Each appends the toggles of its kind that this machine has, and returns the new count. */
size_t toggle_add_keys(struct toggle* list, size_t count, size_t room);
size_t toggle_add_tracing(struct toggle* list, size_t count, size_t room);
size_t toggle_add_bpf(struct toggle* list, size_t count, size_t room);
size_t toggle_add_module(struct toggle* list, size_t count, size_t room, const char* file);
/* Takes away what the toggles of these kinds put into the tracing directory. */
void toggle_end_tracing(void);

/* BTF id of a kernel function, 0: not found. */
uint32_t toggle_btf_function(const char* name);

/* System calls of many kinds: the code whose text is being changed. */
void toggle_work(unsigned rounds);
/* One process for each CPU that works until killed; toggle_end_workers() ends them. */
void toggle_start_workers(unsigned count);
void toggle_end_workers(void);

#endif
