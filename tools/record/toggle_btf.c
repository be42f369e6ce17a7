/* The BTF id of a kernel function, read from /sys/kernel/btf/vmlinux. Format: Documentation/bpf/btf.rst.
 * Types are numbered from 1 in file order; what follows a type's header depends on its kind alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/btf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "toggle.h"

enum { kMostBtf = 64 << 20 };

static size_t extra_size(const struct btf_type* t) { /* after the header; ~0: not a known kind */
  const size_t n = BTF_INFO_VLEN(t->info);
  switch (BTF_INFO_KIND(t->info)) {
    case 1:  /* INT */
    case 14: /* VAR */
    case 17: /* DECL_TAG */
      return 4;
    case 3:  /* ARRAY */
    case 4:  /* STRUCT */
    case 5:  /* UNION */
    case 15: /* DATASEC */
    case 19: /* ENUM64 */
      return 12 * (BTF_INFO_KIND(t->info) == 3 ? 1 : n);
    case 6:  /* ENUM */
    case 13: /* FUNC_PROTO */
      return 8 * n;
    case 2:  /* PTR */
    case 7:  /* FWD */
    case 8:  /* TYPEDEF */
    case 9:  /* VOLATILE */
    case 10: /* CONST */
    case 11: /* RESTRICT */
    case 12: /* FUNC */
    case 16: /* FLOAT */
    case 18: /* TYPE_TAG */
      return 0;
    default:
      return ~(size_t)0;
  }
}

static uint32_t find(const char* data, size_t size, const char* name) {
  const struct btf_header* header = (const struct btf_header*)data;
  if (size < sizeof *header || header->magic != BTF_MAGIC || header->hdr_len > size) return 0;
  const size_t left = size - header->hdr_len;
  if (header->type_off > left || header->type_len > left - header->type_off || header->str_off > left ||
      header->str_len > left - header->str_off)
    return 0;
  const char* types = data + header->hdr_len + header->type_off;
  const char* strings = data + header->hdr_len + header->str_off;
  const size_t length = strlen(name) + 1;
  uint32_t id = 1;
  for (size_t at = 0; header->type_len - at >= sizeof(struct btf_type); ++id) {
    struct btf_type t;
    memcpy(&t, types + at, sizeof t);
    at += sizeof t;
    if (BTF_INFO_KIND(t.info) == BTF_KIND_FUNC && t.name_off < header->str_len &&
        header->str_len - t.name_off >= length && memcmp(strings + t.name_off, name, length) == 0)
      return id;
    const size_t extra = extra_size(&t);
    if (extra > header->type_len - at) return 0;
    at += extra;
  }
  return 0;
}

uint32_t toggle_btf_function(const char* name) {
  char path[kPathMax];
  toggle_path(path, "/sys/kernel/btf/vmlinux");
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char* data = malloc(kMostBtf);
  size_t size = 0;
  ssize_t n = 0;
  while (data != NULL && size < kMostBtf && (n = read(fd, data + size, kMostBtf - size)) > 0)
    size += (size_t)n;
  close(fd);
  const uint32_t id = data != NULL && n == 0 ? find(data, size, name) : 0;
  free(data);
  return id;
}
