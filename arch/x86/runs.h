// Runs of the text that never changes (arch/run_table.h), with what decides where each leads: what the fast
// walk (fast.cpp) goes over instead of instructions.
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
#include <utility>
#include <vector>

#include "arch/steps.h"
#include "arch/x86/stable_text.h"
#include "arch/zeroed.h"

namespace asof::x86 {

enum class RunEnd : uint8_t { kCond, kRet, kIndirect, kStop };

// Edges to lower runs would be the indices of MultiCallEdges.
constexpr RunId kLowestRun{1U << 16};

// An edge out of a run: where the next one's Link lies, in bytes from the first link, which with a TNT bit is
// the code of a StepList; or one of these.
enum class Edge : uint32_t {
  kReturn = 0,          // where the return stack says
  kNone = 0,            // of the return stack, and of what a run leaves on it: nothing
  kUnknown = 1,         // not known yet, or for the careful walk
  kAddressOnly = 2,     // of the return stack: an address whose run was not looked up yet
  kIndirect = 3,        // on either bit: where a TIP says
  kFirstMultiCall = 4,  // and above, up to the first run: MultiCallEdges
  kFirstRun = index_of(kLowestRun) << kRunShift,
};

constexpr Edge edge_to(RunId run) { return Edge{index_of(run) << kRunShift}; }
constexpr bool leads_to_run(Edge edge) { return edge >= Edge::kFirstRun; }
constexpr bool is_multi_call(Edge edge) { return edge >= Edge::kFirstMultiCall && edge < Edge::kFirstRun; }
// Of edges that lead to a run.
constexpr RunId run_of(Edge edge) { return RunId{std::to_underlying(edge) >> kRunShift}; }
constexpr StepCode step_code(Edge edge, uint32_t bit) { return StepCode{std::to_underlying(edge) | bit}; }
constexpr Edge edge_to_run_of(StepCode code) { return Edge{std::to_underlying(code) & ~kTakenBit}; }

// Where a run leads: all that the walk touches at a decision.
struct Link {
  std::array<std::atomic<Edge>, 2> next;  // by TNT bit
  // What the run adds, in one number. In its high bits its instructions; in the low ones what it
  // leaves on the return stack, the edge to what follows its last call, or kNone. Set before `next` is.
  std::atomic<uint64_t> effect;

  static constexpr unsigned kCountShift = 40;
  static constexpr uint32_t kMaxInstructions = UINT16_MAX;
  static constexpr uint64_t instructions(uint64_t effect) { return effect >> kCountShift; }
  static constexpr Edge push(uint64_t effect) { return Edge{static_cast<uint32_t>(effect)}; }
};
static_assert(sizeof(Link) == 1U << kRunShift);
static_assert(RunTable::kMax <= UINT32_MAX >> kRunShift);
// The sum over the bits of a path says how many instructions, too: neither part runs over.
static_assert(uint64_t{Link::kMaxInstructions} << 6 < uint64_t{1} << (64 - Link::kCountShift));
static_assert(32 + 6 < Link::kCountShift);

class Links {
 public:
  Links();
  Link& of(RunId run) { return links_[index_of(run)]; }
  const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(links_.get()); }
  static const Link& at(const std::byte* bytes, Edge edge) {
    return *reinterpret_cast<const Link*>(bytes + std::to_underlying(edge));
  }
  // Where it leads on TNT bit 0; on bit 1 from the next word, which `bytes` may have in it already.
  static const std::atomic<Edge>& next_at(const std::byte* bytes, Edge edge) {
    static_assert(offsetof(Link, next) == 0);
    return *reinterpret_cast<const std::atomic<Edge>*>(bytes + std::to_underlying(edge));
  }

 private:
  ZeroedArray<Link> links_;
};

// What the addresses of a run, or of several in a row, add to a hash over all (Run::hash).
struct PathHash {
  uint64_t hash = 0;
  uint64_t power = 1;  // K^instructions
  void add(const PathHash& next) {
    hash = hash * next.power + next.hash;
    power *= next.power;
  }
};

