// StableText: blocks of the text that is the same at all times, which is nearly all of it. Shared by all
// decoders of a capture: a block is read once, by whoever comes first, and never changes.
//
// Where code was found before, finding it takes no lock: a page of addresses has a table of its lines of 64
// bytes, a line has slots for the places in it. So places that are near each other are found near each other,
// as programs run. Pages are under a lock, one of many; each reader remembers those it used last.
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

// The places of 4096 addresses.
class PlacePage {
 public:
  static constexpr Addr kSize = 4096;

  // The place at an address of the page; nullptr: none yet. Thread-safe.
  Place* find(Addr ip) const;
  // Adds a place, unless one is there: returns that then. Thread-safe. Memory is from `arena`.
  Place& add(Addr ip, Place& fresh, Arena& arena);

 private:
  // A place and the low bits of its address, above those that pointers have. Filled from the first on.
  class Slot {
   public:
    bool set() const { return bits_.load(std::memory_order_acquire) != 0; }
    Place* at(Addr ip) const;  // nullptr: another's
    void fill(Addr ip, Place& place);

   private:
    std::atomic<uint64_t> bits_{0};
  };
  struct Line {
    std::array<Slot, 7> slots;
    std::atomic<Line*> more{nullptr};
  };
  static constexpr Addr kLine = 64;

  std::array<std::atomic<Line*>, kSize / kLine> lines_{};
  std::mutex adding_;
};

class StableText {
 public:
  // `hooks`: kernel addresses that the careful walk wants to see (anchors.cpp).
  StableText(const TextStore& text, TextAt text_at, std::vector<Addr> hooks)
      : text_(text), text_at_(text_at), hooks_(std::move(hooks)) {}

  // One thread's way to the places. Must not outlive its text.
  class Reader {
   public:
    explicit Reader(StableText& text) : text_(text), arena_(text.new_arena()) {}
    // The place at an address, read when it is new.
    Place& at(Space space, Addr ip, uint8_t mode);
    // Memory that lives as long as the text.
    Arena& arena() { return arena_; }

   private:
    struct Recent {
      Addr page = 0;
      Space space = kNoSpace;
      uint32_t mode = 0;
      PlacePage* places = nullptr;
    };
    static constexpr size_t kRecent = 512;

    StableText& text_;
    Arena& arena_;
    std::array<Recent, kRecent> recent_;
  };

 private:
  struct Key {
    Addr page;
    Space space;
    uint32_t mode;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const {
      const uint64_t h = (k.page ^ (static_cast<uint64_t>(k.space) << 40) ^ k.mode) * 0x9E3779B97F4A7C15ULL;
      return h ^ (h >> 29);
    }
  };
  static constexpr size_t kShards = 64;
  struct alignas(64) Shard {
    std::mutex mutex;
    tsl::robin_map<Key, std::unique_ptr<PlacePage>, KeyHash> pages;
  };

  Arena& new_arena();
  PlacePage& page(const Key& key);
  const Version* only_version(const Cell& cell) const;
  void read(Block& block, Arena& arena) const;

  const TextStore& text_;
  const TextAt text_at_;
  const std::vector<Addr> hooks_;
  std::array<Shard, kShards> shards_;
  std::mutex arenas_mutex_;
  std::vector<std::unique_ptr<Arena>> arenas_;
};

}  // namespace asof::x86
