/* Switches that are files: static keys of sysctls, tracepoints, the function tracer, kprobes, modules. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "toggle.h"
#include "undo.h"

void toggle_path(char* out, const char* path) { snprintf(out, kPathMax, "%s%s", toggle_root, path); }

int toggle_tracing_path(char* out, const char* path) {
  static const char* const kRoots[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};
  for (size_t i = 0; i < sizeof kRoots / sizeof *kRoots; ++i) {
    snprintf(out, kPathMax, "%s%s/trace", toggle_root, kRoots[i]);
    if (access(out, F_OK) != 0) continue;
    snprintf(out, kPathMax, "%s%s/%s", toggle_root, kRoots[i], path);
    return 1;
  }
  return 0;
}

int toggle_write(const char* path, const char* text) { return undo_write(path, text, O_TRUNC); }

int toggle_read(const char* path, char* text, size_t size) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  const ssize_t n = read(fd, text, size - 1);
  const int error = n < 0 ? errno : 0;
  close(fd);
  text[n > 0 ? n : 0] = '\0';
  text[strcspn(text, "\n")] = '\0';
  return error;
}

static int set_file(struct toggle* t, int on) { return toggle_write(t->path, on ? t->on_text : t->off_text); }

/* Both values of a switch whose file holds "0" or "1": off is what it is now. */
static size_t add_switch(struct toggle* list, size_t count, size_t room, const char* kind, const char* name) {
  if (count == room) return count;
  struct toggle* t = &list[count];
  if (toggle_read(t->path, t->off_text, sizeof t->off_text) != 0) return count;
  if (strcmp(t->off_text, "0") != 0 && strcmp(t->off_text, "1") != 0) return count;
  if (access(t->path, W_OK) != 0) return count;
  snprintf(t->on_text, sizeof t->on_text, "%s", t->off_text[0] == '0' ? "1" : "0");
  if (undo_note("write", t->path, t->off_text, t->on_text, NULL) != 0) return count;
  t->kind = kind;
  snprintf(t->name, sizeof t->name, "%s", name);
  t->set = set_file;
  return count + 1;
}

size_t toggle_add_keys(struct toggle* list, size_t count, size_t room) {
  /* Each is one static key in Linux 5.14 and later; the first is in every kernel since 4.6. */
  static const char* const kKeys[] = {"kernel/sched_schedstats", "kernel/task_delayacct",
                                      "kernel/bpf_stats_enabled", "kernel/timer_migration"};
  for (size_t i = 0; i < sizeof kKeys / sizeof *kKeys && count < room; ++i) {
    char path[kTextMax];
    snprintf(path, sizeof path, "/proc/sys/%s", kKeys[i]);
    toggle_path(list[count].path, path);
    count = add_switch(list, count, room, "static_key", strrchr(kKeys[i], '/') + 1);
  }
  return count;
}

/* The filter first: without one the tracer changes every function of the kernel. There is only one tracer: of
 * two that are on at a time the second changes the filter, and the first to be switched off ends both. */
static int set_tracer(struct toggle* t, int on) {
  char path[kPathMax];
  int error = 0;
  if (!toggle_tracing_path(path, "set_ftrace_filter")) return ENOENT;
  if (on) error = toggle_write(path, t->on_text);
  if (error != 0) return error;
  error = toggle_write(t->path, on ? "function" : "nop");
  if (!on || error != 0) toggle_write(path, "");
  return error;
}

static size_t add_tracer(struct toggle* list, size_t count, size_t room) {
  static const char* const kFilters[] = {"vfs_read\nvfs_write\n", "ksys_read\n", "schedule\nvfs_read\n"};
  char text[4096];
  char path[kPathMax];
  if (!toggle_tracing_path(path, "available_tracers") || toggle_read(path, text, sizeof text) != 0)
    return count;
  if (strstr(text, "function") == NULL) return count;
  toggle_tracing_path(path, "current_tracer");
  if (toggle_read(path, text, sizeof text) != 0 || strcmp(text, "nop") != 0) return count; /* it is in use */
  char filter[kPathMax];
  if (!toggle_tracing_path(filter, "set_ftrace_filter") || undo_note("write", filter, "", NULL) != 0 ||
      undo_note("write", path, "nop", "function", NULL) != 0)
    return count;
  for (size_t i = 0; i < sizeof kFilters / sizeof *kFilters && count < room; ++i) {
    struct toggle* t = &list[count++];
    t->kind = "ftrace";
    snprintf(t->name, sizeof t->name, "filter %zu", i + 1);
    snprintf(t->path, sizeof t->path, "%s", path);
    snprintf(t->on_text, sizeof t->on_text, "%s", kFilters[i]);
    t->set = set_tracer;
    t->hold_ms = 20;
  }
  return count;
}

