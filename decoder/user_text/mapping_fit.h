// Whether a record of a mapping can be true: a loader maps a file by its program headers.
#pragma once
#include <cstdint>

#include "decoder/model/image.h"
#include "textstore/address.h"

namespace asof {

// Can code of `elf` have been mapped from `pgoff` on at `range`? As binfmt_elf.c elf_load() and glibc's
// _dl_map_object_from_fd() do it: a segment by whole pages, or pieces of one with code (mprotect()); the first one with
// room for all (total_mapping_size()); at the address it was linked for, but for whole pages, which are none for ET_EXEC.
// True where the file has no program headers.
bool can_be_mapped(const ElfImage& elf, AddrRange range, uint64_t pgoff);

}  // namespace asof
