// SumTree: calls that ended, added up by function and callers.
#pragma once
#include <tsl/robin_map.h>

#include <cstdint>
#include <span>
#include <vector>

#include "decoder/calls/call_span.h"
#include "decoder/calls/timeline_functions.h"

namespace asof {

struct EndedCall {
  uint32_t function = 0, version = 1;
  uint32_t depth = 0;  // of its frame
  Time begin = 0, end = 0;
  uint64_t instructions = 0, own_instructions = 0;
  uint64_t own_time = 0;
};

class SumTree {
 public:
  // Another chunk, with keys of its own.
  void begin(std::vector<SumKey>& keys);
  // Calls with all that they called; those of the least depth are the outermost.
  void add_up(std::span<const EndedCall> ended, uint32_t least_depth, const FunctionTable& functions,
              std::vector<SumNode>& out);

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kFew = 12;  // kids that are looked through
  struct Node {
    uint32_t key = 0;
    uint32_t first = kNone, next = kNone;  // kids, siblings
    uint32_t kids = 0;
    uint64_t calls = 0, instructions = 0, time = 0;
  };
  uint32_t key_of(const EndedCall& call, const FunctionTable& functions);
  uint32_t kid(uint32_t under, uint32_t key);
  uint32_t new_kid(uint32_t under, uint32_t key);
  void write(std::vector<SumNode>& out);

  struct Latest {
    uint64_t chunk = 0;
    uint32_t version = 0, key = 0;
  };

  std::vector<SumKey>* keys_ = nullptr;
  uint64_t chunk_ = 0;
  std::vector<Latest> latest_;                  // by function
  tsl::robin_map<uint64_t, uint32_t> key_ids_;  // by function and version
  std::vector<Node> nodes_;                     // 0: the root
  tsl::robin_map<uint64_t, uint32_t> index_;    // by node and key, of nodes with many kids
  std::vector<uint32_t> path_;
};

}  // namespace asof
