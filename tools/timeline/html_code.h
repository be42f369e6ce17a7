// Code in the HTML view: straight runs, each different one once; old and new instructions of changes.
#pragma once
#include <span>
#include <string>

#include "decoder/calls/timeline.h"
#include "tools/disasm/code_text.h"
#include "tools/timeline/html_cycles.h"
#include "tools/timeline/html_json.h"

namespace asof {

class HtmlCode {
 public:
  HtmlCode(const Capture& capture, bool inlined);

  // Index of a run's code in the table that put_blocks() writes.
  uint32_t block_of(const BlockSlice& b) { return code_.of(b).id; }
  // "blocks": [{...}]
  void put_blocks(HtmlJson& json, const HtmlCycles& cycles);
  // Kernel code as lines: bytes, disassembly, where a direct branch leads.
  std::string instructions(std::span<const uint8_t> bytes, Addr at, Time t);
  std::string origin(OriginRef ref) const;
  // What source lines could not be read.
  std::vector<Notice> take_notices() { return code_.take_notices(); }

 private:
  const Capture& capture_;
  bool arm64_;
  CodeText code_;
};

}  // namespace asof
