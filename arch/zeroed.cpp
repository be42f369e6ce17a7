// How memory is mapped so that huge pages begin where they are to.
#include "arch/zeroed.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace asof {

void ZeroedFree::operator()(void*) const { ::munmap(mapping, size); }

ZeroedBytes zeroed_bytes(size_t size, size_t ordinary) {
  const bool huge = size >= ordinary + kHugePage / 2;
  const size_t pages = (size - ordinary + kHugePage - 1) / kHugePage;
  const size_t mapped = huge ? ordinary + (pages + 1) * kHugePage : size;  // wherever it begins
  void* const p =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  if (!huge) return {p, {p, mapped}};
  auto* const begin = static_cast<std::byte*>(p);
  const size_t skipped = -(reinterpret_cast<uintptr_t>(p) + ordinary) % kHugePage;
  // Advice: where there are no huge pages, ordinary ones do.
  ::madvise(begin + skipped + ordinary, pages * kHugePage, MADV_HUGEPAGE);
  return {begin + skipped, {p, mapped}};
}

void populate(void* p, size_t size) { ::madvise(p, size, MADV_POPULATE_WRITE); }

}  // namespace asof
