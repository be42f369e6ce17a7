// RunCache: the text that never changes, cut at the decisions of the trace (arch/steps.h, Run), with what
// decides where each run leads. The fast walk (fast.cpp) touches sixteen bytes of a run and nothing else of
// it.
//
// A run is keyed by its node, which is an address in a space and mode. Runs that reach something the fast
// walk does not do (text that changes or is unknown, far transfers, PTWRITE, MOV CR3, WRMSR, an endless loop)
// end in kStop: the careful walk takes them from their first block on.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "arch/steps.h"
#include "arch/x86/block_cache.h"

namespace asof::x86 {

enum class RunEnd : uint8_t { kCond, kRet, kIndirect, kStop };

struct HotRun {
  uint32_t next[2] = {0, 0};  // by TNT bit; kRet and kIndirect: [1] is the last target. 0: not known yet
  uint32_t calls = 0;         // the first of its call sites
  RunEnd end = RunEnd::kStop;
  uint8_t call_count = 0;  // an indirect call at its end included
  uint16_t reserved = 0;
};
static_assert(sizeof(HotRun) == 16);

struct CallSite {
  Addr ret = 0;
  uint32_t run = 0;  // at `ret`; 0: not known yet
};

class RunCache {
 public:
  explicit RunCache(BlockCache& blocks);

  // The run at a node, made when it is new.
  uint32_t of(Node& node) { return node.run != 0 ? node.run : make(node); }
  uint32_t at(Space space, Addr ip, uint8_t mode) { return of(*blocks_.node(space, ip, mode)); }
  // Where run `id` leads on a TNT bit; remembers it.
  uint32_t follow(uint32_t id, uint32_t bit);

  // Text is to be looked at with other eyes (a hook): all runs are made anew. Their ids stay good for those
  // who count.
  void forget();

  HotRun& hot(uint32_t id) { return hot_[id]; }
  CallSite& call(uint32_t i) { return calls_[i]; }
  Addr ip(uint32_t id) const { return ip_[id]; }
  Node& node(uint32_t id) { return *node_[id]; }
  const RunTable& table() const { return table_; }

 private:
  uint32_t make(Node& node);
  const Block* const* store(const std::vector<const Block*>& blocks);

  static constexpr size_t kMaxBlocks = 64;
  static constexpr size_t kArenaChunk = size_t{1} << 14;

  BlockCache& blocks_;
  std::vector<HotRun> hot_;
  std::vector<Addr> ip_;
  std::vector<Node*> node_;
  std::vector<CallSite> calls_;
  RunTable table_;
  std::vector<std::unique_ptr<const Block*[]>> arena_;
  size_t arena_left_ = 0;
  // Of the run being made.
  std::vector<const Block*> made_blocks_;
  std::vector<CallSite> made_calls_;
};

}  // namespace asof::x86
