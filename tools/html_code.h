// Code in the HTML view: straight runs, each different one once; old and new instructions of changes.
#pragma once
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "decoder/timeline.h"
#include "tools/disasm.h"
#include "tools/html_json.h"

namespace asof {

class HtmlCode {
 public:
  explicit HtmlCode(const Capture& capture);

  // Index of a run's code in the table that put_blocks() writes. The run must stay where it is.
  uint32_t block_of(const BlockSlice& b);
  // "blocks": [{...}]
  void put_blocks(HtmlJson& json);
  // Kernel code as lines: bytes, disassembly, where a direct branch leads.
  std::string instructions(std::span<const uint8_t> bytes, Addr at, Time t);
  std::string origin(OriginRef ref) const;

 private:
  std::string symbol(Space space, Addr a, Time t) const;

  const Capture& capture_;
  bool arm64_;
  Disassembler disassembler_;
  using BlockKey = std::tuple<Space, Addr, OriginRef, std::vector<uint8_t>>;
  std::map<BlockKey, std::pair<uint32_t, const BlockSlice*>> blocks_;
};

}  // namespace asof
