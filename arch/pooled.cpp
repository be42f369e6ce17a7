#include "arch/pooled.h"

#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "textstore/sanitized.h"

namespace asof {
namespace {

constexpr size_t kAlign = alignof(std::max_align_t);

// Under AddressSanitizer nothing waits and nothing lies beside another piece, so that it sees what is used after it was
// given back, or beyond its end.
#ifdef ASOF_ADDRESS_SANITIZER
constexpr size_t kHeapHeld = 0, kMostOfSlab = 0;
#else
constexpr size_t kHeapHeld = size_t{2} << 20;
constexpr size_t kMostOfSlab = kHugePage / 4;
#endif
constexpr size_t kFromHeap = size_t{1} << 20;
constexpr size_t kSlabsHeld = 3;

// What waits for the next decoder, by size, and the memory it comes from: a little from the heap; what a large capture needs
// from slabs, each a huge page. A slab goes back when nothing of it is in use.
class Pool {
 public:
  Pool() { held_.reserve(kSlabsHeld); }
  // nullptr: there is no memory.
  void* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    void* const p = take_waiting(bytes);
    if (p != nullptr) return p;
    if (bytes <= kMostOfSlab) {
      if (void* const cut = cut_off(bytes)) return cut;
    }
    return from_heap(bytes);
  }
  void give_back(void* p, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto slab = slabs_.find(slab_of(p));
    if (slab == slabs_.end()) {
      if (heap_held_ + bytes <= kHeapHeld && wait(p, bytes)) {
        heap_held_ += bytes;
      } else {
        from_heap_ -= bytes;
        std::free(p);
      }
    } else if (--slab->second.in_use == 0) {
      empty(slab);
    } else {
      wait(p, bytes);
    }
  }
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  using SlabId = uintptr_t;
  struct Slab {
    ZeroedArray<std::byte> memory;
    size_t in_use = 0;  // pieces
  };
  using Slabs = std::unordered_map<SlabId, Slab>;

  static SlabId slab_of(const void* p) { return reinterpret_cast<uintptr_t>(p) / kHugePage; }

  void* take_waiting(size_t bytes) {
    const auto same = waiting_.find(bytes);
    if (same == waiting_.end() || same->second.empty()) return nullptr;
    void* const p = same->second.back();
    same->second.pop_back();
    if (const auto slab = slabs_.find(slab_of(p)); slab != slabs_.end())
      ++slab->second.in_use;
    else
      heap_held_ -= bytes;
    return p;
  }
  // False: without memory to say so it does not wait.
  bool wait(void* p, size_t bytes) {
    try {
      waiting_[bytes].push_back(p);
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }
  void* from_heap(size_t bytes) {
    void* const p = std::malloc(bytes);
    if (p != nullptr) from_heap_ += bytes;
    return p;
  }

  // nullptr: the heap is to give it.
  void* cut_off(size_t bytes) {
    const bool much = bytes >= kPooledAlone || from_heap_ + bytes > kFromHeap;
    bytes = (bytes + kAlign - 1) & ~(kAlign - 1);
    if (bytes > left_ && !(much && begin_slab())) return nullptr;
    Slab& slab = slabs_.find(newest_)->second;
    std::byte* const p = slab.memory.get() + (kHugePage - left_);
    left_ -= bytes;
    ++slab.in_use;
    return p;
  }
  // What is left of the one before is not used any more.
  bool begin_slab() {
    try {
      ZeroedArray<std::byte> memory;
      if (held_.empty()) {
        memory = zeroed_array<std::byte>(kHugePage, 0);
      } else {
        memory = std::move(held_.back());
        held_.pop_back();
      }
      const SlabId id = slab_of(memory.get());
      slabs_[id].memory = std::move(memory);
      newest_ = id;
      left_ = kHugePage;
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }
  void empty(Slabs::iterator slab) {
    for (auto& [bytes, all] : waiting_)
      std::erase_if(all, [&](void* p) { return slab_of(p) == slab->first; });
    if (slab->first == newest_) left_ = 0;
    if (held_.size() < kSlabsHeld) held_.push_back(std::move(slab->second.memory));
    slabs_.erase(slab);
  }

  std::mutex mutex_;
  std::unordered_map<size_t, std::vector<void*>> waiting_;
  size_t heap_held_ = 0;  // of what waits
  size_t from_heap_ = 0;  // in use, or waiting
  Slabs slabs_;           // of which something is in use
  SlabId newest_ = 0;
  size_t left_ = 0;                           // of the newest
  std::vector<ZeroedArray<std::byte>> held_;  // empty
};

// Outlives every decoder, also those that static objects hold.
Pool* make_pool();
Pool& pool() {
  static Pool* const pool = make_pool();
  return *pool;
}
// A child that is made while another thread is in the pool would wait for that thread, which it does not have.
Pool* make_pool() {
  auto made = std::make_unique<Pool>();
  const auto unlock = [] { pool().unlock(); };
  if (::pthread_atfork([] { pool().lock(); }, unlock, unlock) != 0) throw std::bad_alloc();
  return made.release();
}
// Before there are threads: a child that is made while another thread makes the pool would wait for that thread, too.
[[maybe_unused]] const Pool* const kMadeEarly = &pool();

}  // namespace

void PooledFree::operator()(void* p) const { pool().give_back(p, bytes); }

Pooled pooled(size_t bytes) {
  void* const p = pool().take(bytes);
  if (p == nullptr) throw std::bad_alloc();
  return {p, PooledFree{bytes}};
}

}  // namespace asof
