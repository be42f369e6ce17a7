// StableText: blocks of the text that is the same at all times, which is nearly all of it. Shared by all
// decoders of a capture: a block is read once, by whoever comes first, and never changes.
//
// Places are found under a lock, one of many; whoever follows runs (runs.h) seldom asks.
#pragma once
#include <tsl/robin_map.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "arch/arch.h"
#include "textstore/text_store.h"

namespace asof::x86 {

// Memory that lives as long as what it was taken from. Not thread-safe: each thread has its own.
class Arena {
 public:
  // Room for `n` objects that need no destruction.
  template <class T>
  T* take(size_t n) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= alignof(std::max_align_t));
    return static_cast<T*>(take_bytes(n * sizeof(T), alignof(T)));
  }

 private:
  void* take_bytes(size_t bytes, size_t align);

  static constexpr size_t kChunk = size_t{1} << 18;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  size_t used_ = kChunk;
};

// An address where a block may begin.
struct Place {
  Block block;                   // count 0: the careful walk alone knows what is here
  std::atomic<uint32_t> run{0};  // that begins here (runs.h); 0: not known yet
};

class StableText {
 public:
  // `hooks`: kernel addresses that the careful walk wants to see (anchors.cpp).
  StableText(const TextStore& text, TextAt text_at, std::vector<Addr> hooks)
      : text_(text), text_at_(text_at), hooks_(std::move(hooks)) {}

  // Thread-safe. What is new is kept in `arena`.
  Place& at(Space space, Addr ip, uint8_t mode, Arena& arena);
  // An arena for one thread, which lives as long as this does. Thread-safe.
  Arena& new_arena();

 private:
  struct Key {
    Addr ip;
    Space space;
    uint32_t mode;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const {
      const uint64_t h = (k.ip ^ (static_cast<uint64_t>(k.space) << 40) ^ k.mode) * 0x9E3779B97F4A7C15ULL;
      return h ^ (h >> 29);
    }
  };
  static constexpr size_t kShards = 64;
  struct alignas(64) Shard {
    std::mutex mutex;
    tsl::robin_map<Key, Place*, KeyHash> places;
  };

  const Version* only_version(const Cell& cell) const;
  void read(Space space, Addr ip, uint8_t mode, Block& block, Arena& arena) const;

  const TextStore& text_;
  const TextAt text_at_;
  const std::vector<Addr> hooks_;
  std::array<Shard, kShards> shards_;
  std::mutex arenas_mutex_;
  std::vector<std::unique_ptr<Arena>> arenas_;
};

}  // namespace asof::x86
