// Runs of the A64 text that never changes (arch/steps.h), with what decides where each leads: what the fast
// walk (fast.cpp) goes over instead of instructions.
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
// Where the text changes or is unknown, at breakpoints, and where code leaves its half of the address space,
// runs end in kStop: the careful walk takes them from their first block on. A32 and T32 are its alone.
#pragma once
#include <tsl/robin_map.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <vector>

#include "arch/arm64/insn.h"
#include "arch/steps.h"
#include "arch/zeroed.h"
#include "textstore/text_store.h"

namespace asof::arm64 {

// A way out of a run: the run's id, shifted so that with an atom it is the code of a StepList; or one of
// these.
inline constexpr unsigned kRunShift = StepList::kRunShift;
inline constexpr uint32_t kReturn = 0;       // where an address says, or the return stack
inline constexpr uint32_t kIndirect = 1;     // where an address says
inline constexpr uint32_t kUnknown = 2;      // not known yet, or more than a link can say
inline constexpr uint32_t kAddressOnly = 3;  // of the return stack: its run was not looked up yet
inline constexpr uint32_t kFirstWay = RunTable::kFirst << kRunShift;

constexpr uint32_t way_to(uint32_t run) { return run << kRunShift; }
constexpr uint32_t run_of(uint32_t way) { return way >> kRunShift; }

struct Link {
  std::array<std::atomic<uint32_t>, 2> next;  // by atom: a way
  std::atomic<uint32_t> push;          // what E leaves on the return stack: the way on behind the call;
                                       // 0: nothing. Set before `next` is.
  std::atomic<uint32_t> instructions;  // of the run
};
static_assert(sizeof(Link) == 16);
// The link of the run that `way` leads to.
inline const Link& link_of(const Link* links, uint32_t way) {
  return *reinterpret_cast<const Link*>(reinterpret_cast<const std::byte*>(links) +
                                        size_t{way} * (sizeof(Link) >> kRunShift));
}

enum class RunEnd : uint8_t { kStop, kDirect, kIndirect, kSync, kWait };

struct FlowRun {
  static constexpr size_t kMaxBlocks = 4;
  // First, as the run table keeps nothing but where they are.
  std::array<const Block*, kMaxBlocks> blocks{};
  Addr ip = 0;
  Addr end_ip = 0;  // behind the waypoint
  Addr target = 0;  // of kDirect
  Space space = kKernelSpace;
  RunEnd end = RunEnd::kStop;
  bool may_skip = false;  // an N atom is no contradiction
  bool link = false;
  bool exception_return = false;
};

// What of a capture and of a trace unit decides about runs.
struct RunRules {
  TextAt text_at = TextAt::kAsof;
  bool wfx = false;           // WFI and WFE take atoms
  bool return_stack = false;  // the unit has one
  Addr hook = 0;              // no way leads back to here: the careful walk wants to see it (anchors.cpp)
  // Kernel text outside `complete` may have changed unseen: what runs there is not certain.
  bool unrecorded_changes = false;
  AddrRange complete{};

  bool operator==(const RunRules&) const = default;
};

class CodeMap {
 public:
  CodeMap(const TextStore& text, const RunRules& rules);

  const RunTable& table() const { return table_; }
  const RunRules& rules() const { return rules_; }
  const FlowRun& run(uint32_t id) const { return *reinterpret_cast<const FlowRun*>(table_.blocks(id)); }

 private:
  friend class RunCache;
  using Slot = std::atomic<uint32_t>;  // the run that begins here; 0: not known yet
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
  std::pmr::memory_resource& new_memory();

  const TextStore& text_;
  const RunRules rules_;
  RunTable table_;
  ZeroedArray<Link> links_;
  std::mutex mutex_;  // of what follows
  tsl::robin_map<Key, ZeroedArray<Slot>, KeyHash> pages_;
  std::vector<std::unique_ptr<std::pmr::monotonic_buffer_resource>> memory_;
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

  // The run at an address, made when it is new; 0: there can be none, or there is no room for it.
  uint32_t at(Space space, Addr ip) {
    if ((ip & 3) != 0) return 0;
    const Addr page = ip >> CodeMap::kPageBits;
    Page& p = pages_[(page ^ page >> 10) % kPages];
    if ((p.page != page || p.space != space) && !find_page(p, space, ip)) [[unlikely]]
      return 0;
    CodeMap::Slot& slot = p.slots[ip >> 2 & (CodeMap::kSlots - 1)];
    const uint32_t run = slot.load(std::memory_order_acquire);
    return run != 0 ? run : make(space, ip, slot);
  }
  // Finds where a run leads on an atom, and what it leaves on the return stack: its link knows it from now
  // on. False: there is more to it, or it is for the careful walk.
  bool follow(uint32_t run, uint32_t atom);
  // The run that a return to `ip` leads to from code in `space`; 0: for the careful walk.
  uint32_t back_at(Space space, Addr ip);

  const Link* links() const { return map_->links_.get(); }
  const CodeMap& map() const { return *map_; }
  const FlowRun& run(uint32_t id) const { return map_->run(id); }
  const RunTable& table() const { return map_->table(); }

 private:
  struct Page {
    Addr page = ~Addr{0};
    CodeMap::Slot* slots = nullptr;
    Space space = kNoSpace;
  };

  bool find_page(Page& p, Space space, Addr ip);
  uint32_t make(Space space, Addr ip, CodeMap::Slot& slot);
  const Block* read(Space space, Addr ip, Insn& last);
  bool enter_cell(Space space, Addr a);
  size_t fetch(Space space, Addr a, uint8_t* out);
  Confidence confidence_of(const Block& b) const;
  bool link_push(uint32_t run);
  uint32_t same_half(Space space, Addr ip) {
    return is_kernel_address(ip) == (space == kKernelSpace) ? at(space, ip) : 0;
  }

  static constexpr size_t kPages = 1024;

  const std::shared_ptr<CodeMap> map_;
  std::pmr::memory_resource& memory_;
  RunTable::Writer writer_;
  std::array<Page, kPages> pages_{};
  // The cell of the last look into the text.
  Cell cell_;
  Space cell_space_ = kNoSpace;
  const Version* version_ =
      nullptr;  // what stands there whatever the time is; nullptr: nothing, or it depends
};

}  // namespace asof::arm64
