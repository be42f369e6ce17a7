#include "arch/pooled.h"
#include "textstore/sanitized.h"

#include <cstdlib>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

namespace asof {
namespace {

// What waits for the next decoder, by size. Under AddressSanitizer nothing waits, so that it sees what is used
// after it was given back.
class Pool {
 public:
  void* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto same = free_.find(bytes);
    if (same == free_.end() || same->second.empty()) return nullptr;
    void* const p = same->second.back();
    same->second.pop_back();
    held_ -= bytes;
    return p;
  }
  bool keep(void* p, size_t bytes) {
#ifdef ASOF_ADDRESS_SANITIZER
    return false;
#endif
    const std::lock_guard lock(mutex_);
    if (held_ + bytes > kMost) return false;
    try {
      free_[bytes].push_back(p);
    } catch (const std::bad_alloc&) {
      return false;
    }
    held_ += bytes;
    return true;
  }

 private:
  static constexpr size_t kMost = size_t{8} << 20;

  std::mutex mutex_;
  std::unordered_map<size_t, std::vector<void*>> free_;
  size_t held_ = 0;
};

// Outlives every decoder, also those that static objects hold.
Pool& pool() {
  static Pool& pool = *new Pool;
  return pool;
}

}  // namespace

void PooledFree::operator()(void* p) const {
  if (!pool().keep(p, bytes)) std::free(p);
}

Pooled pooled(size_t bytes) {
  void* p = pool().take(bytes);
  if (p == nullptr) p = std::malloc(bytes);
  if (p == nullptr) throw std::bad_alloc();
  return {p, PooledFree{bytes}};
}

}  // namespace asof
