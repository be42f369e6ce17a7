// BlockCache: straight runs of instructions, decoded once per version of their text.
//
// A Node is what the flow visits at one address. Text that never changes (nearly all of it) gives a node with
// one block for all time: the flow takes it without asking for the time again. Where text changes, the node
// is `versioned`: a block there covers one version of one cell only (it ends where other changing text
// begins), and carries the interval in which that version is the only candidate. A change so costs the blocks
// that touch it and nothing else, however many pokes there are and however large the cache is.
#pragma once
#include <tsl/robin_map.h>

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "arch/arch.h"
#include "arch/arena.h"
#include "arch/arm64/stable_text.h"
#include "textstore/text_store.h"

namespace asof::arm64 {

struct Node;

struct Variant {
  Block block;
  // The version is the only possible one for a bounds interval inside [alone_from, alone_until].
  Time alone_from = kTimeMin;
  Time alone_until = kTimeMax;
  Waypoint waypoint = Waypoint::kNone;  // of the last instruction
  bool may_skip = false;                // it may be conditional: an N atom is no contradiction
  bool link = false;
  bool exception_return = false;
  uint8_t target_mode = kA64;  // of a direct branch
  // Successors whose node is known, filled as the flow goes.
  Node* taken = nullptr;
  Node* fall = nullptr;
  Node* indirect = nullptr;
};

enum class TextState : uint8_t { kStable, kVersioned, kUnknown, kInvalid };

struct Node {
  Addr ip = 0;
  Space space = kKernelSpace;
  uint8_t mode = 64;
  TextState state = TextState::kUnknown;
  Variant* only = nullptr;         // kStable
  std::vector<Variant*> variants;  // kVersioned: those met so far
  Variant* recent = nullptr;       // kVersioned: the one of the last visit
};

// What can be at a versioned node within time bounds.
struct Candidates {
  std::vector<Variant*> known;
  bool unknown = false;  // a version without bytes, or one that does not decode, is possible too
  bool missing = false;  // the former
};

class BlockCache {
 public:
  // `reuse` off: every visit decodes anew, which shows in tests that reuse changes nothing.
  // `wfx`: WFI and WFE end blocks, as they take atoms.
  BlockCache(const TextStore& text, TextAt text_at, bool reuse, bool wfx)
      : text_(text), text_at_(text_at), reuse_(reuse), wfx_(wfx), stable_(text, text_at, wfx) {}

  Node* node(Space space, Addr ip, uint8_t mode) {
    const auto it = reuse_ ? nodes_.find(Key{ip, space, mode}) : nodes_.end();
    return it != nodes_.end() ? it->second : make_node(space, ip, mode);
  }
  // A block of one instruction that no record tells of, with these bytes of another place (a kprobe's slot).
  Variant* synthetic(Node& node, std::span<const uint8_t> bytes, OriginRef origin);
  // Every block that can run at a versioned node within `bounds` (already widened by the clock's error).
  void candidates(Node& node, TimeBounds bounds, Candidates& out);

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
  // A version chosen for one changing cell.
  struct Choice {
    Cell cell;
    const Version* version;
  };
  struct Build;

  Node* make_node(Space space, Addr ip, uint8_t mode);
  bool read_stable(Node& node);
  bool fixed_choice(const Cell& cell, const Version*& version) const;
  void enumerate(Node& node, TimeBounds bounds, std::vector<Choice>& chosen, Candidates& out);
  Variant* intern(Node& node, Build& build, const std::vector<Choice>& chosen);
  const uint8_t* store_bytes(const uint8_t* p, size_t n);

  const TextStore& text_;
  const TextAt text_at_;
  const bool reuse_;
  const bool wfx_;
  StableText stable_;
  tsl::robin_map<Key, Node*, KeyHash> nodes_;
  std::deque<Node> node_pool_;
  Arena arena_;
};

}  // namespace asof::arm64
