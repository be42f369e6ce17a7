// Runs of the text that never changes (arch/steps.h), with what decides where each leads: what the fast walk
// (fast.cpp) goes over instead of instructions.
//
// A run goes from an address to its next decision: conditional branch, return or indirect branch; direct
// jumps and calls are folded in. It is known by address, space and mode. What the walk touches at each
// decision is sixteen bytes of Links; the rest (FlowRun, CallSite) is for first visits and rare cases.
//
// CodeMap is shared by all decoders of a capture: what one found out no other has to. Entries do not change
// once they are published, but for links that go from "not known yet" to what they are; those are atomic.
// RunCache is one decoder's view, with its own memory to add with.
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

// A way out of a run: where the next one's Link lies, in bytes from the first link, which with a TNT bit is
// the code of a StepList; or one of these.
constexpr uint32_t kReturn = 0;       // where the return stack says
constexpr uint32_t kUnknown = 1;      // not known yet, or for the careful walk
constexpr uint32_t kAddressOnly = 2;  // of the return stack: an address whose run was not looked up yet
constexpr uint32_t kIndirect = 3;     // on either bit: where a TIP says
constexpr uint32_t kFirstWay = RunTable::kFirst << StepList::kRunShift;

constexpr uint32_t way_to(uint32_t run) { return run << StepList::kRunShift; }
constexpr uint32_t run_of(uint32_t way) { return way >> StepList::kRunShift; }

// Where a run leads: all that the walk touches at a decision.
struct Link {
  std::array<std::atomic<uint32_t>, 2> next;  // way, by TNT bit
  std::atomic<uint32_t> push;                 // what the run leaves on the return stack: the way on behind
                                              // its call; 0: nothing. Set before `next` is.
  std::atomic<uint32_t> instructions;         // of the run
};
static_assert(sizeof(Link) == 1U << StepList::kRunShift);
static_assert(RunTable::kMax <= UINT32_MAX >> StepList::kRunShift);

class Links {
 public:
  Links();
  Link& of(uint32_t run) { return links_[run]; }
  const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(links_.get()); }
  static const Link& at(const std::byte* bytes, uint32_t way) {
    return *reinterpret_cast<const Link*>(bytes + way);
  }

 private:
  // Zeroed pages that cost nothing before they are used: all links in one place need no look for where.
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<Link[], Free> links_;
};

// A call on the way of a run.
struct CallSite {
  Addr ret = 0;
  std::atomic<uint32_t> run{0};  // at `ret`; 0: not known yet
};

struct FlowRun {
  Addr ip = 0;
  // Where it leads by TNT bit when it leaves more calls than its link can say, which all have their runs
  // then; 0: not known yet. Atomic once published.
  std::array<uint32_t, 2> next{};
  uint32_t calls = 0;      // the first of its call sites
  uint8_t call_count = 0;  // an indirect call at its end included
  RunEnd end = RunEnd::kStop;
  uint8_t mode = 64;
  Space space = kKernelSpace;
};

class CodeMap {
 public:
  CodeMap(const TextStore& text, TextAt text_at, std::vector<Addr> hooks);

  const RunTable& table() const { return table_; }
  Addr ip_of(uint32_t run) const { return runs_[run / kPiece][run % kPiece].ip; }

 private:
  friend class RunCache;
  static constexpr uint32_t kPiece = RunTable::kPiece;
  static constexpr uint32_t kMaxSites = 1U << 22;
  static constexpr uint32_t kSitePieces = kMaxSites / kPiece;

  FlowRun& run(uint32_t id) { return runs_[id / kPiece][id % kPiece]; }
  CallSite& site(uint32_t i) { return sites_[i / kPiece][i % kPiece]; }

  StableText text_;
  RunTable table_;
  Links links_;
  std::array<std::unique_ptr<FlowRun[]>, RunTable::kPieces> runs_;
  std::array<std::unique_ptr<CallSite[]>, kSitePieces> sites_;
  std::atomic<uint32_t> site_pieces_{0};
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
  // Where `run` leads on a TNT bit, now also in its link if that can say it all (`linked`); if not, all calls
  // it leaves have their runs now. 0: this is for the careful walk.
  uint32_t follow(uint32_t run, uint32_t bit, bool& linked);
  // Makes a run that ends in an indirect branch known as one. False: its calls are too many for a link.
  bool link_indirect(uint32_t run);
  // The run behind a call site, made when it is new; 0: there is no room for it.
  uint32_t behind(uint32_t site, const FlowRun& of);
  // The same, of a site that has it.
  uint32_t known_behind(uint32_t site) const { return map_->site(site).run.load(std::memory_order_relaxed); }

  const std::byte* links() const { return map_->links_.bytes(); }
  const Link& link(uint32_t run) const { return Links::at(links(), way_to(run)); }
  const CodeMap& map() const { return *map_; }
  const FlowRun& run(uint32_t id) const { return map_->run(id); }
  Addr return_of(uint32_t site) const { return map_->site(site).ret; }
  const RunTable& table() const { return map_->table(); }

 private:
  struct Target {
    Addr ip = 0;
    uint32_t run = 0;
    Space space = kNoSpace;
  };

  uint32_t make(Place& place);
  void link_push(uint32_t run, unsigned calls);
  bool find_behind(const FlowRun& from, unsigned calls);
  uint32_t add_run(const Run& run, const Block* const* blocks, const FlowRun& flow);
  uint32_t take_sites(uint32_t n);

  static constexpr size_t kMaxBlocks = 64;
  static constexpr size_t kMaxCalls = 31;
  static constexpr size_t kTargets = 8192;

  const std::shared_ptr<CodeMap> map_;
  StableText::Reader text_;
  RunTable::Writer runs_;
  uint32_t next_site_ = 0, end_site_ = 0;
  std::array<Target, kTargets> targets_;
};

}  // namespace asof::x86
