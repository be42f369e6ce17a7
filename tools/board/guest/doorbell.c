/* The doorbell page (../protocol.h), and files that leave the guest through it. */
#include <string.h>
#include <sys/mman.h>

#include "guest.h"

enum { kBufferBytes = 1 << 20 };

static volatile uint64_t* door;
static uint8_t* buffer;
static size_t used;

uint64_t counter(void) {
#if defined(__x86_64__)
  uint32_t low, high;
  __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
  return (uint64_t)high << 32 | low;
#else
  uint64_t value;
  __asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(value));
  return value;
#endif
}

void doorbell_open(void) {
  door = mmap((void*)BOARD_DOORBELL, BOARD_DOORBELL_BYTES, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED | MAP_POPULATE, -1, 0);
  buffer =
      mmap(NULL, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (door == MAP_FAILED || buffer == MAP_FAILED) die("no memory for the doorbell");
}

void ring(enum board_command command, uint64_t a, uint64_t b, uint64_t c) {
  door[BOARD_ARG1] = a, door[BOARD_ARG2] = b, door[BOARD_ARG3] = c;
  door[BOARD_COMMAND] = command;
}

/* Always the same instructions between the counter and the store, so that the distance is known. */
void mark(void) {
#if defined(__x86_64__)
  __asm__ volatile(
      "rdtsc\n\t"
      "shl $32, %%rdx\n\t"
      "or %%rdx, %%rax\n\t"
      "mov %%rax, (%0)"
      :
      : "r"(door + BOARD_MARK)
      : "rax", "rdx", "cc", "memory");
#else
  uint64_t value;
  __asm__ volatile(
      "mrs %0, cntvct_el0\n\t"
      "nop\n\t"
      "nop\n\t"
      "str %0, [%1]"
      : "=&r"(value)
      : "r"(door + BOARD_MARK)
      : "memory");
#endif
}

static void flush(void) {
  if (used == 0) return;
  ring(BOARD_DUMP, (uint64_t)buffer, used, 0);
  for (size_t at = 0; at < used; at += kPageBytes) (void)*(volatile uint8_t*)(buffer + at);
  used = 0;
}

void file_begin(const char* name) {
  uint64_t words[8] = {0};
  memcpy(words, name, strlen(name) < sizeof words ? strlen(name) : sizeof words - 1);
  for (unsigned i = 0; i < 8; ++i) door[BOARD_NAME + i] = words[i];
  ring(BOARD_FILE, 0, 0, 0);
}

void file_put(const void* bytes, size_t size) {
  for (const uint8_t* p = bytes; size != 0;) {
    const size_t n = size < kBufferBytes - used ? size : kBufferBytes - used;
    memcpy(buffer + used, p, n);
    used += n, p += n, size -= n;
    if (used == kBufferBytes) flush();
  }
}

void file_end(void) {
  flush();
  door[BOARD_NAME] = 0;
  ring(BOARD_FILE, 0, 0, 0);
}