static const struct {
  const char *event, *definition;
  int search; /* for an offset of an instruction, after what the function tracer uses */
} kProbes[] = {
    {"asof_entry", "p:asof/asof_entry vfs_write", 0},
    {"asof_return", "r:asof/asof_return vfs_read", 0},
    {"asof_inside", "p:asof/asof_inside vfs_read", 1},
    {"asof_inside2", "p:asof/asof_inside2 ksys_read", 1},
};
enum { kProbeCount = sizeof kProbes / sizeof *kProbes, kFurthest = 48 };

static size_t add_probe(struct toggle* list, size_t count, size_t room, size_t i) {
  char definition[kTextMax];
  char events[kPathMax];
  char path[kTextMax];
  int error = ENOENT;
  if (count == room || !toggle_tracing_path(events, "kprobe_events")) return count;
  snprintf(definition, sizeof definition, "-:asof/%s", kProbes[i].event);
  if (undo_note("append", events, definition, NULL) != 0) return count;
  for (unsigned offset = kProbes[i].search ? 8 : 0; error != 0 && offset <= kFurthest; ++offset) {
    if (kProbes[i].search)
      snprintf(definition, sizeof definition, "%s+%u\n", kProbes[i].definition, offset);
    else
      snprintf(definition, sizeof definition, "%s\n", kProbes[i].definition);
    error = undo_write(events, definition, O_APPEND);
    if (!kProbes[i].search) break;
  }
  if (error != 0) return count;
  snprintf(path, sizeof path, "events/asof/%s/enable", kProbes[i].event);
  toggle_tracing_path(list[count].path, path);
  const size_t after = add_switch(list, count, room, "kprobe", kProbes[i].event);
  /* Optimising happens some time after arming (kernel/kprobes.c: OPTIMIZE_DELAY). */
  if (after != count) list[count].hold_ms = kProbes[i].search ? 120 : 0;
  return after;
}

size_t toggle_add_tracing(struct toggle* list, size_t count, size_t room) {
  static const char* const kEvents[] = {"sched/sched_switch", "raw_syscalls/sys_enter", "kmem/kmalloc"};
  for (size_t i = 0; i < sizeof kEvents / sizeof *kEvents && count < room; ++i) {
    char path[kTextMax];
    snprintf(path, sizeof path, "events/%s/enable", kEvents[i]);
    if (!toggle_tracing_path(list[count].path, path)) return count;
    count = add_switch(list, count, room, "tracepoint", strrchr(kEvents[i], '/') + 1);
  }
  count = add_tracer(list, count, room);
  for (size_t i = 0; i < kProbeCount; ++i) count = add_probe(list, count, room, i);
  return count;
}

void toggle_end_tracing(void) {
  char path[kPathMax];
  char text[kTextMax];
  if (!toggle_tracing_path(path, "kprobe_events")) return;
  for (size_t i = 0; i < kProbeCount; ++i) {
    char event[kPathMax];
    snprintf(text, sizeof text, "events/asof/%s", kProbes[i].event);
    toggle_tracing_path(event, text);
    if (access(event, F_OK) != 0) continue;
    snprintf(text, sizeof text, "-:asof/%s\n", kProbes[i].event);
    undo_write(path, text, O_APPEND);
  }
}

static int set_module(struct toggle* t, int on) {
#if defined(SYS_finit_module) && defined(SYS_delete_module)
  if (!on) return syscall(SYS_delete_module, t->name, O_NONBLOCK) == 0 ? 0 : errno;
  char loaded[kPathMax];
  snprintf(loaded, sizeof loaded, "/sys/module/%s", t->name);
  if (access(loaded, F_OK) == 0) return EEXIST; /* and is not ours to take out */
  const int noted = undo_note("module", t->name, NULL);
  if (noted != 0) return noted;
  const int fd = open(t->path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int error = syscall(SYS_finit_module, fd, "", 0) == 0 ? 0 : errno;
  close(fd);
  return error;
#else
  (void)t, (void)on;
  return ENOSYS;
#endif
}

size_t toggle_add_module(struct toggle* list, size_t count, size_t room, const char* file) {
  if (count == room) return count;
  if (access(file, R_OK) != 0) {
    fprintf(stderr, "toggle: --module %s: %s\n", file, strerror(errno));
    return count;
  }
  struct toggle* t = &list[count];
  const char* base = strrchr(file, '/');
  t->kind = "module";
  snprintf(t->name, sizeof t->name, "%s", base != NULL ? base + 1 : file);
  t->name[strcspn(t->name, ".")] = '\0';
  for (char* c = t->name; *c != '\0'; ++c) {
    if (*c == '-') *c = '_';
  }
  snprintf(t->path, sizeof t->path, "%s", file);
  t->set = set_module;
  t->hold_ms = 20;
  return count + 1;
}