// What is summed of runs, each at the place of its link: a look at RunTable for each would take as long as the walk.
class RunSums {
 public:
  RunSums();
  void set(RunId id, const Run& run) {
    hashes_[index_of(id)] = {run.hash, hash_power(run.instructions)};
    branches_[index_of(id)] = static_cast<uint8_t>(run.branches);
  }
  struct View {
    const std::byte* hashes = nullptr;
    const uint8_t* branches = nullptr;
    const PathHash& hash(Edge of) const {
      static_assert(sizeof(PathHash) == 1U << kRunShift);
      return *reinterpret_cast<const PathHash*>(hashes + std::to_underlying(of));
    }
    uint32_t branches_of(Edge of) const { return branches[std::to_underlying(of) >> kRunShift]; }
  };
  View view() const { return {reinterpret_cast<const std::byte*>(hashes_.get()), branches_.get()}; }

 private:
  ZeroedArray<PathHash> hashes_;
  ZeroedArray<uint8_t> branches_;
};

// The edges of runs that leave several calls on the return stack. Its link has the last of them; here are
// the others, in the order of calling, and the edge. The link's edge is the index of them here.
class MultiCallEdges {
 public:
  MultiCallEdges();
  // kNone: there is no room. Any thread may add; nothing that was added changes.
  Edge add(Edge next, std::span<const Edge> returns);
  const Edge* words() const { return words_.get(); }
  static const Edge* entry(const Edge* words, Edge multi_call) {
    return words + std::to_underlying(multi_call);
  }
  static Edge next(const Edge* entry) { return entry[0]; }
  static std::span<const Edge> returns(const Edge* entry) {
    return {entry + 2, std::to_underlying(entry[1])};
  }

 private:
  static constexpr uint32_t kFirst = std::to_underlying(Edge::kFirstMultiCall);
  static constexpr uint32_t kWords = std::to_underlying(Edge::kFirstRun);

  ZeroedArray<Edge> words_;                         // of an entry: `next`, how many `returns`, those
  alignas(64) std::atomic<uint32_t> used_{kFirst};  // what is beside is read all the time
};

// A call within a run, by number.
enum class CallSiteId : uint32_t { kNone = 0 };

struct CallSite {
  Addr ret = 0;
  std::atomic<RunId> run{RunId::kNone};  // at `ret`; kNone: not known yet
};

struct FlowRun {
  Addr ip = 0;
  std::array<Addr, 2> targets{};  // of a conditional branch at its end, by TNT bit
  CallSiteId calls{};             // the first of its call sites
  uint8_t call_count = 0;         // an indirect call at its end included
  RunEnd end = RunEnd::kStop;
  uint8_t mode = 64;
  Space space = kKernelSpace;

  CallSiteId call(unsigned i) const { return CallSiteId{std::to_underlying(calls) + i}; }
};

class CodeMap {
 public:
  // How the runs of one map are made, whatever their text says.
  struct Rules {
    bool unsure = false;                 // no run is certain (TextStore::unsure_from())
    bool returns_are_compressed = true;  // else a return is an indirect branch, and calls push nothing
  };
  CodeMap(const TextStore& text, TextAt text_at, std::vector<Addr> hooks, const Rules& rules);

  bool unsure() const { return rules_.unsure; }
  bool returns_are_compressed() const { return rules_.returns_are_compressed; }
  const RunTable& table() const { return table_; }
  Addr ip_of(RunId run) const { return runs_[index_of(run) / kPiece][index_of(run) % kPiece].ip; }

 private:
  friend class RunCache;
  static constexpr uint32_t kPiece = RunTable::kPiece;
  static constexpr uint32_t kMaxSites = 1U << 22;
  static constexpr uint32_t kSitePieces = kMaxSites / kPiece;

