// BlockCache: straight runs of instructions, decoded once per version of their text.
//
// A Node is what the flow visits at one address. Text that never changes (nearly all of it) gives a node with
// one block for all time: the flow takes it without asking for the time again. Where text changes, the node
// is `versioned`: a block there covers one version of one cell only (it ends where other changing text
// begins), and carries the interval in which that version is the only candidate. A change so costs the blocks
// that touch it and nothing else, however many pokes there are and however large the cache is.
#pragma once
#include <tsl/robin_map.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "arch/arch.h"
#include "arch/arena.h"
#include "arch/x86/insn.h"
#include "textstore/text_store.h"

namespace asof::x86 {

struct Node;

struct Variant {
  Block block;
  // The version is the only possible one for a bounds interval inside [alone_from, alone_until].
  Time alone_from = kTimeMin;
  Time alone_until = kTimeMax;
  bool last_writes_cr3 = false;
  bool last_vm_entry = false;
  bool last_wrmsr = false;
  // Successors whose node is known, filled as the flow goes.
  Node* taken = nullptr;
  Node* fall = nullptr;
  Node* indirect = nullptr;
  Addr indirect_ip = 0;
};

// kHooked: as kStable, but the flow takes note of each visit.
enum class TextState : uint8_t { kStable, kVersioned, kUnknown, kInvalid, kHooked };

struct Node {
  Addr ip = 0;
  Space space = kKernelSpace;
  uint8_t mode = 64;
  TextState state = TextState::kUnknown;
  bool hooked = false;             // the flow takes note of each visit
  Variant* only = nullptr;         // kStable, kHooked
  std::array<uint32_t, 2> runs{};  // that begin here (runs.h), by CodeMap::unsure(); 0: not known yet
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
  BlockCache(const TextStore& text, TextAt text_at, bool reuse)
      : text_(text), text_at_(text_at), reuse_(reuse) {}

  Node* node(Space space, Addr ip, uint8_t mode) {
    const auto it = reuse_ ? nodes_.find(Key{ip, space, mode}) : nodes_.end();
    return it != nodes_.end() ? it->second : make_node(space, ip, mode);
  }
  // Every block that can run at a versioned node within `bounds` (already widened by the clock's error).
  void candidates(Node& node, TimeBounds bounds, Candidates& out);

  // From now on the node at this kernel address is hooked.
  void hook(Addr ip);
  bool hooks(Addr ip) const { return std::ranges::find(hooks_, ip) != hooks_.end(); }

  size_t block_count() const { return variants_.size(); }

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
  bool fixed_choice(const Cell& cell, const Version*& version) const;
  void enumerate(Node& node, TimeBounds bounds, std::vector<Choice>& chosen, Candidates& out);
  Variant* intern(Node& node, Build& build, const std::vector<Choice>& chosen);
  const uint8_t* store_bytes(const uint8_t* p, size_t n);

  const TextStore& text_;
  const TextAt text_at_;
  const bool reuse_;
  tsl::robin_map<Key, Node*, KeyHash> nodes_;
  std::vector<Addr> hooks_;
  std::deque<Node> node_pool_;
  std::deque<Variant> variants_;
  Arena arena_;
};

}  // namespace asof::x86
