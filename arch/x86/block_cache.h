// The instruction set for walk::BlockCache.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "arch/run_table.h"
#include "arch/walk/block_cache.h"
#include "arch/x86/insn.h"

namespace asof::x86 {

class Isa {
 public:
  using Insn = x86::Insn;
  using InsnStatus = x86::InsnStatus;
  using Node = walk::Node<Isa>;
  using Variant = walk::Variant<Isa>;
  static constexpr size_t kMaxInsn = 15;

  struct VariantFacts {
    bool last_writes_cr3 = false;
    bool last_vm_entry = false;
    bool last_wrmsr = false;
    Addr indirect_ip = 0;  // of Variant::indirect
  };
  struct NodeFacts {
    bool hooked = false;          // the flow takes note of each visit
    std::array<RunId, 2> runs{};  // that begin here (runs.h), by CodeMap::unsure(); kNone: not known yet
  };
  struct Ending {
    static void add(const Insn&, uint32_t, uint8_t) {}
    static void set(VariantFacts& v, const Insn& last) {
      v.last_writes_cr3 = last.writes_cr3;
      v.last_vm_entry = last.vm_entry;
      v.last_wrmsr = last.wrmsr;
    }
  };

  static bool can_start(Addr, uint8_t) { return true; }
  static bool starts_inside(const TextStore& text, const Version& v, Addr a);
  static InsnStatus decode(std::span<const uint8_t> bytes, Addr ip, uint8_t mode, Insn& out) {
    return decode_passable(bytes, ip, mode, out);
  }
  static bool stands_alone(const Insn&) { return false; }
  static bool ends_block(const Insn& insn) { return insn.kind != BranchKind::kNone; }
  static Variant* stable_block(const Node&, Arena&) { return nullptr; }
  void made(Node& node) const {
    if (node.space == kKernelSpace && hooks(node.ip)) set_hook(node);
  }

  bool hooks(Addr ip) const { return std::ranges::find(hooks_, ip) != hooks_.end(); }

 private:
  friend void hook(walk::BlockCache<Isa>& cache, Addr ip);
  static void set_hook(Node& node);

  std::vector<Addr> hooks_;
};

using Node = walk::Node<Isa>;
using Variant = walk::Variant<Isa>;
using TextState = walk::TextState;
using BlockCache = walk::BlockCache<Isa>;

// From now on the node at this kernel address is hooked.
void hook(BlockCache& cache, Addr ip);

}  // namespace asof::x86
