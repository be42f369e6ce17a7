// How the memory of memoised paths grows; all that a walk does with them is in the header, to be inlined.
#include "arch/x86/path_cache.h"

#include <new>
#include <utility>

namespace asof::x86 {

PathCache::Table::Table(unsigned of) : bits(of) {
  const size_t bytes = sizeof(CachedPath) << bits;
  // A mapping begins with a page, so a path is three lines of the cache, not parts of four.
  memory = zeroed_array<std::byte>(bytes, 0);
  paths = reinterpret_cast<CachedPath*>(memory.get());
  // Half of it is read before it is written, which would be two faults for each page.
  populate(paths, bytes);
}

// Without memory it stays as it is.
bool PathCache::grow() {
  if (table_.bits + kStep > kMost) return false;  // it is not asked again for a long time
  try {
    Table larger(table_.bits + kStep);
    ZeroedArray<PathHash> hashes;
    if (hashes_) hashes = zeroed_array<PathHash>(size_t{1} << larger.bits);
    table_ = std::move(larger);
    hashes_ = std::move(hashes);
  } catch (const std::bad_alloc&) {
    return false;
  }
  until_larger_ = kWorth << table_.bits;
  return true;
}

}  // namespace asof::x86
