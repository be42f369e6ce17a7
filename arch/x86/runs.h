// Runs and paths of the text that never changes (arch/steps.h), with what decides where each leads: what the
// fast walk (fast.cpp) goes over instead of instructions.
//
//   run    from an address to its next decision: conditional branch, return or indirect branch; direct jumps
//          and calls are folded in. Keyed by address, space and mode.
//   path   from a run on, what up to six TNT bits that the trace says next lead through. It ends behind a
//          return (where that goes is the return stack's business) and in front of an indirect branch. Keyed
//          by run and bits: one look-up in a small table takes several branches at once.
//
// CodeMap is shared by all decoders of a capture: what one found out no other has to. Entries do not change
// once they are published, but for links that go from "not known yet" to what they are; those are atomic.
// RunCache is one decoder's view: its own memory to add with, and the paths it is busy with.
//
// Runs that reach something the fast walk does not do (text that changes or is unknown, hooks, far transfers,
// PTWRITE, MOV CR3, WRMSR, an endless loop) end in kStop: the careful walk takes them from their first block
// on.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "arch/steps.h"
#include "arch/x86/stable_text.h"

namespace asof::x86 {

enum class RunEnd : uint8_t { kCond, kRet, kIndirect, kStop };

// A call on the way of a run or path: what it puts on the return stack.
struct CallSite {
  Addr ret = 0;
  std::atomic<uint32_t> run{0};  // at `ret`; 0: not known yet
  Space space = kKernelSpace;    // of `ret`, in 64-bit mode
};

struct FlowRun {
  std::atomic<uint32_t> next[2] = {0, 0};  // kCond: by TNT bit; 0: not known yet
  uint32_t calls = 0;                      // the first of its call sites
  uint8_t call_count = 0;                  // an indirect call at its end included
  RunEnd end = RunEnd::kStop;
  uint8_t mode = 64;
  Space space = kKernelSpace;
  Addr ip = 0;
};

// Where some TNT bits lead from a run.
struct Path {
  static constexpr unsigned kBits = 6;  // at most
  static constexpr unsigned kMaxCalls = 31;
  static constexpr uint32_t kMaxRun = UINT32_MAX >> (kBits + 1);
  static constexpr uint32_t kMaxSite = 1U << 22;

  uint32_t tag = 0;       // run << (kBits + 1) | 1 << n | the next n bits
  uint32_t code = 0;      // of a StepList
  uint32_t next = 0;      // run reached; behind a return 0
  uint32_t used : 4 = 0;  // bits; 0: the first of them is for the careful walk
  uint32_t returns : 1 = 0;
  uint32_t call_count : 5 = 0;
  uint32_t calls : 22 = 0;  // the first of its call sites
};
static_assert(sizeof(Path) == 16);

class CodeMap {
 public:
  CodeMap(const TextStore& text, TextAt text_at, std::vector<Addr> hooks);

  const RunTable& table() const { return table_; }

 private:
  friend class RunCache;
  static constexpr uint32_t kPiece = RunTable::kPiece;
  static constexpr uint32_t kSitePieces = Path::kMaxSite / kPiece;

  // Paths by tag. Those of one run, and of runs found at the same time, stand near each other. Bounded: where
  // there is no room for one, the trace is followed run by run.
  static constexpr unsigned kPathSlots = 1U << 19;
  static constexpr unsigned kProbes = 8;
  static size_t slot_of(uint32_t tag) { return (tag >> (Path::kBits + 1)) * 2 + (tag * 0x9E3779B1U >> 29); }

  FlowRun& run(uint32_t id) { return runs_[id / kPiece][id % kPiece]; }
  CallSite& site(uint32_t i) { return sites_[i / kPiece][i % kPiece]; }
  bool find(uint32_t tag, Path& out);
  void add(const Path& path);

  StableText text_;
  RunTable table_;
  std::array<std::unique_ptr<FlowRun[]>, RunTable::kPieces> runs_;
  std::array<std::unique_ptr<CallSite[]>, kSitePieces> sites_;
  std::atomic<uint32_t> site_pieces_{0};
  // Zeroed pages that cost nothing before they are used. `tag` is written last, atomically.
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<Path[], Free> paths_;
  std::mutex paths_mutex_;
};

// Not thread-safe: one per decoder.
class RunCache {
 public:
  explicit RunCache(std::shared_ptr<CodeMap> map);

  // The run at an address, made when it is new; 0: there is no room for it.
  uint32_t at(Space space, Addr ip, uint8_t mode);
  // The same, for targets of indirect branches.
  uint32_t target(Space space, Addr ip, uint8_t mode) {
    Target& t = targets_[(ip ^ ip >> 12) % kTargets];
    if (t.ip != ip || t.space != space) t = {ip, at(space, ip, mode), space};
    return t.run;
  }
  // Where to go from run `run` with the next n bits (1 to Path::kBits), given below a marker. nullptr: what
  // has not come up often enough to be worth a path; `step` goes on for the next n bits.
  const Path* path(uint32_t run, uint32_t window) {
    const uint32_t tag = run << (Path::kBits + 1) | window;
    const uint32_t hash = tag * 0x9E3779B1U;
    HotSet& set = hot_[hash >> (32 - kHotBits)];
    if (set[0].tag == tag) [[likely]]
      return &set[0];
    return find_hot(set, tag, seen_[hash >> (32 - kSeenBits)]);
  }
  // One run on one bit, as a path.
  Path step(uint32_t run, uint32_t bit);

  const FlowRun& run(uint32_t id) const { return map_->run(id); }
  CallSite* sites(uint32_t first) { return &map_->site(first); }
  const RunTable& table() const { return map_->table(); }

 private:
  struct Target {
    Addr ip = 0;
    uint32_t run = 0;
    Space space = kNoSpace;
  };

  // Paths whose tags have one hash, newest first: a line of the processor's cache.
  struct alignas(64) HotSet : std::array<Path, 4> {};

  const Path* find_hot(HotSet& set, uint32_t tag, uint8_t& seen);
  uint32_t make(Place& place);
  uint32_t follow(uint32_t id, uint32_t bit);
  Path find_path(uint32_t tag);
  Path make_path(uint32_t tag);
  uint32_t add_run(const Run& run, const Block* const* blocks, const FlowRun& flow);
  uint32_t take_sites(uint32_t n);
  uint32_t copy_sites(std::span<const uint32_t> codes, unsigned runs, unsigned calls);

  static constexpr size_t kMaxBlocks = 64;
  static constexpr unsigned kHotBits = 12;
  static constexpr unsigned kSeenBits = 16;
  static constexpr uint8_t kWarm = 3;
  static constexpr size_t kTargets = 1024;

  const std::shared_ptr<CodeMap> map_;
  Arena& arena_;
  RunTable::Writer runs_;
  RunTable::Writer paths_;
  uint32_t next_site_ = 0, end_site_ = 0;
  std::unique_ptr<HotSet[]> hot_ = std::make_unique<HotSet[]>(size_t{1} << kHotBits);
  std::unique_ptr<uint8_t[]> seen_ =
      std::make_unique<uint8_t[]>(size_t{1} << kSeenBits);  // of tags with this hash
  std::array<Target, kTargets> targets_;
};

}  // namespace asof::x86
