// FileText: whether code that ran leads where its file says. Compilers and binary optimizers read profiles together with the
// file. A kernel patches most of its functions when it starts (returns, indirect branches, paravirtual calls, alternatives,
// calls of ftrace): such a block is in the file, too, with other bytes. Where a static key or a probe made another way, it is not.
#pragma once
#include <tsl/robin_map.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "arch/block.h"
#include "decoder/lines/source_lines.h"
#include "decoder/model/image.h"
#include "tools/disasm/disasm.h"

namespace asof {

class FileText {
 public:
  explicit FileText(const Capture& capture)
      : capture_(capture), places_(capture), machine_(code_machine(capture.machine)) {}
  // How many bytes into the block an instruction of the file begins, from which on the file has no way out before the block's
  // last instruction but calls, and there the same branch, or the one that the kernel makes of it. Mostly 0; more where a block
  // begins with no-ops that fill up for a call which is longer in the file. None: it does not lead there, or no file is known.
  // Blocks are those of one pipeline.
  std::optional<uint32_t> begin_in_file(const Block& b);

 private:
  struct File {
    std::shared_ptr<const ElfImage> image;  // nullptr: cannot be read
    std::vector<Addr> functions;            // where they begin, in order
    std::vector<Addr> return_thunks, indirect_thunks;
  };
  struct Insn {
    uint8_t length = 0;  // 0: none
    BranchKind kind = BranchKind::kNone;
    Addr target = 0;
  };

  std::optional<uint32_t> compare(const Block& b);
  const File& file_of(uint32_t number);
  // Block and file by addresses of the file, in which the block is at `at`.
  std::optional<uint32_t> walk(const Block& b, Addr at, const File& file, const ElfSegment& segment) const;
  bool ends_alike(const Block& b, Addr at, const File& file, const Insn& last) const;
  Insn decode(std::span<const uint8_t> bytes, Addr ip, uint8_t mode) const;

  const Capture& capture_;
  SourceLines places_;
  CodeMachine machine_;
  std::map<uint32_t, File> files_;
  tsl::robin_map<const Block*, std::optional<uint32_t>> known_;
};

}  // namespace asof
