// Preloaded into asof: lets one call fail, as a machine that is out of something would. ASOF_FAULT=KIND:N:ERRNO chooses
// the Nth call of a kind (0: none). The number of calls of that kind goes to the file descriptor ASOF_FAULT_COUNT at exit.
// `large` are the allocations of 64 KiB or more, which libraries ask for themselves.
// Only calls on behalf of asof's own work count: from main() on, and not on files of the system.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char kind[16];
static unsigned long wanted;
static int error_number;
static int count_fd = -1;
static atomic_ulong calls;
static atomic_bool started;

// glibc's own, which need no look-up and so can be used from the first moment on.
extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static bool fails(const char* this_kind) {
  if (!atomic_load(&started) || strcmp(kind, this_kind) != 0) return false;
  if (atomic_fetch_add(&calls, 1) + 1 != wanted) return false;
  errno = error_number;
  return true;
}

__attribute__((constructor)) static void read_choice(void) {
  const char* choice = getenv("ASOF_FAULT");
  const char* fd = getenv("ASOF_FAULT_COUNT");
  if (fd != NULL) count_fd = atoi(fd);
  if (choice == NULL || sscanf(choice, "%15[a-z]:%lu:%d", kind, &wanted, &error_number) != 3) kind[0] = 0;
}

__attribute__((destructor)) static void tell_count(void) {
  atomic_store(&started, false);
  if (count_fd >= 0) dprintf(count_fd, "%lu\n", atomic_load(&calls));
}

static int (*program_main)(int, char**, char**);
static int counted_main(int argc, char** argv, char** environment) {
  atomic_store(&started, true);
  return program_main(argc, argv, environment);
}

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void* stack_end) {
  int (*real)(int (*)(int, char**, char**), int, char**, void (*)(void), void (*)(void), void (*)(void), void*) =
      dlsym(RTLD_NEXT, "__libc_start_main");
  program_main = main;
  return real(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}

static bool no_memory(size_t size) { return fails("alloc") || (size >= 64 << 10 && fails("large")); }

void* malloc(size_t size) { return no_memory(size) ? NULL : __libc_malloc(size); }
void* calloc(size_t n, size_t size) { return no_memory(n * size) ? NULL : __libc_calloc(n, size); }
void* realloc(void* old, size_t size) { return no_memory(size) ? NULL : __libc_realloc(old, size); }
void* aligned_alloc(size_t align, size_t size) { return no_memory(size) ? NULL : __libc_memalign(align, size); }
int posix_memalign(void** out, size_t align, size_t size) {
  void* const memory = no_memory(size) ? NULL : __libc_memalign(align, size);
  if (memory == NULL) return ENOMEM;
  *out = memory;
  return 0;
}

#define REAL(type, name, ...)                                 \
  static type (*real)(__VA_ARGS__);                           \
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, #name)

static bool is_system(const char* path) {
  return strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/sys/", 5) == 0 || strncmp(path, "/usr/", 5) == 0 ||
         strncmp(path, "/etc/", 5) == 0 || strncmp(path, "/lib", 4) == 0 || strncmp(path, "/dev/", 5) == 0;
}

#define OPEN(name)                                                      \
  int name(const char* path, int flags, ...) {                          \
    REAL(int, name, const char*, int, ...);                             \
    va_list list;                                                       \
    va_start(list, flags);                                              \
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(list, mode_t) : 0; \
    va_end(list);                                                       \
    return !is_system(path) && fails("open") ? -1 : real(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)
FILE* fopen(const char* path, const char* mode) {
  REAL(FILE*, fopen, const char*, const char*);
  return !is_system(path) && fails("open") ? NULL : real(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  REAL(FILE*, fopen64, const char*, const char*);
  return !is_system(path) && fails("open") ? NULL : real(path, mode);
}
ssize_t read(int fd, void* to, size_t size) {
  REAL(ssize_t, read, int, void*, size_t);
  return fails("read") ? -1 : real(fd, to, size);
}
ssize_t pread(int fd, void* to, size_t size, off_t at) {
  REAL(ssize_t, pread, int, void*, size_t, off_t);
  return fails("read") ? -1 : real(fd, to, size, at);
}
ssize_t pread64(int fd, void* to, size_t size, off64_t at) {
  REAL(ssize_t, pread64, int, void*, size_t, off64_t);
  return fails("read") ? -1 : real(fd, to, size, at);
}
// What goes to standard error is not what is tested.
ssize_t write(int fd, const void* from, size_t size) {
  REAL(ssize_t, write, int, const void*, size_t);
  return fd != 2 && fd != count_fd && fails("write") ? -1 : real(fd, from, size);
}
ssize_t pwrite(int fd, const void* from, size_t size, off_t at) {
  REAL(ssize_t, pwrite, int, const void*, size_t, off_t);
  return fails("write") ? -1 : real(fd, from, size, at);
}
ssize_t pwrite64(int fd, const void* from, size_t size, off64_t at) {
  REAL(ssize_t, pwrite64, int, const void*, size_t, off64_t);
  return fails("write") ? -1 : real(fd, from, size, at);
}
void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
  REAL(void*, mmap, void*, size_t, int, int, int, off_t);
  return fd >= 0 && fails("mmap") ? MAP_FAILED : real(at, size, protection, flags, fd, offset);
}
void* mmap64(void* at, size_t size, int protection, int flags, int fd, off64_t offset) {
  REAL(void*, mmap64, void*, size_t, int, int, int, off64_t);
  return fd >= 0 && fails("mmap") ? MAP_FAILED : real(at, size, protection, flags, fd, offset);
}
int rename(const char* from, const char* to) {
  REAL(int, rename, const char*, const char*);
  return fails("rename") ? -1 : real(from, to);
}
int fsync(int fd) {
  REAL(int, fsync, int);
  return fails("sync") ? -1 : real(fd);
}
int fdatasync(int fd) {
  REAL(int, fdatasync, int);
  return fails("sync") ? -1 : real(fd);
}
int ftruncate(int fd, off_t size) {
  REAL(int, ftruncate, int, off_t);
  return fails("sync") ? -1 : real(fd, size);
}
int ftruncate64(int fd, off64_t size) {
  REAL(int, ftruncate64, int, off64_t);
  return fails("sync") ? -1 : real(fd, size);
}
int mkdir(const char* path, mode_t mode) {
  REAL(int, mkdir, const char*, mode_t);
  return fails("mkdir") ? -1 : real(path, mode);
}
int pthread_create(pthread_t* out, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  REAL(int, pthread_create, pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  return fails("thread") ? EAGAIN : real(out, attributes, run, argument);
}
