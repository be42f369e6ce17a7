/* A program that makes code: functions written, run, and overwritten at the same addresses. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "work.h"

enum { kSlots = 4, kSlotBytes = 256, kRounds = 12 };

/* uint64_t f(uint64_t v): some operations, a loop, return. The bytes used. */
static size_t emit(uint8_t* at) {
  uint8_t code[kSlotBytes];
  size_t n = 0;
#ifdef __x86_64__
#define PUT(...)                                  \
  do {                                            \
    const uint8_t b[] = {__VA_ARGS__};            \
    memcpy(code + n, b, sizeof b), n += sizeof b; \
  } while (0)
  PUT(0x48, 0x89, 0xf8); /* mov %rdi, %rax */
  for (unsigned i = 0, count = work_random() % 6; i < count; ++i) {
    const uint32_t c = work_random();
    PUT(0x48, (uint8_t)(c & 1 ? 0x05 : 0x35), (uint8_t)c, (uint8_t)(c >> 8), (uint8_t)(c >> 16),
        0); /* add, xor $c, %rax */
  }
  PUT(0xb9, (uint8_t)(2 + work_random() % 6), 0, 0, 0); /* mov $count, %ecx */
  const size_t loop = n;
  for (unsigned i = 0, count = 1 + work_random() % 3; i < count; ++i) PUT(0x48, 0x8d, 0x44, 0x40, (uint8_t)i);
  PUT(0xa8, 0x04);                    /* test $4, %al */
  PUT(0x74, 0x03);                    /* je over */
  PUT(0x48, 0xff, 0xc0);              /* inc %rax */
  PUT(0xff, 0xc9);                    /* dec %ecx */
  PUT(0x75, (uint8_t)(loop - n - 2)); /* jne loop */
  PUT(0xc3);
#undef PUT
#else
  uint32_t words[32];
  size_t w = 0;
  for (unsigned i = 0, count = 1 + work_random() % 6; i < count; ++i)
    words[w++] = 0x91000400u | (work_random() & 0x3ff) << 10;
  words[w++] = 0x52800001u | (2 + work_random() % 6) << 5; /* mov w1, #count */
  words[w++] = 0x8b000400u;                                /* add x0, x0, x0, lsl #1 */
  words[w++] = 0x71000421u;                                /* subs w1, w1, #1 */
  words[w++] = 0x54ffffc1u;                                /* b.ne -8 */
  words[w++] = 0xd65f03c0u;                                /* ret */
  n = 4 * w;
  memcpy(code, words, n);
#endif
  memcpy(at, code, n);
  __builtin___clear_cache((char*)at, (char*)at + n);
  return n;
}

/* jit-PID.dump, as perf's documentation has it (tools/perf/Documentation/jitdump-specification.txt). */
struct dump_head {
  uint32_t magic, version, bytes, machine, pad, pid;
  uint64_t time, flags;
};
struct dump_load {
  uint32_t id, bytes;
  uint64_t time;
  uint32_t pid, tid;
  uint64_t address, code_address, size, index;
  char name[8];
};

/* perf's clock without -k is not CLOCK_MONOTONIC; the counter converts to it. */
static uint64_t counter(void) {
#ifdef __x86_64__
  uint32_t low, high;
  __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
  return (uint64_t)high << 32 | low;
#else
  uint64_t value;
  __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(value));
  return value;
#endif
}

static int open_dump(void) {
  char name[64];
  snprintf(name, sizeof name, "/tmp/jit-%d.dump", (int)getpid());
  const int fd = open(name, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0666);
  if (fd < 0) return -1;
#ifdef __x86_64__
  const uint32_t machine = EM_X86_64;
#else
  const uint32_t machine = EM_AARCH64;
#endif
  struct dump_head head = {0x4A695444, 1, sizeof head, machine, 0, (uint32_t)getpid(),
                           counter(),  1 /* of the counter */};
  if (write(fd, &head, sizeof head) != (ssize_t)sizeof head) return -1;
  return mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED
             ? -1
             : fd;
}

static int write_load(int fd, const uint8_t* code, size_t size) {
  static uint64_t index;
  const uint32_t pid = (uint32_t)getpid();
  struct dump_load load = {0,
                           (uint32_t)(sizeof load + size),
                           counter(),
                           pid,
                           (uint32_t)syscall(SYS_gettid),
                           (uint64_t)(uintptr_t)code,
                           (uint64_t)(uintptr_t)code,
                           size,
                           index,
                           ""};
  snprintf(load.name, sizeof load.name, "f%03u", (unsigned)(index++ % 1000));
  return write(fd, &load, sizeof load) == (ssize_t)sizeof load && write(fd, code, size) == (ssize_t)size;
}

enum jit { kNoDump, kStrict, kPatching };

// kStrict: as a JIT does that never has its code writable and executable: each slot is a mapping of its own, and its
// record is written when the slot can run. Else in memory that is both at all times; kPatching writes it again, with
// no other record.
static int fill_slot(uint8_t* at, size_t page, enum jit jit, int dump) {
  if (jit == kNoDump) return emit(at) != 0;
  if (jit == kPatching) return write_load(dump, at, emit(at)) && emit(at) != 0;
  // Another page each time: QEMU's translations of what was overwritten in the same one may go on running on arm64.
  if (mmap(at, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at) return 0;
  const size_t size = emit(at);
  return mprotect(at, page, PROT_READ | PROT_EXEC) == 0 && write_load(dump, at, size);
}

static int run(enum jit jit) {
  const int dump = jit == kNoDump ? -1 : open_dump();
  if (jit != kNoDump && dump < 0) return work_failed("jit dump");
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  // A page between two slots keeps their mappings apart.
  const size_t stride = jit == kStrict ? 2 * page : kSlotBytes;
  const int protection = jit == kStrict ? PROT_NONE : PROT_READ | PROT_WRITE | PROT_EXEC;
  uint8_t* code = mmap(NULL, kSlots * stride, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code == MAP_FAILED) return work_failed("mmap");
  uint64_t v = 1;
  for (unsigned round = 0; round < kRounds; ++round) {
    for (unsigned i = 0; i < kSlots; ++i) {
      if (!fill_slot(code + i * stride, page, jit, dump)) return work_failed("jit");
    }
    for (unsigned i = 0; i < 50; ++i) {
      uint64_t (*const f)(uint64_t) = (uint64_t(*)(uint64_t))(uintptr_t)(code + (v >> 3) % kSlots * stride);
      v = f(v) + i;
    }
  }
  return v == 0;
}

int work_jit(void) { return run(kNoDump); }
int work_jitdump(void) { return run(kStrict); }
int work_jitpatch(void) { return run(kPatching); }
