// Runs of the A64 text that never changes (arch/run_table.h), with what decides where each leads: what the
// fast walk (fast.cpp) goes over instead of instructions.
//
// A run goes from an address to its next waypoint, which takes one atom: a direct branch, conditional or not,
// an indirect one, an ISB, a WFI where that counts. What the walk touches at each atom is the sixteen bytes
// of a Link; the rest (FlowRun) is for first visits and rare cases.
//
// CodeMap is shared by all decoders of a capture whose trace units read text alike: what one found out no
// other has to. Entries do not change once they are published, but for links that go from "not known yet" to
// what they are; those are atomic. RunCache is one decoder's view, with its own memory to add with.
//
// Runs are found by address without a search: a page of code has an array with a place for each word.
//
// Where the text changes, is unknown or unsure, at breakpoints, and where code leaves its half of the address
// space, runs end in kStop: the careful walk takes them from their first block on. A32 and T32 are its alone.
#pragma once
#include <tsl/robin_map.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "arch/arena.h"
#include "arch/arm64/stable_text.h"
#include "arch/steps.h"
#include "arch/zeroed.h"
#include "textstore/text_store.h"

namespace asof::arm64 {

// An edge out of a run: the run's id, shifted so that with an atom it is the code of a StepList; or one of
// these.
enum class Edge : uint32_t {
  kReturn = 0,       // where an address says, or the return stack
  kNone = 0,         // of the return stack, and of what E leaves on it: nothing
  kIndirect = 1,     // where an address says
  kUnknown = 2,      // not known yet, or more than a link can say
  kAddressOnly = 3,  // of the return stack: its run was not looked up yet
  kFirstRun = index_of(RunTable::kFirst) << kRunShift,
};

constexpr Edge edge_to(RunId run) { return Edge{index_of(run) << kRunShift}; }
constexpr bool leads_to_run(Edge edge) { return edge >= Edge::kFirstRun; }
// An address says where it leads, or the return stack.
constexpr bool needs_target(Edge edge) { return edge <= Edge::kIndirect; }
static_assert(Edge::kReturn < Edge::kIndirect && Edge::kIndirect < Edge::kUnknown);
// Of edges that lead to a run.
constexpr RunId run_of(Edge edge) { return RunId{std::to_underlying(edge) >> kRunShift}; }
constexpr StepCode step_code(Edge edge, uint32_t bit) { return StepCode{std::to_underlying(edge) | bit}; }

struct Link {
  std::array<std::atomic<Edge>, 2> next;  // by atom
  std::atomic<Edge> push;                 // what E leaves on the return stack: the edge to what follows the
                                          // call, or kNone. Set before `next` is.
  std::atomic<uint32_t> instructions;     // of the run
};
static_assert(sizeof(Link) == 16);
// The link of the run that `edge` leads to.
inline const Link& link_of(const Link* links, Edge edge) {
  return *reinterpret_cast<const Link*>(reinterpret_cast<const std::byte*>(links) +
                                        size_t{std::to_underlying(edge)} * (sizeof(Link) >> kRunShift));
}

enum class RunEnd : uint8_t { kStop, kDirect, kIndirect, kExceptionReturn, kSync, kWait };

// Its blocks' addresses follow it.
struct FlowRun {
  Addr ip = 0;
  Space space = kKernelSpace;
  RunEnd end = RunEnd::kStop;
  uint8_t size = 0;       // blocks; of kStop possibly none
  bool may_skip = false;  // an N atom is no contradiction
  bool link = false;

  const Block* const* blocks() const { return reinterpret_cast<const Block* const*>(this + 1); }
  // Of a run that does not end in kStop.
  const Block& last() const { return *blocks()[size - 1]; }
  Addr end_ip() const { return last().end(); }   // after the waypoint
  Addr target() const { return last().target; }  // of kDirect
};
static_assert(sizeof(FlowRun) == 16);

// What of a capture and of a trace unit decides about runs.
struct RunRules {
  TextAt text_at = TextAt::kAsof;
  bool wfx = false;           // WFI and WFE take atoms
  bool return_stack = false;  // the unit has one
  Addr hook = 0;              // no edge leads here: the careful walk wants to see it (anchors.cpp)
  // Kernel text outside `complete` may have changed unseen: what runs there is not certain.
  bool unrecorded_changes = false;
  AddrRange complete{};
  bool all_unsure = false;  // nor anything else (TextStore::unsure_from())