  FlowRun& run(RunId id) { return runs_[index_of(id) / kPiece][index_of(id) % kPiece]; }
  CallSite& site(CallSiteId id) {
    const uint32_t i = std::to_underlying(id);
    return sites_[i / kPiece][i % kPiece];
  }

  StableText text_;
  const Rules rules_;
  RunTable table_{kLowestRun};
  Links links_;
  RunSums sums_;
  MultiCallEdges multi_call_edges_;
  // Pieces of kPiece, in memory of text_; what of one is used is written first.
  std::array<FlowRun*, RunTable::kPieces> runs_{};
  std::array<CallSite*, kSitePieces> sites_{};
  std::atomic<uint32_t> site_pieces_{0};
};

// Not thread-safe: one per decoder.
class RunCache {
 public:
  explicit RunCache(std::shared_ptr<CodeMap> map);

  // The run at an address, made when it is new; kNone: there is no room for it.
  RunId at(Space space, Addr ip, uint8_t mode);
  // The same, for targets of indirect branches.
  RunId target(Space space, Addr ip, uint8_t mode) {
    Target& t = targets_[target_slot(ip)];
    return t.is(space, ip, mode) ? t.run : new_target(space, ip, mode);
  }
  // The same of a target met before; kNone: it was not, or not lately.
  RunId known_target(Space space, Addr ip, uint8_t mode) const {
    const Target& t = targets_[target_slot(ip)];
    return t.is(space, ip, mode) ? t.run : RunId::kNone;
  }
  // Sees that the link of `run` says where it leads on a TNT bit. False: this is for the careful walk.
  bool follow(RunId run, uint32_t bit);
  // Sees that the link of `run` says that it ends in an indirect branch. False: it does not, or as above.
  bool follow_indirect(RunId run);
  // The run after a call site, made when it is new; kNone: there is no room for it.
  RunId return_run(CallSiteId site, const FlowRun& of);

  const std::byte* links() const { return map_->links_.bytes(); }
  const Edge* multi_call_edges() const { return map_->multi_call_edges_.words(); }
  const Link& link(RunId run) const { return Links::at(links(), edge_to(run)); }
  const CodeMap& map() const { return *map_; }
  const FlowRun& run(RunId id) const { return map_->run(id); }
  Addr return_of(CallSiteId site) const { return map_->site(site).ret; }
  const RunTable& table() const { return map_->table(); }
  RunSums::View sums() const { return map_->sums_.view(); }

 private:
  // One number for both; there are fewer spaces than would overflow it.
  static uint32_t space_mode_key(Space space, uint8_t mode) { return space << 7 | mode; }
  struct Target {
    Addr ip = 0;
    RunId run{};
    uint32_t key = 0;

    bool is(Space space, Addr at, uint8_t mode) const {
      return ip == at && key == space_mode_key(space, mode);
    }
  };
  size_t target_slot(Addr ip) const { return ip * kHashFactor >> target_shift_; }
  RunId new_target(Space space, Addr ip, uint8_t mode);

  RunId make(Slot& slot);
  Edge link_calls(RunId run, unsigned calls, Edge next);
  RunId add_run(const Run& run, const Block* const* blocks, const FlowRun& flow);
  CallSiteId take_sites(uint32_t n);

  static constexpr size_t kMaxBlocks = 64;
  static_assert(kMaxBlocks <= UINT8_MAX);  // RunSums
  static constexpr size_t kMaxCalls = 31;
  static constexpr unsigned kFewTargets = 10, kMostTargets = 13;  // two to the power of that

  const std::shared_ptr<CodeMap> map_;
  StableText::Reader text_;
  RunTable::Writer runs_;
  uint32_t next_site_ = 0, end_site_ = 0;
  // Few at first: memory that is used for the first time takes a fault for each page.
  std::vector<Target> targets_ = std::vector<Target>(size_t{1} << kFewTargets);
  unsigned target_shift_ = 64 - kFewTargets;
  size_t new_targets_ = 0;
};

}  // namespace asof::x86
