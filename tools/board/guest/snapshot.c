/* Copies of the kernel's text out of /proc/kcore as perf record --kcore makes them, of kallsyms and modules;
 * and the bytes that a watcher reads when a symbol appears (ksym_text.bin, docs/bundle.md). */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest.h"

static char* kallsyms;
static uint8_t* watched;
static size_t watched_bytes, watched_capacity;

void symbols_load(void) {
  free(kallsyms);
  kallsyms = read_file("/proc/kallsyms", NULL);
}

/* Lines "address type name[\t[module]]". No sscanf: it measures the whole rest of the text each time. */
void symbols_each(void (*f)(const char* name, uint64_t address, const char* module)) {
  for (char* p = kallsyms; *p != 0;) {
    char *end = strchr(p, '\n'), *rest;
    if (end == NULL) break;
    *end = 0;
    const uint64_t address = strtoull(p, &rest, 16);
    if (strlen(rest) > 3) {
      char* name = rest + 3;
      char* tab = strchr(name, '\t');
      if (tab != NULL) *tab = 0;
      f(name, address, tab != NULL ? tab + 1 : "");
      if (tab != NULL) *tab = '\t';
    }
    *end = '\n';
    p = end + 1;
  }
}

uint64_t symbol(const char* name) {
  const size_t length = strlen(name);
  for (const char* p = kallsyms; (p = strstr(p, name)) != NULL; p += length) {
    if (p[-1] == ' ' && (p[length] == '\n' || p[length] == '\t')) {
      while (p > kallsyms && p[-1] != '\n') --p;
      return strtoull(p, NULL, 16);
    }
  }
  return 0;
}

/* The offset of an address in /proc/kcore. */
struct span {
  uint64_t offset, left;
};

static struct span kcore_at(int fd, uint64_t address) {
  Elf64_Ehdr head;
  if (pread(fd, &head, sizeof head, 0) != sizeof head) die("cannot read /proc/kcore");
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr p;
    if (pread(fd, &p, sizeof p, (off_t)(head.e_phoff + i * sizeof p)) != sizeof p) break;
    if (p.p_type == PT_LOAD && address >= p.p_vaddr && address - p.p_vaddr < p.p_memsz)
      return (struct span){p.p_offset + (address - p.p_vaddr), p.p_memsz - (address - p.p_vaddr)};
  }
  return (struct span){0, 0};
}

/* Bytes that cannot be read are zero, as in perf's copy. */
static void read_kcore(int fd, uint64_t address, uint8_t* out, size_t size) {
  memset(out, 0, size);
  const struct span at = kcore_at(fd, address);
  if (at.left < size || pread(fd, out, size, (off_t)at.offset) < 0) return;
}

static uint64_t module_low, module_high;
static void widen_modules(const char* name, uint64_t address, const char* module) {
  (void)name;
  if (module[0] == 0 || address < 1ULL << 63) return;
  /* Per-CPU variables of modules have small addresses, data may lie elsewhere: only places near the text
   * count. */
  if (module_low == 0 || address < module_low) module_low = address;
  if (address > module_high) module_high = address;
}

struct board_segment {
  uint64_t address, bytes;
};

static void put_segment(int fd, uint64_t begin, uint64_t end) {
  static uint8_t page[16 * kPageBytes];
  const struct board_segment head = {begin, end - begin};
  file_put(&head, sizeof head);
  for (uint64_t at = begin; at < end; at += sizeof page) {
    const size_t n = end - at < sizeof page ? end - at : sizeof page;
    read_kcore(fd, at, page, n);
    file_put(page, n);
  }
}

static void put_copy(const char* name, const char* suffix, const char* path) {
  char full[64];
  size_t size;
  snprintf(full, sizeof full, "%s%s", name, suffix);
  char* text = read_file(path, &size);
  file_begin(full);
  file_put(text, size);
  file_end();
  free(text);
}

void snapshot(const char* suffix) {
  char name[64];
  symbols_load();
  module_low = module_high = 0;
  symbols_each(widen_modules);
  const int fd = open("/proc/kcore", O_RDONLY);
  if (fd < 0) die("no /proc/kcore");
  snprintf(name, sizeof name, "kcore%s", suffix);
  file_begin(name);
  put_segment(fd, symbol("_stext") & ~4095ULL, (symbol("_etext") + 4095) & ~4095ULL);
  if (module_high != 0)
    put_segment(fd, module_low & ~4095ULL, ((module_high + 4095) & ~4095ULL) + kPageBytes);
  file_end();
  close(fd);
  put_copy("kallsyms", suffix, "/proc/kallsyms");
  put_copy("modules", suffix, "/proc/modules");
}

void watch_text(uint64_t address, uint32_t size, uint32_t type) {
  const struct {
    uint64_t time, address;
    uint32_t size, type;
  } head = {counter(), address, size, type};
  if (watched_capacity - watched_bytes < sizeof head + size)
    watched = realloc(watched, watched_capacity = 2 * watched_capacity + sizeof head + size);
  const int fd = open("/proc/kcore", O_RDONLY);
  if (watched == NULL || fd < 0) die("cannot keep text");
  memcpy(watched + watched_bytes, &head, sizeof head);
  read_kcore(fd, address, watched + watched_bytes + sizeof head, size);
  watched_bytes += sizeof head + size;
  close(fd);
}

void watch_new_symbols(void) { sideband_each_symbol(watch_text); }

void watch_dump(void) {
  file_begin("ksym_text.bin");
  file_put(watched, watched_bytes);
  file_end();
}