  bool is_unsure(const Block& b) const {
    return b.unsure || all_unsure ||
           (unrecorded_changes && b.space == kKernelSpace && !complete.contains(AddrRange{b.ip, b.end()}));
  }
  // All text of the space is: the fast walk goes over it, its runs carry the doubt. Elsewhere what is after
  // unsure text is not sure either, up to the next address, which is for the careful walk.
  bool is_unsure(Space space) const {
    return all_unsure || (unrecorded_changes && complete.empty() && space == kKernelSpace);
  }
  bool operator==(const RunRules&) const = default;
};

class CodeMap {
 public:
  CodeMap(const TextStore& text, const RunRules& rules);

  const RunTable& table() const { return table_; }
  const RunRules& rules() const { return rules_; }
  const FlowRun& run(RunId id) const { return *(reinterpret_cast<const FlowRun*>(table_.blocks(id)) - 1); }

 private:
  friend class RunCache;
  using Slot = std::atomic<RunId>;  // the run that begins here; kNone: not known yet
  static constexpr unsigned kPageBits = 10;
  static constexpr size_t kSlots = size_t{1} << (kPageBits - 2);
  struct Key {
    Addr page;
    Space space;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const {
      const uint64_t h = (k.page ^ static_cast<uint64_t>(k.space) << 52) * kHashFactor;
      return h ^ (h >> 29);
    }
  };
  // The places of a page; nullptr: there are none yet, and none shall be made.
  Slot* page(Space space, Addr page, bool make);
  Arena& new_arena();

  const TextStore& text_;
  const RunRules rules_;
  RunTable table_;
  ZeroedArray<Link> links_;
  std::mutex mutex_;  // of what follows
  tsl::robin_map<Key, Slot*, KeyHash> pages_;
  Arena slots_;
  std::vector<std::unique_ptr<Arena>> arenas_;
};

// The maps of one text, one for each kind of rules. Thread-safe.
class SharedCode {
 public:
  std::shared_ptr<CodeMap> map(const TextStore& text, const RunRules& rules);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<CodeMap>> maps_;
};

// Not thread-safe: one per decoder.
class RunCache {
 public:
  explicit RunCache(std::shared_ptr<CodeMap> map);

  // The run at an address, made when it is new; kNone: there can be none, or there is no room for it.
  RunId at(Space space, Addr ip) {
    if ((ip & 3) != 0) return RunId::kNone;
    const Addr page = ip >> CodeMap::kPageBits;
    Page& p = pages_[(page ^ page >> 10) % kPages];
    if ((p.page != page || p.space != space) && !find_page(p, space, ip)) [[unlikely]]
      return RunId::kNone;
    CodeMap::Slot& slot = p.slots[ip >> 2 & (CodeMap::kSlots - 1)];
    const RunId run = slot.load(std::memory_order_acquire);
    return run != RunId::kNone ? run : make(space, ip, slot);
  }
  // Where a run leads on an atom; its link knows it from now on, and what it leaves on the return stack.
  // kUnknown: there is more to it, or it is for the careful walk.
  Edge follow(RunId run, uint32_t atom);
  // The run that a return to `ip` leads to from code in `space`; kNone: for the careful walk.
  RunId back_at(Space space, Addr ip);

  const Link* links() const { return map_->links_.get(); }
  const CodeMap& map() const { return *map_; }
  const Link& link(RunId run) const { return links()[index_of(run)]; }
  const FlowRun& run(RunId id) const { return map_->run(id); }
  const RunTable& table() const { return map_->table(); }

 private:
  static constexpr size_t kMaxBlocks = 4;  // of a run
  // A run, in one piece when it has one block, which nearly all have.
  struct Made {
    FlowRun flow;
    std::array<const Block*, 1> blocks;
    Block block;
  };
  struct LongMade {
    FlowRun flow;
    std::array<const Block*, kMaxBlocks> blocks;
  };
  struct Page {
    Addr page = ~Addr{0};
    CodeMap::Slot* slots = nullptr;
    Space space = kNoSpace;
  };

  bool find_page(Page& p, Space space, Addr ip);
  RunId make(Space space, Addr ip, CodeMap::Slot& slot);
  Made* make_long(const Block& first, Run& run, Insn& last);
  void add(Run& run, const Block& b) const;
  bool stops_at(const Block& b) const;
  bool link_push(RunId run);
  RunId same_half(Space space, Addr ip) {
    return is_kernel_address(ip) == (space == kKernelSpace) ? at(space, ip) : RunId::kNone;
  }

  static constexpr size_t kPages = 1024;

  const std::shared_ptr<CodeMap> map_;
  Arena& arena_;
  RunTable::Writer writer_;
  std::array<Page, kPages> pages_{};
  StableText text_;
};

}  // namespace asof::arm64
