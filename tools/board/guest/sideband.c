/* perf's side-band: one event per CPU with a ring that is large enough for all records, dumped as it is. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest.h"

enum { kRingPages = 1024 };

static struct perf_event_mmap_page* rings[kCpus];
static uint64_t ids[kCpus], seen[kCpus];

void sideband_open(void) {
  struct perf_event_attr attr = {
      .type = PERF_TYPE_SOFTWARE,
      .size = sizeof attr,
      .config = PERF_COUNT_SW_DUMMY,
      .sample_period = 1,
      .sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU,
      .read_format = PERF_FORMAT_ID,
      .mmap = 1,
      .comm = 1,
      .task = 1,
      .mmap2 = 1,
      .comm_exec = 1,
      .sample_id_all = 1,
      .context_switch = 1,
      .ksymbol = 1,
      .bpf_event = 1,
      .text_poke = 1,
  };
  for (int cpu = 0; cpu < kCpus; ++cpu) {
    const int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0) die("perf_event_open");
    rings[cpu] = mmap(NULL, (size_t)(kRingPages + 1) * kPageBytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_POPULATE, fd, 0);
    if (rings[cpu] == MAP_FAILED) die("no ring");
    if (ioctl(fd, PERF_EVENT_IOC_ID, &ids[cpu]) != 0) die("an event without id");
  }
}

static const uint8_t* ring_bytes(int cpu) { return (const uint8_t*)rings[cpu] + kPageBytes; }

static uint64_t head_of(int cpu) {
  const uint64_t head = __atomic_load_n(&rings[cpu]->data_head, __ATOMIC_ACQUIRE);
  if (head > (uint64_t)kRingPages * kPageBytes - 4096) die("the ring of CPU %d is full", cpu);
  return head;
}

void sideband_each_symbol(void (*f)(uint64_t address, uint32_t size, uint32_t type)) {
  for (int cpu = 0; cpu < kCpus; ++cpu) {
    const uint64_t head = head_of(cpu);
    while (seen[cpu] < head) {
      const uint8_t* p = ring_bytes(cpu) + seen[cpu];
      struct perf_event_header h;
      struct {
        uint64_t address;
        uint32_t size;
        uint16_t type, flags;
      } s;
      memcpy(&h, p, sizeof h);
      memcpy(&s, p + sizeof h, sizeof s);
      seen[cpu] += h.size;
      if (h.type == PERF_RECORD_KSYMBOL && (s.flags & PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER) == 0)
        f(s.address, s.size, s.type);
    }
  }
}

void sideband_dump(void) {
  char text[512];
  const struct perf_event_mmap_page* p = rings[0];
  for (int cpu = 0; cpu < kCpus; ++cpu) {
    char name[32];
    snprintf(name, sizeof name, "ring%d", cpu);
    file_begin(name);
    file_put(ring_bytes(cpu), head_of(cpu));
    file_end();
  }
  /* What make_capture needs of the events: key and number, one a line. */
  snprintf(text, sizeof text,
           "time_shift %u\ntime_mult %u\ntime_zero %llu\nid0 %llu\nid1 %llu\ncap_user_time_zero %u\n",
           p->time_shift, p->time_mult, (unsigned long long)p->time_zero, (unsigned long long)ids[0],
           (unsigned long long)ids[1], (unsigned)p->cap_user_time_zero);
  file_begin("clock");
  file_put(text, strlen(text));
  file_end();
}
