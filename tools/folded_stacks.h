// FoldedStacks: what ran under which callers, added up over a capture: one line for each stack and its own
// weight, "a;b;c 42", as flamegraph.pl (Gregg's stackcollapse format), inferno and speedscope read it.
//
// Slices come when they end, children before their parents, so that who called is not known yet. What ran
// below an open slice is kept as a tree, and hung under its caller's when the slice ends: memory grows with
// the number of different stacks, not with the capture.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "decoder/timeline.h"

namespace asof {

enum class StackWeight : uint8_t {
  kNanoseconds,   // own time: what its callees took is theirs
  kInstructions,  // executed in the function itself
  kCalls,         // activations whose beginning was seen
};

class FoldedStacks final : public TimelineSink {
 public:
  struct Options {
    StackWeight weight = StackWeight::kNanoseconds;
    bool tracks = false;    // the track's name is the outermost frame
    bool versions = false;  // a function's versions of text are frames of their own
  };
  explicit FoldedStacks(Options options) : options_(options) {}

  void track(const TimelineTrack& t) override;
  void function(const TimelineFunction& f) override;
  void slice(const Slice& s) override;

  // Lines in an order that depends on the capture alone; stacks without weight of their own are left out.
  // Frames beyond kMaxDepth are one, "[deeper]".
  void write(const std::function<void(std::string_view)>& write);

  static constexpr size_t kMaxDepth = 1024;

 private:
  using NodeId = uint32_t;
  static constexpr NodeId kNone = UINT32_MAX;
  struct Node {
    std::map<uint32_t, NodeId> kids;  // by name
    uint64_t weight = 0;
  };
  // What is known of a slice that has not ended.
  struct Open {
    NodeId tree = kNone;
    uint64_t child_time = 0;
  };

  uint32_t name_id(std::string name);
  uint32_t frame_name(const Slice& s);
  NodeId make_node();
  void hang(NodeId under, uint32_t name, NodeId child);
  uint64_t whole(NodeId node) const;

  Options options_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::vector<TimelineFunction> functions_;
  std::map<uint32_t, uint32_t> track_names_;
  std::vector<Node> nodes_;
  std::vector<NodeId> free_;
  std::unordered_map<uint64_t, Open> open_;  // by slice
  std::map<uint32_t, NodeId> roots_;         // by track; one for all without Options::tracks
};

}  // namespace asof
