// BlockCache: straight runs of instructions, decoded once per version of their text.
//
// A Node is what the flow visits at one address. Text that never changes (nearly all of it) gives a node with
// one block for all time: the flow takes it without asking for the time again. Where text changes, the node
// is `versioned`: a block there covers one version of one cell only (it ends where other changing text
// begins), and carries the interval in which that version is the only candidate. So a change costs the blocks
// that touch it and nothing else, however many pokes there are and however large the cache is.
//
// Isa is one instruction set as the cache needs it:
//   Insn, InsnStatus, kMaxInsn                 an instruction, and its most bytes
//   VariantFacts, NodeFacts                    what the machine keeps beside (base classes)
//   can_start(ip, mode)                        an instruction can be there
//   starts_inside(text, version, ip)           no CPU starts an instruction there, whatever bytes are there
//   decode(bytes, ip, mode, insn)
//   stands_alone(insn), ends_block(insn)       no other is in front of it in a block; none follows it
//   Ending                                     takes all instructions of a block, gives VariantFacts
//   stable_block(node, arena)                  the block of unchanging text, if there is a shorter way to it
//   made(node)                                 a node is new
#pragma once
#include <tsl/robin_map.h>

#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "arch/arch.h"
#include "arch/arena.h"
#include "textstore/text_store.h"

namespace asof::walk {

inline constexpr uint32_t kMaxBlockInsns = 256;

template <class Isa>
struct Node;

template <class Isa>
struct Variant : Isa::VariantFacts {
  Block block;
  // The version is the only possible one for a bounds interval inside [alone_from, alone_until].
  Time alone_from = kTimeMin;
  Time alone_until = kTimeMax;
  // Successors whose node is known, filled as the flow goes.
  Node<Isa>* taken = nullptr;
  Node<Isa>* fall = nullptr;
  Node<Isa>* indirect = nullptr;
};

// kHooked: as kStable, but the flow takes note of each visit.
enum class TextState : uint8_t { kStable, kVersioned, kUnknown, kInvalid, kHooked };

template <class Isa>
struct Node : Isa::NodeFacts {
  Addr ip = 0;
  Space space = kKernelSpace;
  uint8_t mode = 64;
  TextState state = TextState::kUnknown;
  Variant<Isa>* only = nullptr;         // kStable, kHooked
  std::vector<Variant<Isa>*> variants;  // of others: those met so far, by `from`
  Variant<Isa>* recent = nullptr;       // kVersioned: the one of the last visit
};

// What can be at a versioned node within time bounds.
template <class Isa>
struct Candidates {
  std::vector<Variant<Isa>*> known;
  bool unknown = false;  // a version without bytes, or one that does not decode, is possible too
  bool missing = false;  // the former
  uint64_t work = 0;     // what it took to find them, in units of work
  uint32_t builds = 0;   // attempts to read a block
};

template <class Isa>
class BlockCache {
 public:
  using Node = walk::Node<Isa>;
  using Variant = walk::Variant<Isa>;

  // `reuse` off: every visit decodes anew, which shows in tests that reuse changes nothing.
  BlockCache(const TextStore& text, TextAt text_at, bool reuse, Isa isa)
      : text_(text), text_at_(text_at), reuse_(reuse), isa_(std::move(isa)) {}

  Node* node(Space space, Addr ip, uint8_t mode) {
    const auto it = reuse_ ? nodes_.find(Key{ip, space, mode}) : nodes_.end();
    return it != nodes_.end() ? it->second : make_node(space, ip, mode);
  }
  // The node, if there is one.
  Node* find(Space space, Addr ip, uint8_t mode) const {
    const auto it = nodes_.find(Key{ip, space, mode});
    return it != nodes_.end() ? it->second : nullptr;
  }
  // Every block that can run at a versioned node within `bounds` (already widened by the clock's error).
  void candidates(Node& node, TimeBounds bounds, Candidates<Isa>& out);
  // A block of one instruction that no record shows, with these bytes of another place.
  Variant* synthetic(Node& node, std::span<const uint8_t> bytes, OriginRef origin);

  Isa& isa() { return isa_; }

 private:
  struct Key {
    Addr ip;
    Space space;
    uint32_t mode;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const {
      const uint64_t h = (k.ip ^ (static_cast<uint64_t>(k.space) << 40) ^ k.mode) * kHashFactor;
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
  void enumerate(Node& node, TimeBounds bounds, std::vector<Choice>& chosen, Candidates<Isa>& out);
  Variant* intern(Node& node, Build& build, const std::vector<Choice>& chosen);
  const uint8_t* store_bytes(const uint8_t* p, size_t n);

  const TextStore& text_;
  const TextAt text_at_;
  const bool reuse_;
  Isa isa_;
  tsl::robin_map<Key, Node*, KeyHash> nodes_;
  std::deque<Node> node_pool_;
  Arena arena_;
};

}  // namespace asof::walk
