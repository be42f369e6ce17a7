#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <unistd.h>

#include "guest.h"

void say(const char* format, ...) {
  va_list list;
  va_start(list, format);
  printf("board: ");
  vprintf(format, list);
  printf("\n");
  fflush(stdout);
  va_end(list);
}

void die(const char* format, ...) {
  const int error = errno;
  va_list list;
  va_start(list, format);
  printf("board: FAILED: ");
  vprintf(format, list);
  printf(" (%s)\n", strerror(error));
  fflush(stdout);
  va_end(list);
  reboot(RB_AUTOBOOT);
  _exit(1);
}

bool write_file(const char* path, const char* text) {
  const int fd = open(path, O_WRONLY | O_APPEND);
  bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  const int error = errno;
  if (fd >= 0 && close(fd) != 0) done = false;
  if (!done) say("%s: \"%s\" refused: %s", path, text, strerror(error));
  return done;
}

char* read_file(const char* path, size_t* size) {
  const int fd = open(path, O_RDONLY);
  if (fd < 0) die("cannot open %s", path);
  size_t capacity = 1 << 16, used = 0;
  char* out = malloc(capacity);
  for (;;) {
    if (out == NULL) die("no memory for %s", path);
    const ssize_t n = read(fd, out + used, capacity - used - 1);
    if (n < 0) die("cannot read %s", path);
    if (n == 0) break;
    used += (size_t)n;
    if (capacity - used < 4096) out = realloc(out, capacity *= 2);
  }
  close(fd);
  out[used] = 0;
  if (size != NULL) *size = used;
  return out;
}

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) die("cannot stay on CPU %d", cpu);
}
