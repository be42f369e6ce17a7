// FoldedStacks: what ran under which callers, added up over a capture: the cost of each stack's innermost
// function itself. Written as one line for each stack, "a;b;c 42", as flamegraph.pl (Gregg's stackcollapse
// format), inferno and speedscope read it; as a profile for Firefox's viewer (firefox_profile.h); compared by
// `asof diff`.
//
// Slices arrive when they end, children before their parents, so callers are not known yet. What ran below an
// open slice is kept as a tree, and added to that of its caller when the slice ends: memory grows with the
// number of different stacks, not with the capture.
//
// Time in which the flow is missing (gaps) belongs to no function, so times add up to those of
// function_costs.h, and with the gaps to the time that CPUs had a known stack.
#pragma once
#include <tsl/robin_map.h>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "decoder/calls/timeline.h"
#include "decoder/io/addr_key.h"
#include "tools/disasm/source_text.h"
#include "tools/profile/cost.h"
#include "tools/profile/lost_time.h"

namespace asof {

enum class StackWeight : uint8_t {
  kNanoseconds,   // own time, without that of its callees
  kInstructions,  // executed in the function itself
  kCalls,         // activations whose beginning was seen
};

uint64_t weight_of(const Cost& cost, StackWeight weight);

// The CPUs' tracks show what ran; per-thread captures have only threads' tracks.
bool has_cpu_streams(const Capture& capture);

class FoldedStacks final : public TimelineSink {
 public:
  struct Options {
    bool tracks = false;    // the track's name is the outermost frame
    bool versions = false;  // a function's versions of text are frames of their own
    bool untraced = true;   // with the time in which tracing was off
    TimeBounds time{};      // time and calls of this time; instructions: TimelineOptions::counted
    // Frames of inlined functions and of lines, which need TimelineOptions::detail. A function's own time is divided
    // among them by instructions; calls of inlined functions are not counted.
    SourceChoice source{};
    size_t most_nodes = kMostNodes;
  };
  // Frames of different stacks that are held; some 100 bytes each. Where there are more, the deepest become one, "[deeper]".
  static constexpr size_t kMostNodes = size_t{1} << 21U;
  explicit FoldedStacks(Options options) : options_(options) {}

  void begin(const Capture& capture) override;
  void block(const BlockSlice& b) override;
  bool takes_blocks_at_once() const override { return true; }
  // What source lines could not be read.
  std::vector<Notice> take_notices() { return lines_ ? lines_->take_notices() : std::vector<Notice>(); }

  void track(const TimelineTrack& t) override;
  void function(const TimelineFunction& f) override;
  void slice(const Slice& s) override;
  void gap(const GapSlice& g) override;
  bool stopped() const override;
  bool takes_sums() const override;
  bool takes_sum(uint32_t track, Time begin, Time end) const override;
  void sum(const CallSums& sums, uint32_t track, uint64_t parent) override;

  // Stacks are told apart up to this depth: kMaxDepth, or less where there were too many.
  size_t depth() const { return depth_; }
  // Says so where it is less; empty otherwise.
  std::string shallow_note() const;

  // One stack, outermost first: numbers of names(). Frames beyond depth() are one, "[deeper]".
  using Visit = std::function<void(std::span<const uint32_t> stack, const Cost& own)>;
  // In the order of their frames' names; stacks without a cost of their own are left out.
  bool empty() const { return roots_.empty(); }
  void visit(const Visit& visit);
  const std::vector<std::string>& names() const { return names_; }

  // Stacks with a weight, one a line.
  void write(StackWeight weight, const std::function<void(std::string_view)>& write);

  static constexpr size_t kMaxDepth = 1024;

 private:
  using NodeId = uint32_t;
  static constexpr NodeId kNone = UINT32_MAX;
  struct Kid {
    uint32_t name = 0;
    NodeId node = kNone;
  };
  struct Node {
    // Most have few, which are looked through; those of nodes with many are in index_ as well.
    std::vector<Kid> kids;
    Cost own;
    uint32_t height = 0;  // of calls below it, at least
  };
  struct KeyHash {
    size_t operator()(uint64_t key) const { return key * kHashFactor >> 20U ^ key * kHashFactor; }
  };
  // What is known of a slice that has not ended.
  struct Open {
    NodeId tree = kNone;
    uint64_t child_time = 0;
    std::map<uint32_t, uint64_t> parts;  // instructions by chain, where there are frames inside the function
  };
  using LostBy = std::pair<int32_t, int32_t>;  // thread, or -1; CPU, of an idle thread, too

  // An address in one version of text.
  struct Place {
    Space space;
    Addr address;
    OriginRef origin;
    bool operator==(const Place&) const = default;
  };
  struct PlaceHash {
    size_t operator()(const Place& p) const {
      return AddrKeyHash{}({p.space, p.address ^ p.origin * kHashFactor});
    }
  };
  uint32_t chain_at(const Place& place, Time t);
  uint32_t make_chain(Space space, Addr a, Time t);
  void divide(NodeId function, const Cost& own, const Open& below);
  uint32_t name_id(std::string name);
  uint32_t frame_name(uint32_t function, uint32_t version);
  NodeId make_node();
  // The node of this name below `under`; kNone, to be set, if there is none.
  NodeId& kid(NodeId under, uint32_t name);
  void index_kids(NodeId node);
  void forget_kids(NodeId node);
  std::vector<Kid> sorted_kids(NodeId node) const;
  void hang(NodeId under, uint32_t name, NodeId child);
  Cost whole(NodeId node) const;
  void free_below(NodeId node);
  void cut(NodeId tree, size_t depth);
  void limit(NodeId tree);
  uint64_t known_time(const Slice& s) const;

  Options options_;
  size_t depth_ = kMaxDepth;
  std::optional<SourceLines> lines_;
  tsl::robin_map<Place, uint32_t, PlaceHash> chain_at_;
  std::map<std::vector<uint32_t>, uint32_t> chain_ids_;  // frames inside a function, outermost first
  std::vector<std::vector<uint32_t>> chains_;            // by id; 0: none
  std::vector<std::string> names_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::vector<TimelineFunction> functions_;
  std::vector<std::vector<uint32_t>> frame_names_;  // by function and version; kNone: not named yet
  std::map<uint32_t, uint32_t> track_names_;
  std::map<uint32_t, LostBy> tracks_;
  std::map<LostBy, LostTime> lost_;
  std::deque<Node> nodes_;  // grows without being moved
  std::vector<NodeId> free_;
  tsl::robin_map<uint64_t, uint32_t, KeyHash> index_;  // places of kids, by node and name
  std::unordered_map<uint64_t, Open> open_;            // by slice
  std::map<uint32_t, NodeId> roots_;                   // by track; one for all without Options::tracks
};

}  // namespace asof
