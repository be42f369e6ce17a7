// The instruction sets for walk::BlockCache.
#pragma once
#include <cstdint>
#include <span>

#include "arch/arm64/stable_text.h"
#include "arch/walk/block_cache.h"

namespace asof::arm64 {

class Isa {
 public:
  using Insn = arm64::Insn;
  using InsnStatus = arm64::InsnStatus;
  using Node = walk::Node<Isa>;
  using Variant = walk::Variant<Isa>;
  static constexpr size_t kMaxInsn = 4;

  struct VariantFacts {
    Waypoint waypoint = Waypoint::kNone;  // of the last instruction
    bool may_skip = false;                // it may be conditional: an N atom is no contradiction
    bool link = false;
    bool exception_return = false;
    uint8_t target_mode = kA64;  // of a direct branch
  };
  struct NodeFacts {};
  // `count`: instructions in front of it.
  class Ending {
   public:
    void add(const Insn& insn, uint32_t count, uint8_t mode) {
      // What no IT block in sight makes conditional may still be in one that began before this block.
      may_skip_ = insn.conditional || it_left_ != 0 || (mode == kT32 && count < 4);
      if (insn.it_block != 0)
        it_left_ = insn.it_block;
      else if (it_left_ != 0)
        --it_left_;
    }
    void set(VariantFacts& v, const Insn& last) const {
      v.waypoint = last.waypoint;
      v.may_skip = may_skip_;
      v.link = last.link;
      v.exception_return = last.exception_return;
      v.target_mode = last.target_mode;
    }

   private:
    unsigned it_left_ = 0;
    bool may_skip_ = false;
  };

  // `wfx`: WFI and WFE end blocks, as they take atoms.
  Isa(const TextStore& text, TextAt text_at, bool wfx) : wfx_(wfx), stable_(text, text_at, wfx) {}

  static bool can_start(Addr ip, uint8_t mode) { return (ip & (mode == kT32 ? 1U : 3U)) == 0; }
  static bool starts_inside(const TextStore&, const Version&, Addr) { return false; }
  InsnStatus decode(std::span<const uint8_t> bytes, Addr ip, uint8_t mode, Insn& out) const {
    return decode_insn(bytes, ip, mode, wfx_, out);
  }
  // The flow stops in front of a trap.
  static bool stands_alone(const Insn& insn) { return insn.waypoint == Waypoint::kTrap; }
  static bool ends_block(const Insn& insn) { return insn.waypoint != Waypoint::kNone; }
  Variant* stable_block(const Node& node, Arena& arena);
  static void made(const Node&) {}

 private:
  bool wfx_;
  StableText stable_;
};

using Node = walk::Node<Isa>;
using Variant = walk::Variant<Isa>;
using TextState = walk::TextState;
using BlockCache = walk::BlockCache<Isa>;

}  // namespace asof::arm64
