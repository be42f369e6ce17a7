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
// Runs that reach something the fast walk does not do (text that changes, is unknown or unsure, hooks, far
// transfers, PTWRITE, MOV CR3, WRMSR, an endless loop) end in kStop: the careful walk takes them from their
// first block on.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "arch/steps.h"
#include "arch/x86/stable_text.h"
#include "arch/zeroed.h"

namespace asof::x86 {

enum class RunEnd : uint8_t { kCond, kRet, kIndirect, kStop };

// An edge out of a run: where the next one's Link lies, in bytes from the first link, which with a TNT bit is
// the code of a StepList; or one of these.
constexpr uint32_t kReturn = 0;          // where the return stack says
constexpr uint32_t kUnknown = 1;         // not known yet, or for the careful walk
constexpr uint32_t kAddressOnly = 2;     // of the return stack: an address whose run was not looked up yet
constexpr uint32_t kIndirect = 3;        // on either bit: where a TIP says
constexpr uint32_t kFirstMultiCall = 4;  // and above: MultiCallEdges
constexpr uint32_t kFirstRun = 1U << 16;
constexpr uint32_t kFirstEdge = kFirstRun << StepList::kRunShift;

constexpr uint32_t edge_to(uint32_t run) { return run << StepList::kRunShift; }
constexpr uint32_t run_of(uint32_t edge) { return edge >> StepList::kRunShift; }

// Where a run leads: all that the walk touches at a decision.
struct Link {
  std::array<std::atomic<uint32_t>, 2> next;  // edge, by TNT bit
  // What the run adds, in one number. In its high bits its instructions; in the low ones what it
  // leaves on the return stack, the edge to what follows its last call, or 0. Set before `next` is.
  std::atomic<uint64_t> effect;

  static constexpr unsigned kCountShift = 40;
  static constexpr uint32_t kMaxInstructions = UINT16_MAX;
  static constexpr uint64_t instructions(uint64_t effect) { return effect >> kCountShift; }
  static constexpr uint32_t push(uint64_t effect) { return static_cast<uint32_t>(effect); }
};
static_assert(sizeof(Link) == 1U << StepList::kRunShift);
static_assert(RunTable::kMax <= UINT32_MAX >> StepList::kRunShift);
// The sum over the bits of a path says how many instructions, too: neither part runs over.
static_assert(uint64_t{Link::kMaxInstructions} << 6 < uint64_t{1} << (64 - Link::kCountShift));
static_assert(32 + 6 < Link::kCountShift);

class Links {
 public:
  Links();
  Link& of(uint32_t run) { return links_[run]; }
  const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(links_.get()); }
  static const Link& at(const std::byte* bytes, uint32_t edge) {
    return *reinterpret_cast<const Link*>(bytes + edge);
  }
  // Where it leads on TNT bit 0; on bit 1 from the next word, which `bytes` may have in it already.
  static const std::atomic<uint32_t>& next_at(const std::byte* bytes, uint32_t edge) {
    static_assert(offsetof(Link, next) == 0);
    return *reinterpret_cast<const std::atomic<uint32_t>*>(bytes + edge);
  }

 private:
  ZeroedArray<Link> links_;
};

// The edges of runs that leave several calls on the return stack. Its link has the last of them; here are
// the others, in the order of calling, and the edge.
class MultiCallEdges {
 public:
  MultiCallEdges();
  // Index, or 0: there is no room. Any thread may add; nothing that was added changes.
  uint32_t add(uint32_t next, std::span<const uint32_t> returns);
  const uint32_t* words() const { return words_.get(); }
  static uint32_t next(const uint32_t* entry) { return entry[0]; }
  static std::span<const uint32_t> returns(const uint32_t* entry) { return {entry + 2, entry[1]}; }

 private:
  ZeroedArray<uint32_t> words_;
  alignas(64) std::atomic<uint32_t> used_{kFirstMultiCall};  // what is beside is read all the time
};

// A call within a run.
struct CallSite {
  Addr ret = 0;
  std::atomic<uint32_t> run{0};  // at `ret`; 0: not known yet
};

struct FlowRun {
  Addr ip = 0;
  std::array<Addr, 2> targets{};  // of a conditional branch at its end, by TNT bit
  uint32_t calls = 0;             // the first of its call sites
  uint8_t call_count = 0;         // an indirect call at its end included
  RunEnd end = RunEnd::kStop;
  uint8_t mode = 64;
  Space space = kKernelSpace;
};

class CodeMap {
 public:
  // `unsure`: no run is certain, whatever its text says of itself (TextStore::unsure_from()).
  CodeMap(const TextStore& text, TextAt text_at, std::vector<Addr> hooks, bool unsure);

  bool unsure() const { return unsure_; }
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
  const bool unsure_;
  RunTable table_{kFirstRun};
  Links links_;
  MultiCallEdges multi_call_edges_;
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
    Target& t = targets_[target_slot(ip)];
    if (t.ip != ip || t.key != space_mode_key(space, mode))
      t = {ip, at(space, ip, mode), space_mode_key(space, mode)};
    return t.run;
  }
  // The same of a target met before; 0: it was not, or not lately.
  uint32_t known_target(Space space, Addr ip, uint8_t mode) const {
    const Target& t = targets_[target_slot(ip)];
    return t.ip == ip && t.key == space_mode_key(space, mode) ? t.run : 0;
  }
  // Sees that the link of `run` says where it leads on a TNT bit. False: this is for the careful walk.
  bool follow(uint32_t run, uint32_t bit);
  // Sees that the link of `run` says that it ends in an indirect branch. False: it does not, or as above.
  bool follow_indirect(uint32_t run);
  // The run after a call site, made when it is new; 0: there is no room for it.
  uint32_t behind(uint32_t site, const FlowRun& of);

  const std::byte* links() const { return map_->links_.bytes(); }
  const uint32_t* multi_call_edges() const { return map_->multi_call_edges_.words(); }
  const Link& link(uint32_t run) const { return Links::at(links(), edge_to(run)); }
  const CodeMap& map() const { return *map_; }
  const FlowRun& run(uint32_t id) const { return map_->run(id); }
  Addr return_of(uint32_t site) const { return map_->site(site).ret; }
  const RunTable& table() const { return map_->table(); }

 private:
  struct Target {
    Addr ip = 0;
    uint32_t run = 0;
    uint32_t key = 0;
  };
  static size_t target_slot(Addr ip) { return (ip ^ ip >> 12) % kTargets; }
  // One number for both; there are fewer spaces than would overflow it.
  static uint32_t space_mode_key(Space space, uint8_t mode) { return space << 7 | mode; }

  uint32_t make(Place& place);
  uint32_t link_calls(uint32_t run, unsigned calls, uint32_t next);
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
