// StableText: blocks of the text that is the same at all times, which is nearly all of it. Shared by all
// decoders of a capture: a block is read once, by whoever comes first, and never changes.
//
// A page of addresses has a table of its lines of 64 bytes, a line has the slots in it: so slots that are
// near each other are found near each other, as programs run, and without a lock. Pages are under a lock, one
// of many; each reader remembers those it used last.
#pragma once
#include <tsl/robin_map.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "arch/arch.h"
#include "arch/arena.h"
#include "arch/run_table.h"
#include "textstore/text_store.h"

namespace asof::x86 {

// Where a block may begin: all that is known of an address, in one word. Which address of its line it is
// (SlotPage), which block of the BlockTable, and the run that begins here (runs.h; kNone: not known yet).
class Slot {
 public:
  static constexpr unsigned kLineBits = 6, kBlockBits = 25;

  bool is(Addr ip) const {
    const uint64_t bits = bits_.load(std::memory_order_acquire);
    return bits % kLine == ip % kLine && bits != 0;
  }
  uint32_t block() const { return bits_.load(std::memory_order_acquire) / kLine % (1U << kBlockBits); }
  RunId run() const {
    return static_cast<RunId>(bits_.load(std::memory_order_acquire) >> (kLineBits + kBlockBits));
  }
  // Makes a free slot that of an address; `block` is no 0. False: it is another's.
  bool take(Addr ip, uint32_t block) {
    uint64_t bits = bits_.load(std::memory_order_acquire);
    const uint64_t mine = uint64_t{block} * kLine | ip % kLine;
    return (bits == 0 && bits_.compare_exchange_strong(bits, mine, std::memory_order_acq_rel)) ||
           bits % kLine == ip % kLine;
  }
  // Returns the run that is set then: another thread may have been faster.
  RunId set_run(RunId run) {
    uint64_t none = bits_.load(std::memory_order_acquire) % (uint64_t{1} << (kLineBits + kBlockBits));
    const uint64_t with = none | uint64_t{index_of(run)} << (kLineBits + kBlockBits);
    return bits_.compare_exchange_strong(none, with, std::memory_order_acq_rel) ? run : this->run();
  }

  static constexpr Addr kLine = 1U << kLineBits;

 private:
  std::atomic<uint64_t> bits_{0};
};

// All blocks, by number, from 1 on. Those of a piece are of one reader.
class BlockTable {
 public:
  static constexpr uint32_t kPiece = 1U << 10;

  const Block& operator[](uint32_t i) const { return pieces_[i / kPiece][i % kPiece]; }

  class Writer {
   public:
    explicit Writer(BlockTable& table) : table_(table) {}
    // A new block; 0: there is no room for it.
    uint32_t add(const Block& block);

   private:
    BlockTable& table_;
    uint32_t next_ = 0, end_ = 0;
  };

 private:
  static constexpr uint32_t kPieces = (1U << Slot::kBlockBits) / kPiece;

  PieceTable<std::array<Block, kPiece>, kPieces> pieces_;
};

// The slots of 4096 addresses. Thread-safe. Slots are taken in order, so those who add the same address at
// the same time meet at the same slot.
class SlotPage {
 public:
  static constexpr Addr kSize = 4096;

  // The slot at an address of the page; nullptr: none yet.
  Slot* find(Addr ip) const;
  // The same, with `block` where there was none yet. Memory is from `arena`.
  Slot& add(Addr ip, uint32_t block, Arena& arena);

 private:
  struct Line {
    std::array<Slot, 7> slots;
    std::atomic<Line*> more{nullptr};
  };

  std::array<std::atomic<Line*>, kSize / Slot::kLine> lines_{};
};

class StableText {
 public:
  // `hooks`: kernel addresses that the careful walk wants to see (anchors.cpp).
  StableText(const TextStore& text, TextAt text_at, std::vector<Addr> hooks)
      : text_(text), text_at_(text_at), hooks_(std::move(hooks)) {}

  // One thread's access to the slots. Must not outlive its text.
  class Reader {
   public:
    explicit Reader(StableText& text) : text_(text), arena_(text.new_arena()), blocks_(text.blocks_) {}
    // The slot at an address, read when it is new; nullptr: there is no room for it.
    Slot* at(Space space, Addr ip, uint8_t mode);
    // What begins there; count 0: the careful walk alone knows.
    const Block& block(const Slot& slot) const { return text_.blocks_[slot.block()]; }
    // Memory that lives as long as the text.
    Arena& arena() { return arena_; }

   private:
    struct Recent {
      Addr page = 0;
      Space space = kNoSpace;
      uint32_t mode = 0;
      SlotPage* slots = nullptr;
    };
    static constexpr size_t kRecent = 512;

    StableText& text_;
    Arena& arena_;
    BlockTable::Writer blocks_;
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
    tsl::robin_map<Key, std::unique_ptr<SlotPage>, KeyHash> pages;
  };

  Arena& new_arena();
  SlotPage& page(const Key& key);
  const Version* only_version(const Cell& cell) const;
  void read(Block& block, Arena& arena) const;

  const TextStore& text_;
  const TextAt text_at_;
  const std::vector<Addr> hooks_;
  BlockTable blocks_;
  std::array<Shard, kShards> shards_;
  std::mutex arenas_mutex_;
  std::vector<std::unique_ptr<Arena>> arenas_;
};

}  // namespace asof::x86
