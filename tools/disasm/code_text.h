// CodeText: straight runs of a timeline for people to read, each different one once: disassembly of the bytes
// that ran, as the text store had them then, and the source lines they were compiled from.
#pragma once
#include <tsl/robin_map.h>

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/calls/timeline.h"
#include "decoder/io/addr_key.h"
#include "decoder/lines/source_lines.h"
#include "tools/disasm/disasm.h"
#include "tools/disasm/source_text.h"

namespace asof {

struct CodeInstruction {
  Addr address = 0;
  std::string bytes;  // "0f 1f 44 00 00"
  std::string text;   // disassembly
  SourceLine source;
  std::string inlined;  // inlined_text(), if it was asked for
};

// A run of instructions of one version of text.
struct CodeRun {
  uint32_t id = 0;  // from 0, in the order they were met
  Space space = kKernelSpace;
  uint8_t mode = 64;
  OriginRef origin = kNoOrigin;
  std::string symbol;  // "__schedule+0x114"; the address where there is none
  std::string origin_text;
  std::vector<uint8_t> text;
  std::vector<CodeInstruction> instructions;
};

class CodeText {
 public:
  // `inlined`: with CodeInstruction::inlined.
  CodeText(const Capture& capture, bool inlined);

  // Its address does not change.
  const CodeRun& of(const BlockSlice& b);
  const std::deque<CodeRun>& all() const { return runs_; }

  // "__schedule+0x114", or the address.
  std::string symbol(Space space, Addr a, Time t) const;
  Disassembler& disassembler() { return disassembler_; }
  // What source lines could not be read, each once.
  std::vector<Notice> take_notices() { return lines_.take_notices(); }

 private:
  struct Key {
    Space space;
    Addr ip;
    OriginRef origin;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const { return AddrKeyHash{}({k.space, k.ip ^ k.origin * kHashFactor}); }
  };
  CodeRun make(const BlockSlice& b);

  const Capture& capture_;
  const bool inlined_;
  Disassembler disassembler_;
  SourceLines lines_;
  std::deque<CodeRun> runs_;
  tsl::robin_map<Key, std::vector<uint32_t>, KeyHash> by_place_;  // few have the same address
};

}  // namespace asof
