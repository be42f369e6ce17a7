/* The vDSO of this process into the build-id cache that is the working directory, as perf before 7.0 puts it there: an
 * analysis on another machine has it from nowhere else. */
#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "work.h"

enum { kIdBytes = 20 };

static int find_id(const uint8_t* image, char text[2 * kIdBytes + 1]) {
  const Elf64_Ehdr* head = (const Elf64_Ehdr*)(const void*)image;
  const Elf64_Phdr* p = (const Elf64_Phdr*)(const void*)(image + head->e_phoff);
  for (unsigned i = 0; i < head->e_phnum; ++i) {
    for (size_t at = 0; p[i].p_type == PT_NOTE && at < p[i].p_filesz;) {
      const Elf64_Nhdr* note = (const Elf64_Nhdr*)(const void*)(image + p[i].p_offset + at);
      const uint8_t* name = (const uint8_t*)(note + 1);
      const uint8_t* id = name + ((note->n_namesz + 3) & ~3u);
      if (note->n_type == NT_GNU_BUILD_ID && note->n_descsz == kIdBytes && memcmp(name, "GNU", 4) == 0) {
        for (unsigned k = 0; k < kIdBytes; ++k) sprintf(text + (size_t)2 * k, "%02x", id[k]);
        return 1;
      }
      at = (size_t)(id + ((note->n_descsz + 3) & ~3u) - (image + p[i].p_offset));
    }
  }
  return 0;
}

int work_vdso(void) {
  const uint8_t* image = (const uint8_t*)getauxval(AT_SYSINFO_EHDR);
  char id[2 * kIdBytes + 1], path[128], link[128];
  if (image == NULL || !find_id(image, id)) return work_failed("the vDSO has no build-id");
  const Elf64_Ehdr* head = (const Elf64_Ehdr*)(const void*)image;
  const size_t size = head->e_shoff + (size_t)head->e_shnum * head->e_shentsize;
  mkdir(".build-id", 0777);
  snprintf(path, sizeof path, ".build-id/%.2s", id);
  mkdir(path, 0777);
  mkdir("[vdso]", 0777);
  snprintf(path, sizeof path, "[vdso]/%s", id);
  mkdir(path, 0777);
  snprintf(path, sizeof path, "[vdso]/%s/vdso", id);
  FILE* f = fopen(path, "wb");
  if (f == NULL || fwrite(image, 1, size, f) != size || fclose(f) != 0) return work_failed(path);
  snprintf(link, sizeof link, "../../[vdso]/%s", id);
  snprintf(path, sizeof path, ".build-id/%.2s/%s", id, id + 2);
  return symlink(link, path) != 0 && access(path, F_OK) != 0 ? work_failed(path) : 0;
}
